"""Rules: who may see and use which items, and which calls need an approval, as values.

A rule names callers (`who`) and items (`allow`, `deny`, `hide`), or the `tools` whose calls need an approval. `verdicts`
compiles a list of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import unquote

from msgspec import Struct

from pegboard.auth.principal import Principal, find_claim
from pegboard.call_target import CalledTool, ItemKind

Effect: TypeAlias = Literal["allow", "deny", "hide"]

ITEM_KINDS: Final[tuple[ItemKind, ...]] = get_args(ItemKind)
LOCATED_KINDS: Final[frozenset[ItemKind]] = frozenset({"tool", "resource", "prompt"})
"""The kinds that belong to a toolbox and a server; the others belong to the gateway itself."""

_UNQUOTED_TIMES: Final = 3


class Who(Struct, frozen=True, kw_only=True):
    """Callers for whom every condition holds; one without conditions holds for all callers, anonymous ones too.

    principal: one of these ids, compared exactly; in a file, * is anyone.
    scope: one of these scopes; a text with several scopes, separated by spaces, needs all of them.
    role: one of these roles.
    claim: for each claim, one of these values; a claim that is a list needs to contain one of them.
    """

    principal: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    claim: Mapping[str, tuple[object, ...]] = {}

    def holds_without_scopes(self, principal: Principal) -> bool:
        """Whether all conditions hold but those on scopes."""
        if self.principal and principal.id not in self.principal:
            return False
        if self.role and principal.roles.isdisjoint(self.role):
            return False
        return all(_has_claim(principal.claims, name, values) for name, values in self.claim.items())


class What(Struct, frozen=True, kw_only=True):
    """Items for which every condition holds.

    match: the item as `toolbox/server/item`, or as `item` where there are no toolboxes; each part with the wildcards
      `*`, `?` and `[…]`. `*` alone matches everything, `toolbox/*` everything in a toolbox.
    kind: one of these kinds; without it, tools, resources and prompts. `*` alone, as a text, covers all kinds.
    category: one of these categories.
    tag: one of these tags.
    annotation: annotations with these values, if the author or the operator vouches for them.
    """

    match: str = "*"
    kind: tuple[ItemKind, ...] = ()
    category: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    annotation: Mapping[str, object] = {}


Approver: TypeAlias = Literal["self", "others", "role", "none"]
"""Who approves a call: its caller, any other principal, or another principal with a role; `none` needs no approval."""


class Approval(Struct, frozen=True, kw_only=True):
    """Who has to approve a call before it runs.

    by: the caller itself, others, or others with one of `roles`; with `none`, a call needs no approval.
    first_use: whether only a caller's first call of each server needs it.
    rule: the rule that says so, for people.
    """

    by: Approver
    roles: tuple[str, ...] = ()
    first_use: bool = False
    rule: str = ""

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who may approve, whichever rule says so."""
        return self.by, *self.roles

    @property
    def wanted(self) -> str:
        """Who has to approve, in words."""
        match self.by:
            case "self":
                return "the caller has to approve it"
            case "role":
                return f"another person with the role {' or '.join(self.roles)} has to approve it"
        return "another person has to approve it"


class Rule(Struct, frozen=True, kw_only=True):
    """What some callers may see and use: any of `who`. Within a rule, `hide` goes before `deny`, and `deny` before
    `allow`.

    A rule with `approve` decides nothing about access: it says who approves calls of its `tools`, or with `first_use` a
    caller's first call of each server.
    """

    who: tuple[Who, ...]
    allow: tuple[What, ...] = ()
    deny: tuple[What, ...] = ()
    hide: tuple[What, ...] = ()
    tools: tuple[What, ...] = ()
    approve: Approval | None = None
    first_use: bool = False


class Item(Struct, frozen=True, kw_only=True, eq=False):
    """What a verdict is about.

    name: the name of the tool or prompt, or the URI of the resource, at its own server.
    template: the template that produced the resource, or an empty text.
    annotations: those that this server can rely on, never what another server claims of itself.
    scopes: the scopes that the item itself requires.
    """

    kind: ItemKind
    name: str
    toolbox: str = ""
    server: str = ""
    template: str = ""
    category: str = ""
    tags: frozenset[str] = frozenset()
    annotations: Mapping[str, object] = {}
    scopes: frozenset[str] = frozenset()


def item_of(called: CalledTool, uri: str = "", *, from_template: bool = False) -> Item:
    """The item of a tool, a prompt, a resource or a template, or of a `uri` that is not listed itself."""
    name = called.own_name or called.name
    return Item(
        kind=called.item or "tool",
        name=uri or name,
        toolbox=called.toolbox,
        server=called.server,
        template=name if from_template else "",
        category=called.category,
        tags=frozenset(called.tags),
        annotations=called.promises,
        scopes=frozenset(called.scopes),
    )


def annotation(item: Item, name: str) -> object:
    """A trusted annotation; an absent hint has the value that the protocol says to assume."""
    given = item.annotations
    if name in given:
        return given[name]
    read_only = given.get("readOnlyHint") is True
    # "destructiveHint … meaningful only when `readOnlyHint == false`. Default: true", and so on (ToolAnnotations).
    return {
        "readOnlyHint": False,
        "destructiveHint": not read_only,
        "idempotentHint": read_only,
        "openWorldHint": True,
    }.get(name)


def canonical_uri(uri: str) -> str:
    """A URI without percent-encoding, dot segments and upper case in its scheme and host, for comparison only."""
    if ":" not in uri:
        return uri
    for _ in range(_UNQUOTED_TIMES):
        decoded = unquote(uri)
        if decoded == uri:
            break
        uri = decoded
    scheme, colon, rest = uri.partition(":")
    rest = rest.replace("\\", "/")
    if not rest.startswith("//"):
        return f"{scheme.lower()}{colon}{_without_dots(rest)}"
    host, slash, path = rest[2:].partition("/")
    return f"{scheme.lower()}://{host.lower()}{_without_dots(slash + path)}"


def _without_dots(path: str) -> str:
    if "." not in path:
        return path
    kept: list[str] = []
    parts = path.split("/")
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part not in (".", ".."):
            kept.append(part)
            continue
        if part == ".." and len(kept) > 1:
            kept.pop()
        if last:
            kept.append("")
    return "/".join(kept)


def _has_claim(claims: Mapping[str, object], name: str, values: Iterable[object]) -> bool:
    actual = find_claim(claims, name)
    given = actual if isinstance(actual, list | tuple) else (actual,)
    return any(same_json(item, value) for item in given for value in values)


def same_json(one: object, other: object) -> bool:
    """Whether two JSON values are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
