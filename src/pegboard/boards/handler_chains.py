"""Composes the Handler of each tool, prompt and resource of a board: what runs it, and everything around that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from pegboard.approvals.approval_store import Approvals
from pegboard.auth.principal import Principal
from pegboard.boards.mounts import Mount
from pegboard.call import Call, Handler, Reply
from pegboard.call_target import UNKNOWN_ITEM, CalledItem, Kind
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.execution.debug_mode import DebugMode
from pegboard.execution.run import Runner, answer_unknown, catch_errors, refuse_errors
from pegboard.hooks.attached_middleware import AttachedMiddleware
from pegboard.rules.access_control import AccessControl
from pegboard.rules.rule import Approval
from pegboard.rules.verdicts import Verdict
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tools.tool import Tool


class HandlerChains:
    """The chains of one board; they are composed at the first call after a change.

    preconditions: adds the checks that come before everything else to the chain of a tool.
    """

    def __init__(
        self,
        tools: ToolCatalog,
        attached: AttachedMiddleware,
        mounts: Iterable[Mount],
        runner: Runner,
        access: AccessControl,
        approvals: Approvals,
        tasks: TaskMethods,
        debug_mode: DebugMode,
        preconditions: Callable[[Tool, Handler], Handler],
    ) -> None:
        self._tools = tools
        self._attached = attached
        self._mounts = mounts
        self._runner = runner
        self._access = access
        self.approvals = approvals
        self._tasks = tasks
        self._debug_mode = debug_mode
        self._preconditions = preconditions

    def of_tool(self, tool: Tool, approval: Approval | None) -> Handler:
        """The Handler inside the board's middleware: that of the tool, inside the middleware of boards it is mounted from."""
        home, own = _home(tool, self)

        def find_verdict(principal: Principal) -> Verdict | None:
            view = self._access.view(principal)
            return None if view is None else view.of(tool)

        runner = home._runner
        gate = None if approval is None else runner.gate(tool, approval, self.approvals, find_verdict)
        handler = (
            runner.handler(own, gate)
            if own.original is None
            else runner.transformed(own, home.of_tool(own.original, None), gate)
        )
        layers = [(self, tool), *((board.chains, its_tool) for board, its_tool in tool.mounted)]
        for (outer, shown), (chains, its_tool) in reversed([*pairwise(layers)]):
            handler = _relocating(outer._mounts, shown, chains._attached.wrap(its_tool, handler))
        return handler

    def around_tool(self, tool: Tool | CalledItem, inner: Handler) -> Handler:
        """The whole chain of a tool, or of a name that is unknown."""
        chain, report = self._attached.wrap_inside(tool, inner)
        if isinstance(tool, CalledItem):
            return catch_errors(answer_unknown(chain, inner), report, self._debug_mode)
        chain = catch_errors(chain, report, self._debug_mode)
        # The tickets of a tool are sealed by the board that runs it.
        return _home(tool, self)[0]._preconditions(tool, self._tasks.handler(tool, chain))

    def around_item(self, kind: Kind, item: CalledItem, inner: Handler) -> Handler:
        """The whole chain of a prompt, a resource or a completion, or of a name that is unknown."""
        if kind == "resource" and item is UNKNOWN_ITEM:
            chain = self._attached.wrap_unlisted_resource(item, inner, self._tools)
        else:
            chain = self._attached.wrap(item, inner, kind)
        return refuse_errors(answer_unknown(chain, inner) if item is UNKNOWN_ITEM else chain)


def _home(tool: Tool, here: HandlerChains) -> tuple[HandlerChains, Tool]:
    """The chains of the board that runs a tool, and the tool as that board has it."""
    board: Any
    if not tool.mounted:
        return here, tool
    board, own = tool.mounted[-1]
    return board.chains, own


def _relocating(mounts: Iterable[Mount], tool: Tool, inner: Handler) -> Handler:
    """The results of a mounted tool with the URIs that callers know; unchanged for one without a prefix."""
    mount = next((mount for mount in mounts if mount.shows(tool)), None)
    if mount is None or not mount.prefix or not mount.inner.resources.offered:
        return inner

    async def relocate(call: Call) -> Reply:
        return mount.relocated(await inner(call))

    return relocate
