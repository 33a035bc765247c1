"""What a tool asks of its calls: tickets, mirrored headers, a timeout, capabilities, transports, or a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from pegboard.asking.questions import check_capabilities
from pegboard.asking.rounds import UsedTickets, read_ticket
from pegboard.call import Call, Handler, Json, Reply
from pegboard.deadline import Deadline
from pegboard.errors import LimitReached, ToolError
from pegboard.protocol.headers import check_params
from pegboard.security.seal import Seal
from pegboard.tasks.task_run import detach
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.header_parameters import mirrored
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


def add_preconditions(tool: Tool, inner: Handler, tickets: Seal, used_tickets: UsedTickets) -> Handler:
    """Wrap the Handler of a tool in the checks that its requests need; returns it unchanged if there are none."""
    mirrors = mirrored(tool.input_schema)
    handler = _single_use(tickets, used_tickets, inner) if tool.once else inner
    return _check_mirrored(mirrors, handler) if mirrors else handler


def _single_use(tickets: Seal, used_tickets: UsedTickets, inner: Handler) -> Handler:
    """Accept each ticket once; only valid tickets are recorded, or any client could fill the memory.

    Answers count only with the ticket of their questions. Without a ticket they could be replayed, so they are ignored
    and the tool asks.
    """

    async def use(call: Call) -> Reply:
        if call.ticket is None:
            call.answers = None
        else:
            await used_tickets.mark_used(read_ticket(call, tickets).id, call.caller.principal.id)
        return await inner(call)

    return use


def _check_mirrored(mirrors: dict[str, tuple[str, ...]], inner: Handler) -> Handler:
    """Compare headers with the arguments as sent: proxies have seen the headers, and not the repaired arguments."""

    async def compare(call: Call) -> Reply:
        if call.headers is not None:
            check_params(call.headers, mirrors, call.sent)
        return await inner(call)

    return compare
