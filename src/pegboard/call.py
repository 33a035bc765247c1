"""The one contract of the house: a Handler takes a Call and returns a Reply.

The dispatcher is a Handler, a middleware wraps one, a door feeds one, a client connection is one. Everything here
speaks revision 2026-07-28; older clients are translated before a Call exists and after a Reply is made.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeAlias

from msgspec import Raw, Struct, field

Json: TypeAlias = Any
RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int

EMPTY_OBJECT = Raw(b"{}")


class Caller(Struct, frozen=True, kw_only=True):
    """Who calls, by which road and in which revision; the same for all requests of one client that say the same."""

    version: str
    transport: str
    principal: str = ""
    session: str = ""
    client: Mapping[str, Json] = {}
    capabilities: Mapping[str, Json] = {}
    log_level: str | None = None


class Notice(Struct, frozen=True):
    """A notification from a running call to its caller."""

    method: str
    params: Mapping[str, Json]


class Channel(Protocol):
    """All that a running call may do to its caller."""

    async def emit(self, notice: Notice) -> None:
        """Send a notice; waits only while the caller reads too slowly."""


class Call(Struct, kw_only=True):
    """One request on its walk: what was asked, by whom, and what the walk has found out so far."""

    method: str
    caller: Caller
    channel: Channel
    id: RequestId | None = None
    name: str = ""
    arguments: Raw = EMPTY_OBJECT
    params: Raw = EMPTY_OBJECT
    token: ProgressToken | None = None


class Kept(Struct, frozen=True):
    """A result that stays the same object until what it tells has changed, so that its encodings can be kept."""

    value: Mapping[str, Json]
    written: dict[str, bytes] = field(default_factory=dict)


class Done(Struct, frozen=True):
    """The call ended with a result.

    `boxed` says that structuredContent is not an object by its schema, so revisions that want an object there
    carry it as {"result": …}.
    """

    result: Mapping[str, Json] | Kept
    boxed: bool = False


Reply: TypeAlias = Done
Handler: TypeAlias = Callable[[Call], Coroutine[Any, Any, Reply]]
Around: TypeAlias = Callable[[Call, Handler], Coroutine[Any, Any, Reply]]
