"""What a request names, as middleware sees it: a tool, a prompt, a resource, or an unknown name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["tool", "prompt", "resource", "completion"]

ItemKind: TypeAlias = Literal["tool", "resource", "prompt", "meta-tool", "console"]
"""What rules distinguish: `meta-tool` and `console` belong to a gateway itself, the others to a server."""

KIND_OF_METHOD: Final[Mapping[str, Kind]] = {
    "tools/call": "tool",
    "prompts/get": "prompt",
    "resources/read": "resource",
    "completion/complete": "completion",
}
"""The methods that run the code of an author or of another server."""

KINDS: Final[frozenset[Kind]] = frozenset(KIND_OF_METHOD.values())


class CalledTool(Protocol):
    """What a call names, as middleware sees it: the attributes of `pegboard.Tool` that describe it."""

    @property
    def name(self) -> str:
        """The name that clients call it by."""

    @property
    def item(self) -> ItemKind | Literal[""]:
        """What it is, for rules; empty for an unknown name."""

    @property
    def title(self) -> str:
        """The name for people."""

    @property
    def description(self) -> str:
        """The description for the model."""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its arguments."""

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of its structured result, if it has one."""

    @property
    def annotations(self) -> Mapping[str, Any] | None:
        """Its annotations, such as readOnlyHint; `promises` has those that can be trusted."""

    @property
    def promises(self) -> Mapping[str, Any]:
        """The annotations that this server can rely on: none of a server that the operator does not trust."""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """Its `_meta`."""

    @property
    def category(self) -> str:
        """Its category, or an empty text."""

    @property
    def tags(self) -> Iterable[str]:
        """Its tags."""

    @property
    def toolbox(self) -> str:
        """The toolbox of a gateway that it belongs to, or an empty text."""

    @property
    def server(self) -> str:
        """The server of a gateway that it belongs to, or an empty text."""

    @property
    def own_name(self) -> str:
        """Its name or URI at that server, or an empty text if that is its name here."""

    @property
    def scopes(self) -> Iterable[str]:
        """The scopes that a caller needs to use it."""

    @property
    def timeout(self) -> float | None:
        """The number of seconds after which a call of it fails."""


class CalledItem(Struct, frozen=True, kw_only=True):
    """A `CalledTool` for what is not a tool: a prompt, a resource, or an unknown name, which has no other attributes.

    name: the name of the prompt, or the URI or template of the resource.
    item: whether it is a prompt or a resource.
    listed_name: the name under which a resource is listed, which says whether it belongs to a group.
    hooks: the middleware that is attached to the item itself.
    """

    name: str
    item: Literal["prompt", "resource", ""] = ""
    listed_name: str = ""
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = {}
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    promises: Mapping[str, Any] = {}
    meta: Mapping[str, Any] | None = None
    category: str = ""
    tags: Iterable[str] = ()
    toolbox: str = ""
    server: str = ""
    own_name: str = ""
    scopes: Iterable[str] = ()
    timeout: float | None = None
    hooks: tuple[Any, ...] = ()


UNKNOWN_ITEM: Final = CalledItem(name="(unknown)")
"""The item of every request whose name is unknown."""
