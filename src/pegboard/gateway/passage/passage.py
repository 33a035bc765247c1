"""The way of one request through a server and back, whichever eras its caller and the server are of.

Theory of operation. A modern server asks by its answer: the caller is asked, while its call runs if it can be, and the
request is sent again with what it says; or its call ends with the questions, and our ticket carries what the server gave
us to bring back. An older server asks while its request runs. A caller that can be asked meanwhile is; for one that
cannot the request becomes an errand, which its caller leaves and attends again (`errand`, `parking`). Tasks go to callers
that know them under ids of ours; for others they are waited for here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from pegboard.call import Call, Caller, Channel, InputRequired, Json, NeedInput, Question, Reply
from pegboard.client.link import Outbound
from pegboard.errors import (
    Busy,
    Garbled,
    InternalFailure,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    Refusal,
    ServerFault,
    ToolError,
)
from pegboard.gateway.passage.destination import Destination
from pegboard.gateway.passage.driven_tasks import call_as_task, finish_task
from pegboard.gateway.passage.errand import Errand
from pegboard.gateway.passage.handover import Asks, Handover
from pegboard.gateway.passage.messenger import DECLINED, Messenger, answer_without
from pegboard.gateway.passage.outcome import CALL, asked_in, done_with, expired, failure, links_in, wants_task
from pegboard.gateway.passage.outgoing import answers_of, params_for
from pegboard.gateway.passage.parking import Parking
from pegboard.gateway.passage.remote_tasks import Find, RemoteTasks, task_id_in
from pegboard.gateway.passage.tickets import Carried, Parked, Tickets
from pegboard.gateway.servers.lane import ASKING
from pegboard.limits import Limits
from pegboard.protocol.extensions import TASKS, has_extension
from pegboard.protocol.versions import ASKED_MEANWHILE, METHODS, knows
from pegboard.seal import Seal
from pegboard.stores.crew import Shared

ROUNDS: Final = 16
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0

_GET_TASK: Final = "tasks/get"
_ASKABLE: Final = frozenset({"elicitation", "sampling", "roots"})


class Passage:
    """Takes requests to servers, for the gateway of that name; `parking` holds those that wait for their callers."""

    def __init__(self, gateway: str, keys: Sequence[bytes], find: Find, limits: Limits | None = None) -> None:
        self.parking = Parking(limits or Limits())
        self._tickets = Tickets(keys, gateway)
        self._tasks = RemoteTasks(keys, gateway, find)
        self._handover = Handover(self.parking)
        self.owns = self._tasks.owns
        self.task = self._tasks.handle

    @property
    def seals(self) -> tuple[Seal, ...]:
        """What has to have its key in common with other processes."""
        return self._tickets.seal, self._tasks.seal

    def share(self, shared: Shared) -> None:
        """Have errands visited from other processes, and visit theirs."""
        self._handover.share(shared.crew)

    async def close(self) -> None:
        """Give up what waits for callers; the servers have to be there still."""
        await self.parking.close()

    def call_tool(
        self, destination: Destination, call: Call, arguments: Raw | Mapping[str, Json]
    ) -> Coroutine[Any, Any, Reply]:
        """Call a server's tool with arguments that fit its schema."""
        return self._take(destination, call, {"name": destination.tool, "arguments": arguments})

    def forward(self, destination: Destination, call: Call, params: Mapping[str, Any]) -> Coroutine[Any, Any, Reply]:
        """Bring any other request there; the params are in the server's own words."""
        return self._take(destination, call, params)

    async def _take(self, destination: Destination, call: Call, own: Mapping[str, Any]) -> Reply:
        params = params_for(call, own)
        try:
            try:
                return await self._walk(destination, call, params)
            except Refusal as refusal:
                links = links_in(refusal)
                if not links or call.caller.version in ASKED_MEANWHILE:
                    raise
                return await self._open_links(destination, call, params, links)
        except (Refusal, ServerFault) as problem:
            raise failure(destination, call, problem) from None
        except ToolError as failed:
            if call.method == CALL:
                raise
            # There is no model to read it.
            raise InternalFailure(failed.message) from None

    def _walk(self, destination: Destination, call: Call, params: dict[str, Any]) -> Coroutine[Any, Any, Reply]:
        ticket = None if call.ticket is None else self._tickets.read(call, destination)
        answers = None if call.answers is None else answers_of(call)
        match ticket:
            case Parked():
                return self._visit(ticket, destination, call, params, answers or {})
            case Carried():
                answers = {key: (answers or {})[key] for key in ticket.asked if key in (answers or {})}
                answers.update(dict.fromkeys(ticket.declined, DECLINED))
        if destination.downstream.asks_midway:
            return self._ask_midway(destination, call, params)
        brought: dict[str, Any] = {} if answers is None else {"inputResponses": answers}
        if ticket is not None and ticket.state is not None:
            brought["requestState"] = ticket.state
        return self._rounds(destination, call, params, brought)

    # -- modern servers ----------------------------------------------------------------------------------------------

    async def _rounds(
        self, destination: Destination, call: Call, params: Mapping[str, Any], brought: Mapping[str, Any]
    ) -> Reply:
        method, caller, channel = call.method, call.caller, Messenger(call)
        sent = {**params, **brought} if brought else params
        for turn in range(ROUNDS):
            try:
                result = await self._send(destination, call, caller, method, sent, channel)
            except MissingCapability as refusal:
                if method != CALL or knows(METHODS, _GET_TASK, caller.version) or not wants_task(refusal):
                    raise
                # It does this as a task only, and the caller is too old to say that it knows tasks.
                caller = _with_tasks(call.caller)
                result = await self._send(destination, call, caller, method, sent, channel)
            match result.get("resultType", "complete"):
                case "complete":
                    return done_with(destination, method, result)
                case "task" if has_extension(TASKS, call.caller.capabilities, call.caller.version):
                    return self._tasks.started(destination, call, result)
                case "task" if not knows(METHODS, _GET_TASK, call.caller.version):
                    return await self._drive(destination, call, task_id_in(result))
                case "input_required":
                    asks, state = asked_in(result)
                    try:
                        sent = {**params, **await self._answer_all(call, asks, turn)}
                    except NeedInput as need:
                        return self._ask(destination, call, need, asks, state)
                    if state is not None:
                        sent["requestState"] = state
                case _:
                    raise Garbled("answered with a result of a type that its caller cannot know")
        raise Garbled(f"still asks after {ROUNDS} rounds")

    async def _answer_all(self, call: Call, asks: Mapping[str, Question], turn: int) -> dict[str, Any]:
        """What a request is sent again with; a server that asks nothing wants it to come again later."""
        if asks:
            return {"inputResponses": await self._answer(call, asks)}
        if call.caller.version not in ASKED_MEANWHILE:
            raise NeedInput({})
        await asyncio.sleep(min(FIRST_PAUSE * 2**turn, LONGEST_PAUSE))
        return {}

    async def _answer(self, call: Call, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        try:
            answered, left = answer_without(asks, call)
        except MethodNotFound:
            raise Garbled("asks what the client has not said that it answers") from None
        return {**answered, **await call.ask(left)} if left else answered

    def _ask(
        self,
        destination: Destination,
        call: Call,
        need: NeedInput,
        asks: Mapping[str, Question],
        state: str | None = None,
    ) -> InputRequired:
        declined = tuple(key for key in asks if key not in need.asks)
        ticket = Carried(state, tuple(need.asks), declined)
        return InputRequired(need.asks, self._tickets.write(ticket, call, destination))

    async def _drive(self, destination: Destination, call: Call, task: str) -> Reply:
        """Wait for a task in the place of a caller that knows none."""
        send = partial(self._send, destination, call, _with_tasks(call.caller))
        seconds = destination.downstream.config.max_timeout
        result = await finish_task(send, task, partial(self._answer, call), Messenger(call), seconds)
        return done_with(destination, call.method, result)

    # -- older servers -----------------------------------------------------------------------------------------------

    async def _ask_midway(self, destination: Destination, call: Call, params: Mapping[str, Any]) -> Reply:
        caller = call.caller
        work = partial(self._work, destination, call, params)
        if call.method not in ASKING or caller.version in ASKED_MEANWHILE or _ASKABLE.isdisjoint(caller.capabilities):
            return done_with(destination, call.method, await work(Messenger(call)))
        return await self._attend(Errand(call, work), destination, call)

    async def _work(
        self, destination: Destination, call: Call, params: Mapping[str, Any], channel: Channel
    ) -> Mapping[str, Json]:
        send = partial(self._send, destination, call, call.caller)
        try:
            if destination.as_task and call.method == CALL and _takes_tasks(destination):
                return await call_as_task(send, params, channel, destination.downstream.config.max_timeout)
            return await send(call.method, params, channel)
        except (Busy, ServerFault) as problem:
            # In the words of the caller, who may wait for it at another process.
            raise failure(destination, call, problem) from None

    async def _open_links(
        self, destination: Destination, call: Call, params: dict[str, Any], links: Mapping[str, Question]
    ) -> Reply:
        """Have the caller open what its call takes first; then it is sent again as it was."""
        try:
            await self._answer(call, links)
        except NeedInput as need:
            return self._ask(destination, call, need, links)
        return await self._ask_midway(destination, call, params)

    async def _attend(self, errand: Errand, destination: Destination, call: Call) -> Reply:
        try:
            asks = await errand.attend(call)
        except BaseException:
            self.parking.leave(errand)
            raise
        if asks:
            self.parking.park(errand)
            ticket = Parked(self._handover.me, errand.id, errand.leg, tuple(asks))
            return InputRequired(asks, self._tickets.write(ticket, call, destination))
        self.parking.leave(errand)
        return done_with(destination, call.method, errand.result())

    async def _visit(
        self,
        ticket: Parked,
        destination: Destination,
        call: Call,
        params: Mapping[str, Any],
        answers: Mapping[str, Json],
    ) -> Reply:
        """Come back to an errand, wherever it is held."""
        brought = {key: answers[key] for key in ticket.asked if key in answers}
        for key, answer in brought.items():
            # Before the leg is used up, so that it can be sent again.
            if not isinstance(answer, dict):
                raise InvalidParams(f"inputResponses[{key!r}] must be an object: the result of what was asked")
        if ticket.worker == self._handover.me:
            errand = self.parking.take(ticket.errand, ticket.leg, call.caller.principal)
            errand.take(brought)
            return await self._attend(errand, destination, call)
        came = await self._handover.visit(ticket, call, brought)
        if came is None:
            if call.method == CALL and not destination.repeatable:
                raise expired(destination)
            return await self._ask_midway(destination, call, params)
        if isinstance(came, Asks):
            again = replace(ticket, leg=came.leg, asked=tuple(came.asked))
            return InputRequired(came.questions, self._tickets.write(again, call, destination))
        return done_with(destination, call.method, came.result)

    def _send(
        self,
        destination: Destination,
        call: Call,
        caller: Caller,
        method: str,
        params: Mapping[str, Any],
        channel: Channel,
    ) -> Coroutine[Any, Any, Mapping[str, Json]]:
        wants_progress = call.token is not None and method == call.method
        out = Outbound(method=method, params=params, channel=channel, wants_progress=wants_progress)
        return destination.downstream.send(out, caller)


def _with_tasks(caller: Caller) -> Caller:
    """The same caller, as if it knew tasks: whoever waits for them does."""
    extensions = caller.capabilities.get("extensions")
    declared = {**(extensions if isinstance(extensions, Mapping) else {}), TASKS: {}}
    return replace(caller, capabilities={**caller.capabilities, "extensions": declared})


def _takes_tasks(destination: Destination) -> bool:
    """Whether an older server lets its tools be called as tasks, without which no tool's own word counts."""
    found = destination.downstream.catalogue
    told: Json = {} if found is None else found.capabilities
    for name in ("tasks", "requests", "tools", "call"):
        told = told.get(name) if isinstance(told, Mapping) else None
    return isinstance(told, Mapping)
