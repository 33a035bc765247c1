"""Finds the handler of each method; the root Handler of every board."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from pegboard.auth.principal import Principal
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Call, Done, EncodedResult, Handler, Json, Reply
from pegboard.call_target import UNKNOWN_ITEM, CalledItem
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import AccessDenied, InsufficientScope, InvalidParams, MethodNotFound
from pegboard.execution.catalog_methods import CatalogMethods, read_cursor
from pegboard.protocol.revisions import SUPPORTED
from pegboard.rules.access_control import AccessControl, as_tool_error, raise_denied
from pegboard.rules.rule import Approval
from pegboard.rules.verdicts import VIEWS_KEPT, View
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tools.tool import Tool

_DISCOVERIES_KEPT: Final = 64

Chains: TypeAlias = dict[str, tuple[Tool, Handler, str]]
"""The tools that can be called, each with its composed Handler and the rule that allows it, by name."""


class Dispatcher:
    """A Handler for all methods of a board; the chain of each tool is composed at its first call after a change.

    A tool that its caller may not use takes the path of an unknown name. `choose_tools` returns the listed tools, if these are not the whole catalog or differ between callers.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        run: Callable[[Tool, Approval | None], Handler],
        surround: Callable[[Tool | CalledItem, Handler], Handler],
        access: AccessControl,
        instructions: str | None = None,
        reading: CatalogMethods | None = None,
        listen: Handler | None = None,
        tasks: TaskMethods | None = None,
    ) -> None:
        self._catalog = catalog
        self._run = run
        self._surround = surround
        self._access = access
        self._chains: Chains = {}
        self._chains_by_view: BoundedDict[View, Chains] = BoundedDict(VIEWS_KEPT)
        # The view of a principal is found by its identity; so are its chains, in one step.
        self._chains_by_principal: BoundedDict[int, tuple[Principal, Chains]] = BoundedDict(VIEWS_KEPT)
        self._chain_of_unknown: Handler | None = None
        self._generation = catalog.generation
        self._catalog_methods = reading
        self._tasks = tasks
        self.instructions = instructions
        self.declared: Mapping[str, Json] = {}
        self.choose_tools: Callable[[Call], Coroutine[Any, Any, EncodedResult]] | None = None
        self._tools: Mapping[str, Json] = {} if listen is None else {"listChanged": True}
        self.choose_instructions: Callable[[Call], str | None] | None = None
        self._discovered: BoundedDict[str | None, EncodedResult] = BoundedDict(_DISCOVERIES_KEPT)
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
        instructions = self.instructions if self.choose_instructions is None else self.choose_instructions(call)
        kept = self._discovered.get(instructions)
        scope = "private" if self._access.restricted else "public"
        if kept is None or kept.value["capabilities"] != capabilities or kept.value["cacheScope"] != scope:
            kept = self._discovered[instructions] = EncodedResult(_discovery(capabilities, instructions, scope))
        return Done(kept)

    async def _list_tools(self, call: Call) -> Reply:
        cursor = read_cursor(call)
        if self.choose_tools is None and self._catalog_methods is not None:
            whole = self._catalog.listing(call.transport, self._access.view(call.caller.principal))
            return Done(self._catalog_methods.tools.page(whole, cursor))
        if cursor is not None:
            # All tools are on the first page, so no cursor of ours can exist.
            raise InvalidParams("Invalid cursor: the list has one page; request it without a cursor")
        return Done(
            self._catalog.listing(call.transport) if self.choose_tools is None else await self.choose_tools(call)
        )

    def _call_tool(self, call: Call) -> Coroutine[Any, Any, Reply]:
        if self._generation != self._catalog.generation:
            self._chains.clear()
            self._chains_by_view.clear()
            self._chains_by_principal.clear()
            self._chain_of_unknown = None
            self._generation = self._catalog.generation
        chains = self._chains_of(call) if self._access.restricted else self._chains
        found = chains.get(call.name)
        if found is None:
            found = self._find_chain(call, chains)
            if found is None:
                if self._chain_of_unknown is None:
                    self._chain_of_unknown = self._surround(UNKNOWN_ITEM, self._unknown)
                return self._chain_of_unknown(call)
        call.tool, chain, call.rule = found
        return chain(call)

    def _chains_of(self, call: Call) -> Chains:
        """The chains of the tools that the caller may use."""
        principal = call.caller.principal
        known = self._chains_by_principal.get(id(principal))
        if known is None or known[0] is not principal:
            view = self._access.rules.view(principal)
            chains = self._chains_by_view.get(view)
            if chains is None:
                chains = self._chains_by_view[view] = {}
            known = self._chains_by_principal[id(principal)] = principal, chains
        return known[1]

    def _find_chain(self, call: Call, chains: Chains) -> tuple[Tool, Handler, str] | None:
        """The chain of the tool that the caller names; None for an unknown one, or one that it may not use."""
        tool, view = self._catalog.get(call.name), self._access.view(call.caller.principal)
        verdict = None if tool is None or view is None else view.of(tool)
        if tool is None or (verdict is not None and verdict.effect != "allow"):
            return None
        if verdict is not None and verdict.approval is not None:
            # The callers with these rights have a chain of their own.
            chains[call.name] = tool, self._surround(tool, self._run(tool, verdict.approval)), verdict.rule
            return chains[call.name]
        found = self._chains.get(call.name)
        if found is None:
            found = self._chains[call.name] = tool, self._surround(tool, self._run(tool, None)), ""
        if verdict is not None:
            found = chains[call.name] = found[0], found[1], verdict.rule
        return found

    async def _unknown(self, call: Call) -> Reply:
        """The innermost Handler for unknown tools, inside the board's middleware."""
        tool, view = self._catalog.get(call.name), self._access.view(call.caller.principal)
        verdict = None if tool is None or view is None else view.of(tool)
        if verdict is not None and verdict.effect == "deny":
            call.note(rule=verdict.rule)
            try:
                raise_denied(verdict, call.caller, call.name)
            except InsufficientScope:
                raise
            except AccessDenied as denied:
                raise as_tool_error(denied) from None
        raise self._catalog.unknown(call.name, view)


def _discovery(capabilities: Mapping[str, Json], instructions: str | None, scope: str) -> Mapping[str, Json]:
    discovered: dict[str, Json] = {
        "supportedVersions": list(SUPPORTED),
        "capabilities": capabilities,
        "ttlMs": 3_600_000,
        "cacheScope": scope,
    }
    if instructions:
        discovered["instructions"] = instructions
    return discovered
