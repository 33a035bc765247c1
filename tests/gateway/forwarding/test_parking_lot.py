"""Calls of modern callers that older servers ask something in: left, come back to, and given up."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Channel, Done, InputRequired, Json, Notification, Question, Reply
from pegboard.errors import InvalidParams, LimitReached, Refusal, ToolError
from pegboard.gateway.forwarding.parked_call import GRACE_SECONDS, ParkedCall
from pegboard.gateway.forwarding.parking_lot import ParkingLot
from pegboard.limits import Limits
from tests.depth import examples
from tests.gateway.asking_server import Asker
from tests.gateway.minimal_gateway import ASKABLE, LEGACY, MODERN, Crossing, crossing
from tests.waiting import until


def accept(name: str) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def asked(reply: Reply) -> tuple[list[str], str]:
    """The keys of what a leg asks, and the ticket to the next."""
    assert isinstance(reply, InputRequired), reply
    assert reply.ticket is not None
    return list(reply.questions), reply.ticket


def text(reply: Reply) -> str:
    assert isinstance(reply, Done), reply
    assert isinstance(reply.result, Mapping)
    said: str = reply.result["content"][0]["text"]
    return said


async def resume(
    gateway: Crossing, tool: str, reply: Reply, *names: str, arguments: Mapping[str, Any] | None = None, **more: Any
) -> Reply:
    """The next leg, with an answer to each question of the last."""
    keys, ticket = asked(reply)
    answers = {key: accept(name) for key, name in zip(keys, names, strict=True)}
    return await gateway.call(tool, arguments, answers=answers, ticket=ticket, **more)


class Heard:
    """A caller that hears notices, and can be asked only by an answer."""

    def __init__(self) -> None:
        self.notices: list[Notification] = []

    async def emit(self, notice: Notification) -> None:
        self.notices.append(notice)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        return await NULL_CHANNEL.ask(asks)

    async def close_stream(self, retry_ms: int) -> None: ...


# -- legs --------------------------------------------------------------------------------------------------------------


async def test_the_request_goes_on_where_it_was_and_its_tool_runs_once() -> None:
    board = Asker()
    async with crossing(board, LEGACY) as gateway:
        first = await gateway.call("ask")
        assert (len(gateway.forwarder.parking_lot), board.begun) == (1, 1)
        assert [question.params["message"] for question in first.questions.values()] == ["Who are you?"]  # type: ignore[union-attr]
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"
        assert (len(gateway.forwarder.parking_lot), board.begun) == (0, 1)


async def test_what_is_asked_at_once_is_asked_in_one_leg() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        first = await gateway.call("two_asks")
        assert len(asked(first)[0]) == 2
        assert text(await resume(gateway, "two_asks", first, "Ann", "Bob")) == "Ann and Bob"


async def test_what_was_not_answered_is_asked_again() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        keys, ticket = asked(await gateway.call("two_asks"))
        second = await gateway.call("two_asks", answers={keys[1]: accept("Bob"), "other": 1}, ticket=ticket)
        assert asked(second)[0] == keys[:1]
        assert text(await resume(gateway, "two_asks", second, "Ann")) == "Ann and Bob"


async def test_a_question_after_a_question_has_a_leg_and_a_ticket_of_its_own() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        first = await gateway.call("ask_twice")
        second = await resume(gateway, "ask_twice", first, "Ann")
        assert asked(first)[0] != asked(second)[0]
        assert text(await resume(gateway, "ask_twice", second, "Bob")) == "Ann, then Bob"


async def test_progress_goes_to_the_token_of_each_leg() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        one, two = Heard(), Heard()
        first = await gateway.call("ask_and_tell", token="one", channel=one)
        assert text(await resume(gateway, "ask_and_tell", first, "Ann", token="two", channel=two)) == "Ann"
    told = [(notice.params["progressToken"], notice.params["progress"]) for notice in one.notices + two.notices]
    assert told == [("one", 1), ("two", 2)]


async def test_the_latest_progress_reported_while_a_call_is_parked_is_sent_on_the_next_leg() -> None:
    board = Asker()
    async with crossing(board, LEGACY) as gateway:
        one, two = Heard(), Heard()
        first = await gateway.call("ask_while_telling", token="one", channel=one)
        board.go_on.set()
        await board.waiting.wait()
        # What was told before this answer has been read by then.
        assert text(await gateway.call("add_up", {"a": 1, "b": 1})) == "2"
        assert one.notices == []
        assert text(await resume(gateway, "ask_while_telling", first, "Ann", token="two", channel=two)) == "Ann"
    told = [(notice.params["progressToken"], notice.params["progress"]) for notice in two.notices]
    assert told == [("two", 3)]


@pytest.mark.process
async def test_the_death_of_a_server_with_a_parked_call_is_reported_when_the_call_resumes() -> None:
    words = [
        sys.executable,
        "-m",
        "pegboard",
        "run",
        str(Path(__file__).parent.with_name("killable_board.py")),
        "--stdio",
    ]
    async with crossing(words, LEGACY) as gateway:
        first = await gateway.call("ask_and_die")
        assert isinstance(first, InputRequired)
        (question,) = first.questions.values()
        os.kill(int(question.params["message"]), signal.SIGKILL)
        died = text(await resume(gateway, "ask_and_die", first, "Ann"))
        assert died.startswith("[dev/there/ask_and_die] Error: The server 'there' was lost")


async def test_many_calls_at_once_get_their_own_answers() -> None:
    async def whole(gateway: Crossing, number: int) -> str:
        mine: dict[str, Any] = {"principal": f"p{number % 3}"}
        first = await gateway.call("ask_twice", **mine)
        second = await resume(gateway, "ask_twice", first, f"a{number}", **mine)
        return text(await resume(gateway, "ask_twice", second, f"b{number}", **mine))

    async with crossing(Asker(), LEGACY) as gateway:
        got = await asyncio.gather(*(whole(gateway, number) for number in range(60)))
    assert got == [f"a{number}, then b{number}" for number in range(60)]


async def test_a_caller_that_leaves_while_it_waits_ends_the_request() -> None:
    board = Asker()
    async with crossing(board, LEGACY) as gateway:
        leg = asyncio.create_task(gateway.call("wait"))
        await board.waiting.wait()
        leg.cancel()
        await until(lambda: board.stopped == ["wait"] and gateway.downstream.in_flight == 0)
        assert leg.cancelled() or (await asyncio.wait({leg}))


# -- tickets -----------------------------------------------------------------------------------------------------------


async def test_a_ticket_is_good_for_one_leg() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        first = await gateway.call("ask_twice")
        second = await resume(gateway, "ask_twice", first, "Ann")
        with pytest.raises(InvalidParams, match="used before"):
            await resume(gateway, "ask_twice", first, "Eve")
        assert text(await resume(gateway, "ask_twice", second, "Bob")) == "Ann, then Bob"
        with pytest.raises(InvalidParams, match="used before"):
            await resume(gateway, "ask_twice", second, "Eve")


@pytest.mark.parametrize("server", [LEGACY, MODERN])
async def test_a_ticket_is_its_principals_alone(server: str) -> None:
    async with crossing(Asker(), server) as gateway:
        first = await gateway.call("ask")
        with pytest.raises(InvalidParams, match="another caller"):
            await resume(gateway, "ask", first, "Eve", principal="eve")
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"


@pytest.mark.parametrize("server", [LEGACY, MODERN])
async def test_a_ticket_is_for_the_same_request_alone(server: str) -> None:
    async with crossing(Asker(), server) as gateway:
        first = await gateway.call("ask")
        keys, ticket = asked(first)
        with pytest.raises(InvalidParams, match="another request"):
            await gateway.call("ask", {"about": "they"}, answers={keys[0]: accept("Eve")}, ticket=ticket)
        with pytest.raises(InvalidParams, match="another request"):
            await gateway.call("ask_twice", answers={keys[0]: accept("Eve")}, ticket=ticket)
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"


async def test_what_a_modern_server_has_carried_is_never_shown_to_the_caller() -> None:
    async with crossing(Asker(), MODERN) as gateway:
        first = await gateway.call("ask")
        with pytest.raises(InvalidParams):
            await gateway.board.handler(
                Call(
                    method="tools/call", caller=_caller(), channel=NULL_CHANNEL, name="ask", ticket=asked(first)[1][:-2]
                )
            )
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"


async def test_a_ticket_of_another_process_names_the_setting_that_is_missing() -> None:
    async with crossing(Asker(), LEGACY) as gateway, crossing(Asker(), LEGACY) as other:
        first = await gateway.call("ask")
        with pytest.raises(InvalidParams, match="--store"):
            await resume(other, "ask", first, "Ann")
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"


async def test_an_answer_that_is_none_does_not_use_the_leg_up() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        first = await gateway.call("ask")
        keys, ticket = asked(first)
        for wrong in ({keys[0]: "Ann"}, [1]):
            with pytest.raises(InvalidParams, match="must be an object"):
                await gateway.call("ask", answers=wrong, ticket=ticket)  # type: ignore[arg-type]  # as a client may
        assert text(await resume(gateway, "ask", first, "Ann")) == "Hello Ann"


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [{"parked": 2}, {"parked_per_caller": 2}])
async def test_at_the_cap_the_call_that_has_waited_longest_is_given_up(bounds: dict[str, Any]) -> None:
    board = Asker()
    async with crossing(board, LEGACY, limits=Limits(**bounds)) as gateway:
        first, second, third = [await gateway.call("ask", {"about": str(number)}) for number in range(3)]
        assert len(gateway.forwarder.parking_lot) == 2
        with pytest.raises(InvalidParams, match="expired"):
            await resume(gateway, "ask", first, "Ann", arguments={"about": "0"})
        for number, leg in enumerate((second, third), 1):
            assert text(await resume(gateway, "ask", leg, "Ann", arguments={"about": str(number)})) == "Hello Ann"
        assert len(gateway.forwarder.parking_lot) == 0


async def test_a_parked_call_asks_only_as_many_questions_at_once_as_the_limit_allows() -> None:
    async with crossing(Asker(), LEGACY, limits=Limits(questions=0)) as gateway:
        assert "A call may ask 0 questions at a time" in text(await gateway.call("ask"))


async def test_the_ticket_of_a_parked_call_expires_after_the_time_that_the_limits_set() -> None:
    async with crossing(Asker(), LEGACY, limits=Limits(ticket_seconds=-1, parked_seconds=0.05)) as gateway:
        first = await gateway.call("ask")
        with pytest.raises(InvalidParams, match="expired"):
            await resume(gateway, "ask", first, "Ann")


async def test_what_a_principal_has_too_many_of_are_its_own() -> None:
    async with crossing(Asker(), LEGACY, limits=Limits(parked=3, parked_per_caller=2)) as gateway:
        bobs = await gateway.call("ask", principal="bob")
        greedy = [await gateway.call("ask", {"about": str(number)}) for number in range(3)]
        carols = await gateway.call("ask", principal="carol")
        assert [gateway.forwarder.parking_lot._counts[name] for name in ("alice", "bob", "carol")] == [1, 1, 1]
        assert text(await resume(gateway, "ask", bobs, "Bob", principal="bob")) == "Hello Bob"
        assert text(await resume(gateway, "ask", carols, "Carol", principal="carol")) == "Hello Carol"
        assert text(await resume(gateway, "ask", greedy[2], "Ann", arguments={"about": "2"})) == "Hello Ann"


async def test_where_all_places_are_attended_a_call_is_refused_and_its_server_let_go() -> None:
    board = Asker()
    async with crossing(board, LEGACY, limits=Limits(parked=1)) as gateway:
        keys, ticket = asked(await gateway.call("ask_then_wait"))
        leg = asyncio.create_task(gateway.call("ask_then_wait", answers={keys[0]: accept("Ann")}, ticket=ticket))
        await board.waiting.wait()
        refused = await gateway.call("ask")
        assert "Too many calls are waiting" in text(refused)
        assert refused.result["_meta"]["dev.pegboard/refused"]["reason"] == "parked"  # type: ignore[index]
        board.go_on.set()
        assert text(await leg) == "went on"


async def test_a_question_not_answered_in_time_is_answered_with_cancel() -> None:
    heard: list[str] = []
    board = Asker()

    async def listener(call: Call, inner: Any) -> Reply:
        reply: Reply = await inner(call)
        heard.append(text(reply))
        return reply

    board.use(listener)
    async with crossing(board, LEGACY, limits=Limits(parked_seconds=0.05)) as gateway:
        first = await gateway.call("ask")
        await until(lambda: heard == ["Hello cancel"])
        assert len(gateway.forwarder.parking_lot) == 0
        with pytest.raises(InvalidParams, match="expired"):
            await resume(gateway, "ask", first, "Ann")


async def test_what_is_parked_is_given_up_at_the_end() -> None:
    board = Asker()
    async with crossing(board, LEGACY) as gateway:
        first = await gateway.call("ask")
        await gateway.forwarder.close()
        await until(lambda: gateway.downstream.in_flight == 0)
        with pytest.raises(InvalidParams):
            await resume(gateway, "ask", first, "Ann")


# -- any order of events -----------------------------------------------------------------------------------------------


class Hasty(asyncio.SelectorEventLoop):
    """A loop whose time passes as soon as nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__(_Leaping(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Leaping(selectors.DefaultSelector):  # type: ignore[valid-type, misc]  # which one there is, the system says
    def __init__(self, loop: Hasty) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._loop.now += timeout
        return super().select(0)


class Server:
    """A request under way, as its server sees it."""

    def __init__(self) -> None:
        self.channel: Channel = NULL_CHANNEL
        self.end: asyncio.Future[Mapping[str, Json]] = asyncio.get_running_loop().create_future()
        self.questions: dict[asyncio.Task[Any], str] = {}

    async def work(self, channel: Channel) -> Mapping[str, Json]:
        self.channel = channel
        try:
            return await self.end
        finally:
            for question in self.questions:
                question.cancel()

    def ask(self, number: int) -> None:
        question = Question("elicitation/create", {"message": str(number)})
        task = asyncio.ensure_future(self.channel.ask({"x": question}))
        self.questions[task] = str(number)


def _caller(principal: str = "alice") -> Caller:
    return Caller(version=MODERN, transport="http", principal=Principal(principal), capabilities=ASKABLE)


class Interleavings(RuleBasedStateMachine):
    """Callers come, answer, come twice, leave and stay away; servers ask, take back, end; time passes."""

    MOST, EACH, SECONDS = 4, 2, 600.0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=Hasty)
        bounds = Limits(parked=self.MOST, parked_per_caller=self.EACH, parked_seconds=self.SECONDS)
        self.parking_lot = ParkingLot(bounds)
        self.numbers = 0
        self.servers: dict[ParkedCall, Server] = {}
        # What each caller may come back with; and what it has used up.
        self.tickets: dict[ParkedCall, tuple[int, dict[str, Question]]] = {}
        self.used: list[tuple[ParkedCall, int]] = []
        # Legs under way, of requests that have not asked again yet.
        self.legs: dict[ParkedCall, asyncio.Task[dict[str, Question]]] = {}

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    async def wait_with(self, parked_call: ParkedCall) -> None:
        """A leg, which the server's next word ends."""
        leg = asyncio.ensure_future(
            parked_call.wait_with(Call(method="tools/call", caller=_caller(), channel=NULL_CHANNEL))
        )
        await asyncio.wait({leg}, timeout=1)
        if not leg.done():
            self.legs[parked_call] = leg
            return
        self.settle(parked_call, leg)

    def settle(self, parked_call: ParkedCall, leg: asyncio.Task[dict[str, Question]]) -> None:
        asks = leg.result()
        if not asks:
            self.parking_lot.remove(parked_call)
            return
        try:
            self.parking_lot.park(parked_call)
        except LimitReached:
            assert not any(place in self.tickets for place in self.servers if place.principal == parked_call.principal)
        else:
            self.tickets[parked_call] = parked_call.leg, asks
        self.forget()

    def forget(self) -> None:
        """What was given up nobody can come back to."""
        self.tickets = {
            parked_call: ticket
            for parked_call, ticket in self.tickets.items()
            if self.parking_lot.find(parked_call.id, parked_call.principal) is not None
        }

    @rule(principal=st.sampled_from(["alice", "bob", "carol"]))
    def call(self, principal: str) -> None:
        async def begin() -> None:
            server = Server()
            parked_call = ParkedCall(
                Call(method="tools/call", caller=_caller(principal), channel=NULL_CHANNEL), server.work, 16
            )
            self.servers[parked_call] = server
            await asyncio.sleep(0)
            self.numbers += 1
            server.ask(self.numbers)
            await self.wait_with(parked_call)

        self.run(begin())

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), skip=st.booleans(), after=st.sampled_from(["asks", "ends", "fails", "waits"]))
    def come_back(self, data: st.DataObject, skip: bool, after: str) -> None:
        parked_call = data.draw(st.sampled_from(list(self.tickets)))
        leg, asks = self.tickets.pop(parked_call)

        async def go_on() -> None:
            server = self.servers[parked_call]
            taken = self.parking_lot.unpark(parked_call.id, leg, parked_call.principal)
            assert taken is parked_call
            self.used.append((parked_call, leg))
            keys = list(asks)[1:] if skip else list(asks)
            before = {task: number for task, number in server.questions.items() if not task.done()}
            parked_call.receive_answers({key: {"said": asks[key].params["message"]} for key in keys})
            await asyncio.sleep(0.001)
            for task, number in before.items():
                if task.done() and not task.cancelled() and task.exception() is None:
                    # Each question gets the answer that was given to it.
                    assert task.result()["x"]["said"] == number
            if after == "asks":
                self.numbers += 1
                server.ask(self.numbers)
            elif after == "ends" and not server.end.done():
                server.end.set_result({"content": []})
            elif after == "fails" and not server.end.done():
                server.end.set_exception(ToolError("no"))
            await self.wait_with(parked_call)

        self.run(go_on())

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def come_back_twice(self, data: st.DataObject) -> None:
        parked_call, leg = data.draw(st.sampled_from(self.used))
        with pytest.raises(InvalidParams):
            self.parking_lot.unpark(parked_call.id, leg, parked_call.principal)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def somebody_else_comes(self, data: st.DataObject) -> None:
        parked_call = data.draw(st.sampled_from(list(self.tickets)))
        with pytest.raises(InvalidParams):
            self.parking_lot.unpark(parked_call.id, self.tickets[parked_call][0], "eve")

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def a_server_takes_its_question_back(self, data: st.DataObject) -> None:
        parked_call = data.draw(st.sampled_from(list(self.tickets)))

        async def drop() -> None:
            for task in self.servers[parked_call].questions:
                task.cancel()
            await asyncio.sleep(0)

        self.run(drop())

    @precondition(lambda self: self.legs)
    @rule(data=st.data(), leaves=st.booleans())
    def a_leg_ends(self, data: st.DataObject, leaves: bool) -> None:
        parked_call = data.draw(st.sampled_from(list(self.legs)))
        leg = self.legs.pop(parked_call)

        async def end() -> None:
            if leaves:
                leg.cancel()
                await asyncio.wait({leg})
                self.parking_lot.remove(parked_call)
                assert parked_call.task.done()
                return
            self.numbers += 1
            self.servers[parked_call].ask(self.numbers)
            await asyncio.wait({leg})
            self.settle(parked_call, leg)

        self.run(end())

    @rule(seconds=st.sampled_from([1.0, 300.0, 601.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        gone = [
            parked_call
            for parked_call in self.tickets
            if self.parking_lot.find(parked_call.id, parked_call.principal) is None
        ]
        # A server has a moment to end its call by itself.
        self.run(asyncio.sleep(5 * GRACE_SECONDS))
        assert all(parked_call.task.done() for parked_call in gone)
        self.forget()

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.parking_lot) <= self.MOST
        held = [self.parking_lot._counts[name] for name in ("alice", "bob", "carol")]
        assert sum(held) == len(self.parking_lot)
        assert max(held) <= self.EACH
        for parked_call in self.tickets:
            assert self.parking_lot.find(parked_call.id, parked_call.principal) is parked_call

    def teardown(self) -> None:
        async def end() -> None:
            for leg in self.legs.values():
                leg.cancel()
            await self.parking_lot.close()
            await asyncio.sleep(1)
            assert len(self.parking_lot) == 0
            for parked_call, server in self.servers.items():
                if not parked_call.task.done():
                    await parked_call.cancel()
                assert parked_call.task.done()
                assert all(task.done() for task in server.questions)
                for task in server.questions:
                    assert task.cancelled() or task.exception() is None or isinstance(task.exception(), Refusal)

        self.run(end())
        self.runner.close()


@pytest.mark.hypothesis
def test_whatever_happens_in_whichever_order_places_are_given_back_and_answers_meet_their_questions() -> None:
    run_state_machine_as_test(
        Interleavings, settings=settings(max_examples=examples(15), stateful_step_count=30, deadline=None)
    )
