"""Where a request is forwarded, and how its result is read."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pegboard.call import Done, Json
from pegboard.gateway.servers.downstream import Downstream


def unchanged_result(result: dict[str, Json]) -> dict[str, Json]:
    """The `map_result` of a result without names to translate."""
    return result


class Destination(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, resource or prompt of a server.

    `tool` is the server's own name for it, `tell` converts a tool's result (`Teller.pass_on`), `map_result` translates
    the URIs in it. A `repeatable` tool may be called again if the outcome of a call is unknown; one that runs `as_task`
    is called as a task of its (legacy) server, and polled.
    """

    downstream: Downstream
    tool: str = ""
    tell: Callable[[dict[str, Json]], Done] = Done
    map_result: Callable[[dict[str, Json]], dict[str, Json]] = unchanged_result
    repeatable: bool = False
    as_task: bool = False
