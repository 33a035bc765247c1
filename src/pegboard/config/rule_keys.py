"""Reads rules: those of a configuration, and those of a board in Python."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pegboard.call import Json
from pegboard.config.annotated_types import object_of
from pegboard.config.mistakes import ConfigReport, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.value_types import (
    BooleanValue,
    ChoiceValue,
    ListValue,
    MapValue,
    NumberValue,
    ObjectField,
    ObjectValue,
    TextValue,
    UnionValue,
)
from pegboard.errors import DeclarationError, SetupError
from pegboard.rules.rule import ITEM_KINDS, LOCATED_KINDS, Approval, Approver, Rule, What, Who

_TEXT: Final = TextValue()
_TEXTS: Final = ListValue(_TEXT, "a string or a list of strings", single=TextValue("a string or a list of strings"))
_KIND: Final = ChoiceValue({kind: kind for kind in ITEM_KINDS})
SCALAR: Final = UnionValue((_TEXT, BooleanValue(), NumberValue("a number", None)))


def _who(principal: tuple[str, ...] = (), **conditions: Any) -> Who:
    return Who(principal=() if principal == ("*",) else principal, **conditions)


CALLER: Final = object_of(
    "a caller",
    Who,
    {
        **dict.fromkeys(("principal", "scope", "role"), _TEXTS),
        "claim": MapValue(
            ListValue(SCALAR, "a value or a list of values", single=SCALAR), "an object of claims by name"
        ),
    },
    short="principal",
    make=_who,
)
ITEM: Final = object_of(
    "an item",
    What,
    {
        **dict.fromkeys(("category", "tag"), _TEXTS),
        "kind": ListValue(_KIND, "a list of kinds", single=_KIND),
        "annotation": MapValue(SCALAR, "an object of annotations by name"),
    },
    short="match",
    make=What,
)
_ITEMS: Final = ListValue(ITEM, "a list of patterns")
_APPROVERS: Final[tuple[Approver, ...]] = ("self", "others", "none")
_APPROVE: Final = UnionValue(
    (
        ChoiceValue({by: Approval(by=by) for by in _APPROVERS}),
        ObjectValue(
            "an approver",
            {"role": ObjectField("role", _TEXTS, "another principal with one of these roles")},
            required={"role": "an approver has no 'role'"},
            make=lambda role: Approval(by="role", roles=role),
        ),
    )
)


def _rule(who: tuple[Who, ...] = (), approve: Approval | None = None, **more: Any) -> Rule:
    # Approvals are for all callers unless the rule says for which.
    return Rule(who=who or (Who(),) if approve is not None else who, approve=approve, **more)


RULE: Final = ObjectValue(
    "a rule",
    {
        "who": ObjectField("who", ListValue(CALLER, "a caller or a list of callers", single=CALLER), "whom the rule is about"),
        "allow": ObjectField("allow", _ITEMS, "what these callers may see and use"),
        "deny": ObjectField("deny", _ITEMS, "what they may not use"),
        "hide": ObjectField("hide", _ITEMS, "what does not exist for them"),
        "tools": ObjectField("tools", _ITEMS, "the tools whose calls need an approval"),
        "approve": ObjectField("approve", _APPROVE, "who approves these calls"),
        "firstUse": ObjectField("first_use", BooleanValue(), "whether only a caller's first call of each server needs an approval"),
    },
    make=_rule,
)  # fmt: skip
RULES: Final = ListValue(RULE, "a list of rules")


def read_rules(rules: Iterable[Rule | Mapping[str, Json]]) -> tuple[Rule, ...]:
    """The rules of a board, as `Rule` or in the form of a configuration; DeclarationError reports all mistakes."""
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise DeclarationError(f'rules={rules!r:.80}; use a list, such as [{{"who": "*", "allow": ["*"]}}]')
    notes = ConfigReport("rules", root="rules")
    read = [
        rule if isinstance(rule, Rule) else RULE.read(_listed(rule), (place,), notes)
        for place, rule in enumerate(rules)
    ]
    if not notes.count:
        check_rules(read, notes, ())
    try:
        notes.raise_if_any()
    except SetupError as problem:
        raise DeclarationError(str(problem)) from None
    return tuple(read)


def check_rules(rules: Sequence[Rule], notes: ConfigReport, place: KeyPath) -> None:
    """Report rules that can have no effect, or more than one."""
    for position, rule in enumerate(rules):
        here = (*place, position)
        decides = rule.allow or rule.deny or rule.hide
        if rule.approve is None and (rule.tools or rule.first_use):
            key = "tools" if rule.tools else "firstUse"
            notes.add_mistake(here, f"has {key!r} and no 'approve'", fix='add \'approve\': "self" or "others"')
        elif rule.approve is None:
            if not rule.who:
                notes.add_mistake(here, "a rule has no 'who'", fix="add 'who'")
            elif not decides:
                notes.add_mistake(here, "has no effect", fix="add 'allow', 'deny' or 'hide'")
        elif decides:
            notes.add_mistake(here, "has both 'approve' and 'allow', 'deny' or 'hide'", fix="write two rules")
        elif not rule.tools:
            notes.add_mistake(here, "has no effect", fix="add 'tools'")
        for index, what in enumerate(rule.tools):
            if what.kind not in ((), ("tool",)):
                notes.add_mistake(
                    (*here, "tools", index, "kind"), "only calls of tools can be approved", fix="remove it"
                )


def check_patterns(rules: Sequence[Rule], servers: Mapping[str, Collection[str]], notes: ConfigReport) -> None:
    """Report patterns of a gateway that do not have the parts `toolbox/server/item`, and those that match no server."""
    check_rules(rules, notes, ("rules",))
    for position, rule in enumerate(rules):
        for effect in ("allow", "deny", "hide", "tools"):
            for index, what in enumerate(getattr(rule, effect)):
                if what.kind and LOCATED_KINDS.isdisjoint(what.kind):
                    continue
                _check_pattern(what.match, servers, notes, ("rules", position, effect, index))


def check_approvers(rules: Sequence[Rule], notes: ConfigReport, *, has_auth: bool) -> None:
    """Warn where the requester and the approver of a call cannot be distinguished."""
    for position, rule in enumerate(rules):
        if not has_auth and rule.approve is not None and rule.approve.by in ("others", "role"):
            notes.warn(
                ("rules", position, "approve"),
                "without 'auth', callers over HTTP are anonymous, and the user who runs the gateway decides about all calls",
            )


def _check_pattern(pattern: str, servers: Mapping[str, Collection[str]], notes: ConfigReport, place: KeyPath) -> None:
    toolbox, slash, rest = pattern.partition("/")
    if not slash:
        if pattern != "*":
            notes.add_mistake(
                place,
                f"the pattern {pattern!r} has no '/'",
                fix=f"write {f'{pattern}/*'!r} for a toolbox, or {f'*/*/{pattern}'!r} for items of that name",
            )
        return
    server = rest.partition("/")[0]
    if _is_literal(toolbox) and toolbox not in servers:
        notes.warn(place, f"there is no toolbox {toolbox!r}; {did_you_mean(toolbox, servers)}")
    elif _is_literal(toolbox) and _is_literal(server) and server not in servers[toolbox]:
        notes.warn(place, f"the toolbox {toolbox!r} has no server {server!r}; {did_you_mean(server, servers[toolbox])}")


def _is_literal(part: str) -> bool:
    return not any(mark in part for mark in "*?[")


def _listed(value: Any) -> Any:
    """Tuples and sets as lists, as in JSON."""
    match value:
        case Mapping():
            return {key: _listed(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_listed(item) for item in value]
    return value
