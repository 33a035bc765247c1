"""Finds the handler of each method; the root Handler of every board."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.call_target import UNKNOWN_ITEM, CalledItem
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import InvalidParams, MethodNotFound
from pegboard.execution.catalog_methods import CatalogMethods, read_cursor
from pegboard.protocol.revisions import SUPPORTED
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tools.tool import Tool


class Dispatcher:
    """A Handler for all methods of a board; the chain of each tool is composed at its first call after a change.

    `choose_tools` returns the listed tools, if these are not the whole catalog or differ between callers.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        run: Callable[[Tool], Handler],
        surround: Callable[[Tool | CalledItem, Handler], Handler],
        instructions: str | None = None,
        reading: CatalogMethods | None = None,
        listen: Handler | None = None,
        tasks: TaskMethods | None = None,
    ) -> None:
        self._catalog = catalog
        self._run = run
        self._surround = surround
        self._chains: dict[str, tuple[Tool, Handler]] = {}
        self._chain_of_unknown: Handler | None = None
        self._generation = catalog.generation
        self._catalog_methods = reading
        self._tasks = tasks
        self.instructions = instructions
        self.declared: Mapping[str, Json] = {}
        self.choose_tools: Callable[[Call], Coroutine[Any, Any, EncodedResult]] | None = None
        self._tools: Mapping[str, Json] = {} if listen is None else {"listChanged": True}
        self._discovered: EncodedResult | None = None
        self._methods: Mapping[str, Handler] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            **({} if reading is None else reading.methods),
            **({} if listen is None else {"subscriptions/listen": listen}),
            **({} if tasks is None else tasks.methods),
        }

    # Returns the coroutine of the handler itself, to save awaiting it in another one.

    def __call__(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Dispatch any method."""
        handler = self._methods.get(call.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {call.method[:80]!r}")
        return handler(call)

    async def _discover(self, call: Call) -> Reply:
        capabilities: dict[str, Json] = {"logging": {}, "tools": self._tools}
        if self._catalog_methods is not None:
            capabilities.update(self._catalog_methods.capabilities())
        if self._tasks is not None:
            capabilities.update(self._tasks.capabilities())
        if self.declared:
            capabilities = {**self.declared, **capabilities}
        kept = self._discovered
        if (
            kept is None
            or kept.value["capabilities"] != capabilities
            or kept.value.get("instructions") != (self.instructions or None)
        ):
            kept = self._discovered = EncodedResult(_discovery(capabilities, self.instructions))
        return Done(kept)

    async def _list_tools(self, call: Call) -> Reply:
        cursor = read_cursor(call)
        if self.choose_tools is None and self._catalog_methods is not None:
            return Done(self._catalog_methods.tools.page(self._catalog.listing(call.transport), cursor))
        if cursor is not None:
            # All tools are on the first page, so no cursor of ours can exist.
            raise InvalidParams("Invalid cursor: the list has one page; request it without a cursor")
        return Done(
            self._catalog.listing(call.transport) if self.choose_tools is None else await self.choose_tools(call)
        )

    def _call_tool(self, call: Call) -> Coroutine[Any, Any, Reply]:
        if self._generation != self._catalog.generation:
            self._chains.clear()
            self._chain_of_unknown = None
            self._generation = self._catalog.generation
        found = self._chains.get(call.name)
        if found is None:
            tool = self._catalog.get(call.name)
            if tool is None:
                if self._chain_of_unknown is None:
                    self._chain_of_unknown = self._surround(UNKNOWN_ITEM, self._unknown)
                return self._chain_of_unknown(call)
            found = self._chains[call.name] = tool, self._surround(tool, self._run(tool))
        call.tool, chain = found
        return chain(call)

    async def _unknown(self, call: Call) -> Reply:
        """The innermost Handler for unknown tools, inside the board's middleware."""
        raise self._catalog.unknown(call.name)


def _discovery(capabilities: Mapping[str, Json], instructions: str | None) -> Mapping[str, Json]:
    discovered: dict[str, Json] = {
        "supportedVersions": list(SUPPORTED),
        "capabilities": capabilities,
        "ttlMs": 3_600_000,
        "cacheScope": "public",
    }
    if instructions:
        discovered["instructions"] = instructions
    return discovered
