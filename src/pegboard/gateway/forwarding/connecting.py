"""Asks the user of a call to connect a server, and continues the call afterwards.

A client that can open links for its user is asked to, in the way of its revision. It says that the user agreed, not that
the user is done: the call waits for that for a while. A client that cannot be asked gets the link as a result for the
model and the person, and the next call works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pegboard.asking.questions import check_capabilities
from pegboard.call import Call, InputRequired, Json, NeedInput, Question
from pegboard.deadline import paused
from pegboard.errors import LoginRequired, MissingCapability, PegboardError, QuestionFailed, ToolError
from pegboard.gateway.connections.user_connections import UserConnections
from pegboard.gateway.forwarding.outcome import CALL, Destination
from pegboard.gateway.forwarding.tickets import ConnectTicket, StateTicket, Tickets
from pegboard.gateway.servers.unattributed import ASKING

KEY: Final = "connect"
"""The key of the question."""
META: Final = "dev.pegboard/connect"
WAIT_SECONDS: Final = 300.0
"""How long a call of a client that can wait is held while its user logs in."""
ROUND_SECONDS: Final = 45.0
"""The same for a client that repeats its request: less than the time that clients allow for one."""
_NEEDS: Final[Mapping[str, Mapping[str, Json]]] = {"elicitation": {"url": {}}}


class Connecting:
    """Lets the users of calls connect servers; `base` is the URL of the gateway's pages."""

    def __init__(self, connections: UserConnections, tickets: Tickets, base: Callable[[], str]) -> None:
        self._connections = connections
        self._tickets = tickets
        self._base = base

    async def require(
        self,
        destination: Destination,
        call: Call,
        needed: LoginRequired,
        before: StateTicket | None,
        answers: Mapping[str, Json] | None,
    ) -> InputRequired | None:
        """Ask the user to connect the server; None once that is done, so that the request can be sent again."""
        downstream = destination.downstream
        principal = call.caller.principal
        link = await self._connections.start_login(principal, downstream.toolbox, downstream.name, needed.challenge)
        url = self._url(link.path)
        try:
            if call.method not in ASKING:
                raise _not_connected(destination, call, url)
            check_capabilities(call.name, _NEEDS, call.caller.capabilities)
        except MissingCapability:
            raise _not_connected(destination, call, url) from None
        message = f"Connect {downstream.name} to continue: open the page, and log in there. The link is only for you."
        question = Question("elicitation/create", {"mode": "url", "message": message, "url": url})
        call._mark_asked()
        try:
            received = await call.ask({KEY: question})
        except NeedInput as need:
            ticket = ConnectTicket(link.id, before, None if answers is None else dict(answers))
            return InputRequired(need.questions, self._tickets.write(ticket, call, destination))
        except QuestionFailed:
            raise _not_connected(destination, call, url) from None
        _check_consent(destination, received.get(KEY))
        with paused(call.origin._waits):
            done = await self._connections.links.wait_complete(link.id, WAIT_SECONDS)
        if not done:
            raise _not_connected(destination, call, url)
        downstream.drop_callers(principal)
        return None

    async def wait(
        self, ticket: ConnectTicket, destination: Destination, call: Call, answers: Mapping[str, Json] | None
    ) -> None:
        """Wait until the user has connected the server, or for a while; ToolError if the user does not want to."""
        answer = (answers or {}).get(KEY)
        if answer is None:
            return
        _check_consent(destination, answer)
        with paused(call.origin._waits):
            if await self._connections.links.wait_complete(ticket.link, ROUND_SECONDS):
                destination.downstream.drop_callers(call.caller.principal)

    def _url(self, path: str) -> str:
        base = self._base()
        if not base:
            raise ToolError(
                "The user has to connect this server on a page of the gateway, and the gateway does not know its own URL: "
                "its operator has to set auth.publicUrl"
            )
        return base + path


def _check_consent(destination: Destination, answer: Json) -> None:
    action = answer.get("action") if isinstance(answer, dict) else None
    if action != "accept":
        raise ToolError(
            f"The user did not connect {destination.downstream.name!r}, so this tool cannot be used. Do not call it again "
            "unless the user asks for it",
            code="not_connected",
        )


def _not_connected(destination: Destination, call: Call, url: str) -> PegboardError:
    """The error for a client that cannot ask its user: with the link."""
    server = destination.downstream.name
    problem = f"The user has not connected {server!r} yet, so nothing was done"
    if call.method != CALL:
        return ToolError(f"{problem}: open {url} in a browser, and log in there; then try again")
    return ToolError(
        f"{problem}. A link that works once, for ten minutes, lets the user connect it",
        code="not_connected",
        steps=(
            f"Show the user this link, and ask them to open it in a browser and to log in there: {url}",
            "When the user says that this is done, call the tool again with the same arguments",
        ),
        meta={META: {"server": server, "url": url}},
    )
