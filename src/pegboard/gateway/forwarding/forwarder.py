"""Forwards a request to a server, in any combination of the revisions of caller and server.

Theory of operation. A modern server asks in its response: the caller is asked during its call if possible, and the
request is repeated with the answers; otherwise the call ends with the questions, and our ticket carries the server's
`requestState`. A legacy server asks while its request runs. A legacy caller is asked meanwhile; for a modern caller the
request becomes a parked call, which the caller leaves and returns to (`parked_call`, `parking_lot`). Callers that
support tasks get them under ids of ours; for others the gateway waits for the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pegboard.accounts.accounts import Accounts
from pegboard.backoff import backoff
from pegboard.call import Call, Caller, Channel, ClientSpans, InputRequired, Json, NeedInput, Question, Reply
from pegboard.client.links.server_messages import input_requests_in
from pegboard.client.polled_tasks import call_as_task, finish_task, task_id_in, wants_task
from pegboard.errors import (
    Busy,
    InternalFailure,
    InvalidParams,
    LoginRequired,
    MalformedMessage,
    MethodNotFound,
    MissingCapability,
    Refusal,
    ServerFault,
    ToolError,
)
from pegboard.gateway.connections.user_connections import UserConnections
from pegboard.gateway.forwarding.caller_channel import DECLINED, CallerChannel, answer_unsupported
from pegboard.gateway.forwarding.connecting import Connecting
from pegboard.gateway.forwarding.handover import Handover, LegQuestions
from pegboard.gateway.forwarding.outcome import (
    CALL,
    Destination,
    expired_error,
    failure_of,
    links_in,
    to_reply,
    to_tool_reply,
)
from pegboard.gateway.forwarding.outgoing_params import answers_of, params_for
from pegboard.gateway.forwarding.parked_call import ParkedCall
from pegboard.gateway.forwarding.parking_lot import ParkingLot
from pegboard.gateway.forwarding.remote_tasks import Find, RemoteTasks
from pegboard.gateway.forwarding.tickets import ConnectTicket, ParkedTicket, StateTicket, Tickets
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.unattributed import ASKING
from pegboard.limits import Limits
from pegboard.protocol.revisions import REVISIONS, TASKS, has_extension
from pegboard.security.seal import Seal
from pegboard.stores.cluster import SharedStore

ROUNDS: Final = 16
LOGINS: Final = 2
"""How often the user of one call is asked to log in."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0

_GET_TASK: Final = "tasks/get"
_ASKABLE: Final = frozenset({"elicitation", "sampling", "roots"})


class Forwarder:
    """Forwards requests for the gateway of that name; `parking_lot` holds those that wait for their callers."""

    def __init__(
        self, gateway: str, keys: Sequence[bytes], find: Find, limits: Limits, accounts: Accounts | None = None
    ) -> None:
        self._limits = limits
        self.parking_lot = ParkingLot(limits, accounts)
        self._tickets = Tickets(keys, gateway, limits)
        self._tasks = RemoteTasks(keys, gateway, find)
        self._handover = Handover(self.parking_lot)
        self.connecting: Connecting | None = None
        self.owns = self._tasks.owns
        self.task = self._tasks.handle

    @property
    def seals(self) -> tuple[Seal, ...]:
        """The seals whose keys must be shared with other processes."""
        return self._tickets.seal, self._tasks.seal

    def connect_users(self, connections: UserConnections, base: Callable[[], str]) -> None:
        """Let users connect servers; `base` is the URL of the gateway's pages."""
        self.connecting = Connecting(connections, self._tickets, base)

    def share(self, shared: SharedStore) -> None:
        """Resume parked calls across the processes of a cluster."""
        self._handover.share(shared.cluster)

    async def close(self) -> None:
        """Abandon parked calls; the servers must still be connected."""
        await self.parking_lot.close()

    async def forward(self, destination: Destination, call: Call, own: dict[str, Any]) -> Reply:
        """Forward a request; `own` are the params in the server's own names, with arguments that fit its schema."""
        params, downstream, method = params_for(call, own), destination.downstream, call.method
        ticket: ParkedTicket | StateTicket | None = None
        answers: Mapping[str, Json] | None = None
        try:
            if call.ticket is not None or call.answers is not None:
                ticket, answers = await self._read_brought(destination, call)
            try:
                if ticket is not None or answers is not None or _may_park(destination, call):
                    return await self._forward_once(destination, call, params, ticket, answers)
                # Most requests: one to the server, which responds with the result.
                try:
                    result = await self._send(destination, call, call.caller, method, params, CallerChannel(call))
                except MissingCapability as refusal:
                    if downstream.asks_midway or not _needs_task(call, refusal):
                        raise
                    return await self._rounds(destination, call, params, {}, _with_tasks(call.caller))
                if result.get("resultType", "complete") != "complete" and not downstream.asks_midway:
                    return await self._rounds(destination, call, params, {}, call.caller, result)
                return to_tool_reply(destination, result) if method == CALL else to_reply(destination, method, result)
            except LoginRequired as needed:
                return await self._connect_first(destination, call, params, needed, ticket, answers)
            except Refusal as refusal:
                links = links_in(refusal)
                if not links or REVISIONS[call.caller.version].asks_midway:
                    raise
                return await self._open_links(destination, call, params, links)
        except (Refusal, ServerFault) as problem:
            raise failure_of(destination, call, problem) from None
        except ToolError as failed:
            if method == CALL:
                raise
            # The error is not for a model.
            raise InternalFailure(failed.message) from None

    async def _read_brought(
        self, destination: Destination, call: Call
    ) -> tuple[ParkedTicket | StateTicket | None, Mapping[str, Json] | None]:
        """The ticket and the answers of a call that continues an earlier one."""
        ticket = None if call.ticket is None else self._tickets.read(call, destination)
        answers = None if call.answers is None else answers_of(call)
        if ticket is None or not isinstance(ticket, ConnectTicket):
            return ticket, answers
        if self.connecting is not None:
            await self.connecting.wait(ticket, destination, call, answers)
        # What the call had brought before its user had to connect the server.
        return ticket.before, ticket.answers

    def _forward_once(
        self,
        destination: Destination,
        call: Call,
        params: dict[str, Any],
        ticket: ParkedTicket | StateTicket | None,
        answers: Mapping[str, Json] | None,
    ) -> Coroutine[Any, Any, Reply]:
        if ticket is not None and isinstance(ticket, ParkedTicket):
            return self._resume_elsewhere(ticket, destination, call, params, answers or {})
        if ticket is not None:
            answers = {key: (answers or {})[key] for key in ticket.asked if key in (answers or {})}
            answers.update(dict.fromkeys(ticket.declined, DECLINED))
        if destination.downstream.asks_midway:
            return self._forward_to_legacy(destination, call, params)
        brought: dict[str, Any] = {} if answers is None else {"inputResponses": answers}
        if ticket is not None and ticket.state is not None:
            brought["requestState"] = ticket.state
        return self._rounds(destination, call, params, brought, call.caller)

    # -- servers that each user connects -------------------------------------------------------------------------------

    async def _connect_first(
        self,
        destination: Destination,
        call: Call,
        params: dict[str, Any],
        needed: LoginRequired,
        ticket: ParkedTicket | StateTicket | None,
        answers: Mapping[str, Json] | None,
    ) -> Reply:
        """Let the user connect the server; then send the request, unless the client has to repeat its own."""
        before = ticket if isinstance(ticket, StateTicket) else None
        if self.connecting is None or not destination.downstream.config.of_each_user:
            raise needed
        for _ in range(LOGINS):
            reply = await self.connecting.require(destination, call, needed, before, answers)
            if reply is not None:
                return reply
            try:
                return await self._forward_once(destination, call, params, before, answers)
            except LoginRequired as again:
                # A call may need more scopes than the first login asked for.
                needed = again
        raise needed

    # -- modern servers ----------------------------------------------------------------------------------------------

    async def _rounds(
        self,
        destination: Destination,
        call: Call,
        params: Mapping[str, Any],
        brought: Mapping[str, Any],
        caller: Caller,
        result: Mapping[str, Json] | None = None,
    ) -> Reply:
        """Send a request on behalf of `caller`, and again with the answers to the server's questions.

        `result` is what the server has responded to the first one.
        """
        method, channel = call.method, CallerChannel(call)
        sent = {**params, **brought}
        for turn in range(ROUNDS):
            if result is None:
                try:
                    result = await self._send(destination, call, caller, method, sent, channel)
                except MissingCapability as refusal:
                    if not _needs_task(call, refusal):
                        raise
                    caller = _with_tasks(call.caller)
                    result = await self._send(destination, call, caller, method, sent, channel)
            match result.get("resultType", "complete"):
                case "complete":
                    return to_reply(destination, method, result)
                case "task" if has_extension(TASKS, call.caller.capabilities, call.caller.version):
                    return self._tasks.started(destination, call, result)
                case "task" if _GET_TASK not in REVISIONS[call.caller.version].methods:
                    return await self._poll_task(destination, call, task_id_in(result))
                case "input_required":
                    questions, state = input_requests_in(result)
                    result = None
                    try:
                        sent = {**params, **await self._answer_all(call, questions, turn)}
                    except NeedInput as need:
                        return self._ask(destination, call, need, questions, state)
                    if state is not None:
                        sent["requestState"] = state
                case _:
                    raise MalformedMessage("returned a result of an unknown type")
        raise MalformedMessage(f"still requests input after {ROUNDS} rounds")

    async def _answer_all(self, call: Call, questions: Mapping[str, Question], turn: int) -> dict[str, Any]:
        """The members to add when the request is sent again; a server without questions wants a later attempt."""
        if questions:
            return {"inputResponses": await self._answer(call, questions)}
        if not REVISIONS[call.caller.version].asks_midway:
            raise NeedInput({})
        await asyncio.sleep(backoff(turn + 1, FIRST_PAUSE, LONGEST_PAUSE))
        return {}

    async def _answer(self, call: Call, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        try:
            answered, left = answer_unsupported(questions, call)
        except MethodNotFound:
            raise MalformedMessage("requested input the client did not declare") from None
        return {**answered, **await call.ask(left)} if left else answered

    def _ask(
        self,
        destination: Destination,
        call: Call,
        need: NeedInput,
        questions: Mapping[str, Question],
        state: str | None = None,
    ) -> InputRequired:
        declined = tuple(key for key in questions if key not in need.questions)
        ticket = StateTicket(state, tuple(need.questions), declined)
        return InputRequired(need.questions, self._tickets.write(ticket, call, destination))

    async def _poll_task(self, destination: Destination, call: Call, task: str) -> Reply:
        """Wait for a task on behalf of a caller that does not support tasks."""
        send = partial(self._send, destination, call, _with_tasks(call.caller))
        seconds = destination.downstream.config.max_timeout
        result = await finish_task(send, task, partial(self._answer, call), CallerChannel(call), seconds)
        return to_reply(destination, call.method, result)

    # -- legacy servers ----------------------------------------------------------------------------------------------

    async def _forward_to_legacy(self, destination: Destination, call: Call, params: Mapping[str, Any]) -> Reply:
        caller = call.caller
        asks_midway = REVISIONS[caller.version].asks_midway
        if asks_midway or call.method not in ASKING or _ASKABLE.isdisjoint(caller.capabilities):
            result = await self._work(destination, call, params, CallerChannel(call))
            return to_reply(destination, call.method, result)
        work = partial(self._work, destination, call, params)
        return await self._wait_with_caller(ParkedCall(call, work, self._limits.questions), destination, call)

    async def _work(
        self, destination: Destination, call: Call, params: Mapping[str, Any], channel: Channel
    ) -> Mapping[str, Json]:
        try:
            if destination.as_task and call.method == CALL and _takes_tasks(destination):
                send = partial(self._send, destination, call, call.caller)
                return await call_as_task(send, params, channel, destination.downstream.config.max_timeout)
            return await self._send(destination, call, call.caller, call.method, params, channel)
        except LoginRequired:
            raise
        except (Busy, ServerFault) as problem:
            # Converted for the caller, which may wait at another process.
            raise failure_of(destination, call, problem) from None

    async def _open_links(
        self, destination: Destination, call: Call, params: dict[str, Any], links: Mapping[str, Question]
    ) -> Reply:
        """Let the caller open the links that its call requires; then send the request again unchanged."""
        try:
            await self._answer(call, links)
        except NeedInput as need:
            return self._ask(destination, call, need, links)
        return await self._forward_to_legacy(destination, call, params)

    async def _wait_with_caller(self, parked_call: ParkedCall, destination: Destination, call: Call) -> Reply:
        questions = await self.parking_lot.wait_with(parked_call, call)
        if questions:
            ticket = ParkedTicket(self._handover.me, parked_call.id, parked_call.leg, tuple(questions))
            return InputRequired(questions, self._tickets.write(ticket, call, destination))
        return to_reply(destination, call.method, parked_call.result())

    async def _resume_elsewhere(
        self,
        ticket: ParkedTicket,
        destination: Destination,
        call: Call,
        params: Mapping[str, Any],
        answers: Mapping[str, Json],
    ) -> Reply:
        """Resume a parked call, in whichever process it is held."""
        brought = {key: answers[key] for key in ticket.asked if key in answers}
        for key, answer in brought.items():
            # Before the ticket is used up, so that the caller can send it again.
            if not isinstance(answer, dict):
                raise InvalidParams(f"inputResponses[{key!r}] must be an object: the result for this question")
        if ticket.worker == self._handover.me:
            parked_call = self.parking_lot.unpark(ticket.parked_call, ticket.leg, call.caller.principal.id)
            parked_call.receive_answers(brought)
            return await self._wait_with_caller(parked_call, destination, call)
        came = await self._handover.send_leg(ticket, call, brought)
        if came is None:
            if call.method == CALL and not destination.repeatable:
                raise expired_error(destination)
            return await self._forward_to_legacy(destination, call, params)
        if isinstance(came, LegQuestions):
            again = replace(ticket, leg=came.leg, asked=tuple(came.asked))
            return InputRequired(came.questions, self._tickets.write(again, call, destination))
        return to_reply(destination, call.method, came.result)

    def _send(
        self,
        destination: Destination,
        call: Call,
        caller: Caller,
        method: str,
        params: Mapping[str, Any],
        channel: Channel,
    ) -> Coroutine[Any, Any, Mapping[str, Json]]:
        server, spans = destination.downstream, call.spans
        if server.credential:
            call.note(credential=server.credential)
        send = server.send if spans is None else partial(_send_traced, server, spans)
        return send(
            method,
            params,
            channel,
            caller,
            call=call if call._origin is None else call.origin,
            wants_progress=call.token is not None and method == call.method,
        )


async def _send_traced(
    server: Downstream,
    spans: ClientSpans,
    method: str,
    params: Mapping[str, Any],
    channel: Channel,
    caller: Caller,
    *,
    call: Call,
    wants_progress: bool,
) -> Mapping[str, Json]:
    """Send a request with a span of its own."""
    span = spans.begin(method, str(params.get("name", "")), f"{server.toolbox}/{server.name}")
    traced = {**params, "_meta": {**params.get("_meta", {}), **span.carried}}
    result, error = None, None
    try:
        result = await server.send(method, traced, channel, caller, call=call, wants_progress=wants_progress)
        return result
    except Exception as problem:
        error = problem
        raise
    finally:
        span.end(result, error)


def _may_park(destination: Destination, call: Call) -> bool:
    """Whether a request to a legacy server may take more than a response: its caller may be asked, or it is a task."""
    caller = call.caller
    may_ask = not _ASKABLE.isdisjoint(caller.capabilities) and not REVISIONS[caller.version].asks_midway
    return (may_ask or destination.as_task) and destination.downstream.asks_midway


def _needs_task(call: Call, refusal: MissingCapability) -> bool:
    """Whether the server runs this tool only as a task, and the caller's revision does not have tasks."""
    return call.method == CALL and _GET_TASK not in REVISIONS[call.caller.version].methods and wants_task(refusal)


def _with_tasks(caller: Caller) -> Caller:
    """The caller with the tasks extension added: the gateway polls for it."""
    extensions = caller.capabilities.get("extensions")
    declared = {**(extensions if isinstance(extensions, Mapping) else {}), TASKS: {}}
    return replace(caller, capabilities={**caller.capabilities, "extensions": declared})


def _takes_tasks(destination: Destination) -> bool:
    """Whether a legacy server supports tool calls as tasks; otherwise a tool's own declaration does not count."""
    found = destination.downstream.catalog
    capabilities: Json = {} if found is None else found.capabilities
    for name in ("tasks", "requests", "tools", "call"):
        capabilities = capabilities.get(name) if isinstance(capabilities, Mapping) else None
    return isinstance(capabilities, Mapping)
