"""Checks the ticket and the mirrored headers of a request before any hook runs."""

from __future__ import annotations

from pegboard.asking.rounds import read_ticket
from pegboard.asking.used_tickets import UsedTickets
from pegboard.call import Call, Handler, Reply
from pegboard.protocol.headers import check_params
from pegboard.security.seal import Seal
from pegboard.tools.header_parameters import mirrored
from pegboard.tools.tool import Tool


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
