"""The verdict of a list of rules about one caller and one item.

Theory of operation. The first rule that matches both caller and item decides; without a match everything is allowed
where there are no rules, and denied where there are some. What the rules depend on of a caller is which `who` hold for
it, and its scopes: callers that agree in both share one View. A View indexes the clauses of its rules by the literal
parts of their patterns, so that a verdict takes few comparisons, and remembers the verdicts of the items it has seen.
Lists, searches, calls, reads, completions and notifications all ask the View of their caller, and nothing else.

Rules with `approve` are apart from these: the first one that matches both caller and tool says who approves a call that
the other rules allow. They never allow anything themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pegboard.auth.principal import Principal
from pegboard.bounded_dict import BoundedDict
from pegboard.call_target import CalledTool, ItemKind
from pegboard.rules.rule import (
    ITEM_KINDS,
    LOCATED_KINDS,
    Approval,
    Effect,
    Item,
    Rule,
    What,
    annotation,
    canonical_uri,
    item_of,
    same_json,
)

VIEWS_KEPT: Final = 512
"""How many different sets of rights are remembered; a caller with another one costs a little more."""
_PRINCIPALS_KEPT: Final = 4096
_ITEMS_KEPT: Final = 16_384
# A caller may send a URI of megabytes, which each pattern would have to be compared with.
_MAX_NAME: Final = 8_192

_OWN_SCOPES: Final = "the scopes that it requires"

_Part: TypeAlias = str | re.Pattern[str] | None
_Key: TypeAlias = tuple[str | None, str | None, str | None]


class Verdict(Struct, frozen=True):
    """What a caller may do with an item, and why.

    effect: `allow`; `deny`; or `hide`, which is answered as if the item did not exist.
    rule: the rule that decided, for the operator.
    scopes: for `deny`, all scopes that the item needs, if the caller would be allowed with them.
    listed: whether lists show it: what is allowed, and what a caller can obtain the scopes for.
    named: whether the rule names the kind of the item, and not all kinds at once.
    approval: for `allow`, who has to approve a call first; None if a call needs no approval.
    """

    effect: Effect
    rule: str
    scopes: tuple[str, ...] = ()
    listed: bool = True
    named: bool = False
    approval: Approval | None = None


UNMATCHED: Final = "no rule matches"
"""The rule of a verdict about an item that there are rules for, but none that matches."""

_ALLOWED: Final = Verdict("allow", "there are no rules")
_ALLOWED_UNLESS_REFUSED: Final = Verdict("allow", "all rules are about approvals")
_ALLOWED_META_TOOL: Final = Verdict(
    "allow", "no rule matches; a meta-tool shows and calls only what the caller may use"
)
_DENIED: Final = Verdict("deny", UNMATCHED, listed=False)
_TOO_LONG: Final = Verdict("deny", "its name is too long to be compared with patterns", listed=False)


class _Clause(Struct, frozen=True):
    """One pattern of one rule."""

    position: int
    rule: int
    verdict: Verdict
    toolbox: _Part
    server: _Part
    item: _Part
    canonical: _Part
    kinds: frozenset[ItemKind]
    what: What

    @property
    def key(self) -> _Key:
        """The literal parts of the pattern."""
        return _literal(self.toolbox), _literal(self.server), _literal(self.canonical)

    @property
    def covers_servers(self) -> bool:
        """Whether it matches every item of the servers that it matches."""
        what = self.what
        return self.item is None and self.kinds >= LOCATED_KINDS and not (what.category or what.tag or what.annotation)

    def matches(self, item: Item, canonical: str) -> bool:
        """Whether the item fulfils all conditions; `canonical` is its name in canonical form."""
        if item.kind not in self.kinds or not (_fits(self.toolbox, item.toolbox) and _fits(self.server, item.server)):
            return False
        if self.item is not None and not self._matches_name(item, canonical):
            return False
        what = self.what
        if what.category and item.category not in what.category:
            return False
        if what.tag and item.tags.isdisjoint(what.tag):
            return False
        return all(same_json(annotation(item, name), value) for name, value in what.annotation.items())

    def _matches_name(self, item: Item, canonical: str) -> bool:
        same = _fits(self.item, item.name)
        if item.kind != "resource":
            return same
        if self.verdict.effect == "allow":
            # In doubt a URI is not allowed: another spelling of it may lead elsewhere. A template that the operator
            # names exactly allows all that it produces.
            return (same and _fits(self.canonical, canonical)) or self.item == item.template != ""
        template = item.template
        return same or _fits(self.canonical, canonical) or (template != "" and _fits(self.item, template))


class Rules:
    """A compiled list of rules.

    `located` says that patterns have the parts `toolbox/server/item`, as in a gateway; otherwise they are names of items.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, located: bool = False) -> None:
        self._rules = tuple(rules)
        self._decides = any(rule.approve is None for rule in self._rules)
        self._clauses = tuple(_compile(self._rules, located))
        self._approvals = tuple(_compile_approvals(self._rules, located))
        self._views: BoundedDict[tuple[object, ...], View] = BoundedDict(VIEWS_KEPT)
        self._by_principal: BoundedDict[int, tuple[Principal, View]] = BoundedDict(_PRINCIPALS_KEPT)
        self._items: dict[int, tuple[CalledTool, Item]] = {}

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def approve(self) -> bool:
        """Whether some calls need an approval."""
        return bool(self._approvals)

    def verdict(self, principal: Principal, item: Item) -> Verdict:
        """What this caller may do with this item."""
        return self.view(principal).verdict(item)

    def unmatched(self, items: Iterable[Item]) -> list[str]:
        """The patterns that match none of these items for any caller; those for other kinds of items are left out."""
        known = [(item, canonical_uri(item.name)) for item in items]
        kinds = {item.kind for item, _ in known} | LOCATED_KINDS
        return [
            clause.verdict.rule
            for clause in (*self._clauses, *self._approvals)
            if not clause.kinds.isdisjoint(kinds) and not any(clause.matches(*names) for names in known)
        ]

    def view(self, principal: Principal) -> View:
        """The verdicts for this caller; the same object for callers with the same rights."""
        # By identity: principals are equal if their ids are, and one caller may present credentials with other scopes.
        known = self._by_principal.get(id(principal))
        if known is not None and known[0] is principal:
            return known[1]
        holding = tuple(
            (rule, who)
            for rule, rule_read in enumerate(self._rules)
            for who, condition in enumerate(rule_read.who)
            if condition.holds_without_scopes(principal)
        )
        view = self._view(holding, principal.scopes, principal.kind)
        self._by_principal[id(principal)] = principal, view
        return view

    def item(self, called: CalledTool) -> Item:
        """The item of a tool, prompt, resource or template; the same object each time."""
        known = self._items.get(id(called))
        if known is None or known[0] is not called:
            if len(self._items) >= _ITEMS_KEPT:
                self._items.clear()
            known = self._items[id(called)] = called, item_of(called)
        return known[1]

    def _view(self, holding: tuple[tuple[int, int], ...], scopes: frozenset[str], kind: str) -> View:
        # A token can be exchanged for one with more scopes; a local user needs none.
        steps_up, local = kind == "token", kind == "local"
        key = holding, scopes, steps_up, local
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(self, holding, scopes, kind)
        return view


class View:
    """The verdicts for all callers with the same rights."""

    def __init__(self, rules: Rules, holding: tuple[tuple[int, int], ...], scopes: frozenset[str], kind: str) -> None:
        self._rules, self._scopes, self._kind = rules, scopes, kind
        # For each rule whose other conditions hold: the sets of scopes of which a caller needs one.
        self._needed: dict[int, list[frozenset[str]]] = {}
        for rule, who in holding:
            texts = rules._rules[rule].who[who].scope or ("",)
            self._needed.setdefault(rule, []).extend(frozenset(text.split()) for text in texts)
        self._holding = frozenset(rule for rule in self._needed if self._holds(rule, scopes))
        self._clauses = tuple(clause for clause in rules._clauses if clause.rule in self._needed)
        self._approvals = tuple(clause for clause in rules._approvals if clause.rule in self._holding)
        self._index: dict[_Key, list[_Clause]] = {}
        for clause in self._clauses:
            self._index.setdefault(clause.key, []).append(clause)
        # Which parts of the patterns are literal: an item is looked up once for each combination.
        self._shapes = {
            (toolbox is not None, server is not None, name is not None) for toolbox, server, name in self._index
        }
        self._known: dict[Item, Verdict] = {}
        self._servers: dict[tuple[str, str], bool] = {}

    def of(self, called: CalledTool) -> Verdict:
        """The verdict about a tool, prompt, resource or template; remembered."""
        item = self._rules.item(called)
        known = self._known.get(item)
        if known is None:
            if len(self._known) >= _ITEMS_KEPT:
                self._known.clear()
            known = self._known[item] = self.verdict(item)
        return known

    def of_uri(self, called: CalledTool, uri: str, *, from_template: bool) -> Verdict:
        """The verdict about a URI that is not listed itself, at the server that has it."""
        return self.verdict(item_of(called, uri, from_template=from_template))

    def verdict(self, item: Item) -> Verdict:
        """What these callers may do with an item: the first rule that matches decides."""
        if len(item.name) > _MAX_NAME and self._rules._rules:
            return _TOO_LONG
        canonical = canonical_uri(item.name)
        candidates = self._candidates(item, canonical)
        decided = self._decide(
            item, (clause for clause in candidates if clause.matches(item, canonical)), self._holding
        )
        if decided.effect == "hide":
            return decided
        if decided.effect == "allow":
            if self._kind != "local" and not item.scopes <= self._scopes:
                return self._deny(_OWN_SCOPES, item.scopes)
            approval = self._approval(item, canonical)
            return decided if approval is None else replace(decided, approval=approval)
        if all(clause.rule in self._holding for clause in candidates):
            return decided
        matching = [clause for clause in candidates if clause.matches(item, canonical)]
        return self._deny(decided.rule, self._find_scopes(item, matching))

    def may_see(self, toolbox: str, server: str = "") -> bool:
        """Whether these callers may see something of a toolbox, or of one of its servers."""
        known = self._servers.get((toolbox, server))
        if known is None:
            known = self._servers[toolbox, server] = self._may_see(toolbox, server)
        return known

    def _holds(self, rule: int, scopes: frozenset[str]) -> bool:
        return any(needed <= scopes for needed in self._needed[rule])

    def _candidates(self, item: Item, canonical: str) -> Sequence[_Clause]:
        """The clauses that may match an item by their literal parts, in the order of the rules."""
        found: list[_Clause] = []
        for has_toolbox, has_server, has_name in self._shapes:
            toolbox, server = item.toolbox if has_toolbox else None, item.server if has_server else None
            found += self._index.get((toolbox, server, canonical if has_name else None), ())
            if has_name and item.template:
                found += self._index.get((toolbox, server, canonical_uri(item.template)), ())
        if len(found) > 1:
            found.sort(key=_position)
        return found

    def _approval(self, item: Item, canonical: str) -> Approval | None:
        """Who approves a call of an item; None if it needs no approval."""
        for clause in self._approvals:
            if clause.matches(item, canonical):
                approval = clause.verdict.approval
                return None if approval is None or approval.by == "none" else approval
        return None

    def _decide(self, item: Item, matching: Iterable[_Clause], holding: Container[int]) -> Verdict:
        if not self._rules._decides:
            return _ALLOWED_UNLESS_REFUSED if self._rules._rules else _ALLOWED
        for clause in matching:
            if clause.rule in holding:
                return clause.verdict
        return _ALLOWED_META_TOOL if item.kind == "meta-tool" else _DENIED

    def _deny(self, rule: str, scopes: Collection[str]) -> Verdict:
        return Verdict("deny", rule, tuple(sorted(scopes)), listed=bool(scopes) and self._kind == "token")

    def _find_scopes(self, item: Item, matching: Sequence[_Clause]) -> frozenset[str]:
        """All scopes that the item needs, by the rule that allows it with the fewest more; empty if none does."""
        found: list[frozenset[str]] = []
        for clause in matching:
            if clause.verdict.effect != "allow" or clause.rule in self._holding:
                continue
            for needed in self._needed[clause.rule]:
                wanted = needed | item.scopes
                scopes = self._scopes | wanted
                holding = {matched.rule for matched in matching if self._holds(matched.rule, scopes)}
                if self._decide(item, matching, holding).effect == "allow":
                    found.append(wanted)
        return min(found, key=lambda wanted: len(wanted - self._scopes), default=frozenset())

    def _may_see(self, toolbox: str, server: str) -> bool:
        if not self._rules._decides:
            return True
        for clause in self._clauses:
            if not _reaches(clause, toolbox, server):
                continue
            if clause.verdict.effect == "allow" and (clause.rule in self._holding or self._kind == "token"):
                return True
            if clause.rule in self._holding and clause.covers_servers and (server or clause.server is None):
                return False
        return False


def _reaches(clause: _Clause, toolbox: str, server: str) -> bool:
    """Whether a clause may match an item of this toolbox, or of this server of it."""
    if LOCATED_KINDS.isdisjoint(clause.kinds) or not _fits(clause.toolbox, toolbox):
        return False
    return not server or _fits(clause.server, server)


def _compile(rules: Sequence[Rule], located: bool) -> Iterator[_Clause]:
    position = 0
    effects: tuple[Effect, ...] = ("hide", "deny", "allow")
    for number, rule in enumerate(rules):
        for effect in effects:
            for what in getattr(rule, effect):
                parts = _split(what, located)
                text = f"rules[{number}]: {effect} {_describe(what)}"
                verdict = Verdict(effect, text, listed=effect == "allow", named=bool(what.kind))
                yield _Clause(position, number, verdict, *parts, _kinds(what), what)
                position += 1


def _compile_approvals(rules: Sequence[Rule], located: bool) -> Iterator[_Clause]:
    for number, rule in enumerate(rules):
        if rule.approve is None:
            continue
        for what in rule.tools:
            label = f"rules[{number}]: approve {_describe(what)}"
            verdict = Verdict("allow", label, approval=replace(rule.approve, rule=label, first_use=rule.first_use))
            yield _Clause(number, number, verdict, *_split(what, located), frozenset({"tool"}), what)


def _split(what: What, located: bool) -> tuple[_Part, _Part, _Part, _Part]:
    """The parts of a pattern; the last is that of the item in canonical form."""
    if not located or (what.kind and LOCATED_KINDS.isdisjoint(what.kind)):
        return None, None, _part(what.match), _part(canonical_uri(what.match))
    toolbox, server, item = (*what.match.split("/", 2), "*", "*")[:3]
    return _part(toolbox), _part(server), _part(item), _part(canonical_uri(item))


def _part(pattern: str) -> _Part:
    if not pattern.strip("*"):
        return None
    return re.compile(translate(pattern)) if any(mark in pattern for mark in "*?[") else pattern


def _kinds(what: What) -> frozenset[ItemKind]:
    if what.kind:
        return frozenset(what.kind)
    return frozenset(ITEM_KINDS) if what == What() else LOCATED_KINDS


def _describe(what: What) -> str:
    if what == What(match=what.match):
        return what.match
    return msgspec.json.encode({name: value for name, value in msgspec.to_builtins(what).items() if value}).decode()


def _position(clause: _Clause) -> int:
    return clause.position


def _literal(part: _Part) -> str | None:
    return part if isinstance(part, str) else None


def _fits(part: _Part, text: str) -> bool:
    if part is None or isinstance(part, str):
        return part is None or part == text
    return part.match(text) is not None
