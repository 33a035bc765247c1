"""Where a request is forwarded, and how its result is read."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pegboard.call import Done, Json
from pegboard.gateway.servers.downstream import Downstream


def unchanged_result(result: dict[str, Json]) -> dict[str, Json]:
    """A result in which nothing has another name here."""
    return result


class Destination(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, resource or prompt of a server.

    `tool` is its server's own name for it, `tell` makes a tool's result ours (`Teller.pass_on`), `map_result` puts the
    URIs in it as they go by here. A `repeatable` tool may be called again when nobody knows what became of a call; one
    that runs `as_task` is called by its (legacy) server's rules for tasks, and waited for.
    """

    downstream: Downstream
    tool: str = ""
    tell: Callable[[dict[str, Json]], Done] = Done
    map_result: Callable[[dict[str, Json]], dict[str, Json]] = unchanged_result
    repeatable: bool = False
    as_task: bool = False
