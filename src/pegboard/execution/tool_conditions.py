"""What a tool asks of its calls: a timeout, capabilities of the client, transports, or a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from pegboard.asking.questions import check_capabilities
from pegboard.call import Call, Handler, Json, Reply
from pegboard.deadline import Deadline
from pegboard.errors import LimitReached, ToolError
from pegboard.tasks.task_run import detach
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.tool import TRANSPORTS, Tool

Perform: TypeAlias = Callable[[Call, ParsedArguments], Coroutine[Any, Any, Any]]


def with_timeout(tool: Tool, inner: Handler) -> Handler:
    """The same, within the timeout of the tool."""
    seconds = tool.timeout
    if seconds is None:
        return inner

    async def run_in_time(call: Call) -> Reply:
        clock = Deadline(math.inf, seconds)
        try:
            with call.timed(clock):
                return await inner(call)
        except TimeoutError:
            if not clock.expired:
                raise
            message = f"{tool.name} took longer than {seconds:g} s and was stopped"
            raise LimitReached(message, "timeout", seconds=seconds) from None

    return run_in_time


def detached(perform: Perform) -> Perform:
    """Continue as a task just before the author's code runs, so that rejections are returned at once."""

    async def detach_and_perform(call: Call, parsed: ParsedArguments) -> Any:
        await detach(call)
        return await perform(call, parsed)

    return detach_and_perform


def requiring(capabilities: Sequence[str], inner: Handler) -> Handler:
    """Reject callers without the capabilities that the tool needs, for example `sampling` or `elicitation.url`."""
    needed: dict[str, dict[str, Json]] = {}
    for capability in capabilities:
        name, dot, part = capability.partition(".")
        needed.setdefault(name, {}).update({part: {}} if dot else {})

    async def require(call: Call) -> Reply:
        check_capabilities(call.name, needed, call.caller.capabilities)
        return await inner(call)

    return require


def check_transport(tool: Tool, inner: Handler) -> Handler:
    """Reject callers on a transport that the tool does not allow; in-process callers always pass."""
    refused = frozenset(TRANSPORTS).difference(tool.transports)
    others = " or ".join(f"/{name}" if name == "ws" else name for name in tool.transports)

    async def look(call: Call) -> Reply:
        if call.transport in refused:
            raise ToolError(f"{tool.name} cannot be called over {call.transport}; connect over {others}")
        return await inner(call)

    return look
