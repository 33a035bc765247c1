"""Tools that go on as tasks: from the call to its end, through the public API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import Board, CancellationToken, Client, Context, Elicit, Sample, ToolError
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Done, Handler, InputRequired, Question, Reply, TaskStarted
from pegboard.client.client_channel import QuestionHandlers
from pegboard.errors import (
    DeclarationError,
    InternalFailure,
    InvalidParams,
    LimitReached,
    MethodNotFound,
    MissingCapability,
)
from pegboard.hooks.middleware import Middleware
from pegboard.limits import Limits
from pegboard.middleware import Retry
from pegboard.protocol.revisions import MODERN, TASKS
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.asking.test_rounds import drive, send, text_of
from tests.depth import examples
from tests.requirements.clients import connect
from tests.requirements.test_tasks import wait_for
from tests.server.fake_sink import PREFIX
from tests.server.test_battery import House, Seen
from tests.waiting import until

ABLE: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
TASK_FIELDS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


def accepted(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


class User:
    """A client in process that can ask after tasks."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, tool: str, /, **arguments: Any) -> str:
        started = await self.client.request("tools/call", {"name": tool, "arguments": arguments})
        assert started["resultType"] == "task", started
        return str(started["taskId"])

    async def get(self, task: str) -> Mapping[str, Any]:
        return await self.client.request("tasks/get", {"taskId": task})

    async def answer(self, task: str, **answers: Any) -> None:
        told = {key: accepted(value) for key, value in answers.items()}
        assert await self.client.request("tasks/update", {"taskId": task, "inputResponses": told}) == {}

    async def cancel(self, task: str) -> None:
        assert await self.client.request("tasks/cancel", {"taskId": task}) == {}

    async def reaches(self, task: str, status: str) -> Mapping[str, Any]:
        """The task, once it is in this state."""
        async with asyncio.timeout(20):
            while (found := await self.get(task))["status"] != status:
                assert status == "forgotten" or found["status"] in ("working", "input_required"), found
                await asyncio.sleep(0)
        return found

    async def result(self, task: str) -> str:
        found = await self.reaches(task, "completed")
        return str(found["result"]["content"][0]["text"])


def use(board: Board) -> Client:
    return Client(board, capabilities=ABLE)


# -- how a task begins -------------------------------------------------------------------------------------------------


async def test_a_task_is_returned_flat_and_without_fields_of_later_states() -> None:
    board = Board("t", limits=Limits(task_seconds=60))

    @board.tool(task="optional")
    async def work() -> str:
        return "done"

    async with use(board) as client:
        started = await client.request("tools/call", {"name": "work"})
        assert set(started) == TASK_FIELDS | {"resultType"}
        assert (started["resultType"], started["status"], started["ttlMs"]) == ("task", "working", 60_000)
        found = await User(client).reaches(started["taskId"], "completed")
        assert set(found) == TASK_FIELDS | {"result"}
        assert found["result"] == {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
        assert found["createdAt"] == started["createdAt"] <= found["lastUpdatedAt"]
        assert found["createdAt"].endswith("Z")


async def test_boards_without_such_tools_know_of_no_tasks() -> None:
    board = Board("t")

    @board.tool
    async def plain() -> str:
        return "plain"

    async with use(board) as client:
        assert "extensions" not in (await client.discover())["capabilities"]
        assert (await client.call("plain")).text == "plain"
        with pytest.raises(MethodNotFound):
            await client.request("tasks/get", {"taskId": "f" * 32})

        @board.tool(task="optional")
        async def work() -> str:
            return "done"

        assert (await client.discover())["capabilities"]["extensions"] == {TASKS: {}}
        task = await User(client).start("work")
        board.remove("work")
        # Whoever began one may still ask after it.
        assert await User(client).result(task) == "done"


async def test_a_call_rejected_before_the_tool_runs_returns_the_error_immediately() -> None:
    board, seen = Board("t"), []

    class Doorman(Middleware):
        async def before(self, call: Call) -> None:
            if call.arguments.get("name") == "mallory":
                raise LimitReached("not you", "doorman")

    @board.tool(task="required", requires=["sampling"])
    async def needs_sampling() -> str:
        return "never"

    @board.tool(task="required")
    async def greet(name: str) -> str:
        seen.append(name)
        return name

    board.use(Doorman())
    async with use(board) as client:
        assert "name" in (await client.call("greet", {"nom": 1})).text
        assert (await client.call("greet", {"name": "mallory"})).is_error
        with pytest.raises(MissingCapability):
            await client.call("needs_sampling")
        assert seen == []
        assert await User(client).result(await User(client).start("greet", name="ada")) == "ada"


async def test_clients_without_the_extension_call_optional_tools_as_any_other() -> None:
    board = Board("t")

    @board.tool(task="optional", detach="manual")
    async def confirm(ctx: Context) -> str:
        first = await ctx.elicit("First?", str, key="first")
        await ctx.detach()
        return f"{first.content} {(await ctx.elicit('Second?', str, key='second')).content}"

    async with Client(board, elicit=lambda question: {"value": question.message}) as client:
        assert (await client.call("confirm")).text == "First? Second?"


@pytest.mark.parametrize(
    "wrong", [{"task": "always"}, {"task": "optional", "detach": "later"}, {"detach": "manual"}, {"task": True}]
)
def test_options_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(DeclarationError):
        Board("t").add(lambda: "x", name="x", **wrong)


async def test_a_caller_that_leaves_before_the_task_exists_ends_the_call_and_after_it_does_not() -> None:
    board, went_on, log = Board("t"), asyncio.Event(), list[str]()
    reached = [asyncio.Event(), asyncio.Event()]

    @board.tool(task="required", detach="manual")
    async def work(ctx: Context) -> str:
        try:
            reached[0].set()
            await went_on.wait()
            await ctx.detach()
            await reached[1].wait()
            log.append("done")
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        return "done"

    caller = Caller(version=MODERN, transport="http", capabilities=ABLE)

    async def call() -> Reply:
        return await board.handler(Call(method="tools/call", caller=caller, channel=NULL_CHANNEL, id=1, name="work"))

    left = asyncio.ensure_future(call())
    await reached[0].wait()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert log == ["cancelled"]

    went_on.set()
    started = await call()
    assert isinstance(started, TaskStarted)
    reached[1].set()
    await until(lambda: log == ["cancelled", "done"])
    await board.stop()


# -- what it says and asks ---------------------------------------------------------------------------------------------


async def test_progress_is_the_status_of_a_task_whether_its_caller_asked_for_it_or_not() -> None:
    board, steps = Board("t"), asyncio.Queue[tuple[Any, ...] | None]()

    @board.tool(task="optional", detach="manual")
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 10, "asking")
        await ctx.detach()
        await ctx.log("error", "lost")
        while (step := await steps.get()) is not None:
            await ctx.progress(*step)
        return "done"

    told: list[Any] = []
    async with Client(board, capabilities=ABLE, log=lambda *said: told.append(said)) as client:
        user = User(client)
        task = await user.start("work")
        assert "statusMessage" not in await user.get(task)
        for step, message in (
            ((2,), "2"),
            ((3, 4), "3 of 4"),
            ((5, None, "five"), "five"),
            ((6, 9, "x" * 999), "x" * 9),
        ):
            steps.put_nowait(step)
            await until(steps.empty)
            await asyncio.sleep(0)
            assert str((await user.get(task))["statusMessage"]).startswith(message)
        assert len((await user.get(task))["statusMessage"]) == 500
        steps.put_nowait(None)
        assert "statusMessage" not in await user.reaches(task, "completed")
        assert told == []

        heard: list[Any] = []
        steps.put_nowait(None)
        await client.request("tools/call", name="work", progress=lambda *step: heard.append(step))
        assert heard == [(1, 10, "asking")]


async def test_what_a_generator_yields_is_the_status_of_its_task() -> None:
    board, go_on = Board("t"), asyncio.Event()

    @board.tool(task="optional")
    async def count() -> AsyncIterator[str]:
        yield "one"
        await go_on.wait()
        yield "two"

    async with use(board) as client:
        user = User(client)
        task = await user.start("count")
        await asyncio.sleep(0)
        assert (await user.get(task))["statusMessage"] == "one"
        go_on.set()
        assert (await user.reaches(task, "completed"))["result"]["structuredContent"] == ["one", "two"]


async def test_a_task_waits_for_its_answers_one_by_one() -> None:
    board = Board("t")

    @board.tool(task="optional")
    async def fill_in(ctx: Context) -> str:
        told = await ctx.ask(name=Elicit("Name?", str), age=Elicit("Age?", int))
        return f"{told['name'].content} {told['age'].content}"

    async with use(board) as client:
        user = User(client)
        task = await user.start("fill_in")
        found = await user.reaches(task, "input_required")
        assert set(found) == TASK_FIELDS | {"inputRequests"}
        assert {key: ask["method"] for key, ask in found["inputRequests"].items()} == dict.fromkeys(
            ("name", "age"), "elicitation/create"
        )
        await user.answer(task, age=36, nobody="asked")
        assert list((await user.get(task))["inputRequests"]) == ["name"]
        await user.answer(task, age=37)
        await user.answer(task, name="Ada")
        assert await user.result(task) == "Ada 36"
        # What comes too late is acknowledged all the same.
        await user.answer(task, name="Bob")
        await user.cancel(task)
        assert await user.result(task) == "Ada 36"


async def test_an_answer_that_cannot_be_read_is_asked_for_again_under_another_key() -> None:
    board = Board("t")

    @board.tool(task="optional")
    async def fill_in(ctx: Context) -> str:
        return str((await ctx.elicit("Age?", int, key="age")).content)

    async with use(board) as client:
        user = User(client)
        task = await user.start("fill_in")
        seen = []
        for answer in ("old", "older", 36):
            found = await user.reaches(task, "input_required")
            (key,) = found["inputRequests"]
            seen.append(key)
            await user.answer(task, **{key: answer})
            await asyncio.sleep(0)
        assert await user.result(task) == "36"
        assert len(set(seen)) == 3


@pytest.mark.parametrize("answers", [None, [], "x"])
async def test_answers_have_to_be_an_object(answers: Any) -> None:
    board = Board("t")

    @board.tool(task="optional")
    async def fill_in(ctx: Context) -> str:
        return str((await ctx.elicit("Age?", int, key="age")).content)

    async with use(board) as client:
        task = await User(client).start("fill_in")
        with pytest.raises(InvalidParams, match="inputResponses"):
            await client.request("tasks/update", {"taskId": task, "inputResponses": answers})


async def test_asks_before_the_task_end_the_request_and_asks_in_it_do_not() -> None:
    board, runs = Board("t"), list[str]()

    @board.tool(task="required", detach="manual")
    async def plan(ctx: Context) -> str:
        runs.append("begun")
        name = await ctx.elicit("Name?", str, key="name")
        await ctx.detach()
        runs.append("detached")
        again = await ctx.elicit("Name?", str, key="name")
        return f"{name.content} {again.content}"

    client = await connect(board, "modern", ABLE)
    asked = await client.result("tools/call", {"name": "plan", "arguments": {}})
    assert asked["resultType"] == "input_required"
    assert "taskId" not in asked
    started = await client.result(
        "tools/call",
        {
            "name": "plan",
            "arguments": {},
            "requestState": asked["requestState"],
            "inputResponses": {"name": accepted("Ada")},
        },
    )
    assert set(started) == TASK_FIELDS | {"resultType", "_meta"}
    assert runs == ["begun", "begun", "detached"]
    task = started["taskId"]
    (key,) = (await wait_for(client, task, "input_required"))["inputRequests"]
    await client.result("tasks/update", {"taskId": task, "inputResponses": {key: accepted("Bob")}})
    assert (await wait_for(client, task, "completed"))["result"]["content"][0]["text"] == "Ada Bob"
    assert runs == ["begun", "begun", "detached"]
    await board.stop()


async def test_a_tool_in_a_thread_detaches_asks_and_hears_that_it_is_cancelled() -> None:
    board = Board("t")
    stays, over = threading.Event(), threading.Event()

    @board.tool(task="required", detach="manual")
    def work(ctx: Context, token: CancellationToken) -> str:
        ctx.detach()
        ctx.progress(1, None, "detached")
        name = ctx.wait(ctx.elicit("Name?", str, key="name"))
        if name.content == "stay":
            stays.set()
            token.wait(20)
            over.set()
        return f"Hello, {name.content}"

    async with use(board) as client:
        user = User(client)
        task = await user.start("work")
        assert (await user.reaches(task, "input_required"))["statusMessage"] == "detached"
        await user.answer(task, name="Ada")
        assert await user.result(task) == "Hello, Ada"

        task = await user.start("work")
        await user.reaches(task, "input_required")
        await user.answer(task, name="stay")
        await until(stays.is_set)
        await user.cancel(task)
        assert (await user.get(task))["status"] == "cancelled"
        await until(over.is_set)

        task = await user.start("work")
        await user.reaches(task, "input_required")
        await user.cancel(task)
        assert (await user.get(task))["status"] == "cancelled"


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_hooks_run_once_inside_the_task_and_see_its_real_result() -> None:
    board, log, go_on = Board("t"), list[Any](), asyncio.Event()

    class Watching(Middleware):
        async def before(self, call: Call) -> None:
            log.append("before")

        async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
            log.append(result["content"][0]["text"])

        async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
            log.append(type(exception).__name__)

    async def shout(call: Call, proceed: Handler) -> Reply:
        reply = await proceed(call)
        assert isinstance(reply, Done)
        return reply

    @board.tool(task="optional")
    async def work(*, fail: bool = False) -> str:
        await go_on.wait()
        if fail:
            raise InternalFailure("broken")
        return "done"

    board.use(Watching(), shout)
    async with use(board) as client:
        user = User(client)
        task = await user.start("work")
        assert log == ["before"]
        go_on.set()
        assert await user.result(task) == "done"
        assert log == ["before", "done"]
        log.clear()
        failed = await user.reaches(await user.start("work", fail=True), "failed")
        assert (failed["error"], failed["statusMessage"]) == ({"code": -32603, "message": "broken"}, "broken")
        assert log == ["before", "InternalFailure"]
        log.clear()
        go_on.clear()
        task = await user.start("work")
        await user.cancel(task)
        await until(lambda: log == ["before", "CancelledError"])


async def test_a_task_that_is_tried_again_is_one_task() -> None:
    board, runs = Board("t"), list[int]()

    async def no_wait(_seconds: float) -> None:
        return

    @board.tool(task="optional", annotations={"idempotentHint": True})
    async def work() -> str:
        runs.append(1)
        if len(runs) < 3:
            raise OSError("not now")
        return "done"

    board.use(Retry(sleep=no_wait))
    async with use(board) as client:
        assert await User(client).result(await User(client).start("work")) == "done"
    assert len(runs) == 3


async def test_an_exception_in_a_task_is_reported_like_that_of_any_tool() -> None:
    board = Board("t")

    @board.tool(task="optional")
    async def leak() -> str:
        raise ValueError("a secret")

    @board.tool(task="optional")
    async def leave() -> str:
        raise SystemExit("a secret")

    @board.tool(task="optional")
    async def sorry() -> str:
        raise ToolError("cannot")

    async with use(board) as client:
        user = User(client)
        for name in ("leak", "leave"):
            found = await user.reaches(await user.start(name), "completed")
            assert found["result"]["isError"]
            assert "secret" not in str(found)
        assert await user.result(await user.start("sorry")) == "cannot"


async def test_a_board_that_stops_interrupts_its_tasks_and_leaves_none_running() -> None:
    board, log = Board("t"), list[str]()

    @board.tool(task="optional")
    async def work(ctx: Context, *, ask: bool = False) -> str:
        try:
            if ask:
                await ctx.elicit("Sure?", bool)
            await asyncio.Event().wait()
        finally:
            log.append("ended")
        return "never"

    before = asyncio.all_tasks()
    async with use(board) as client:
        user = User(client)
        tasks = [await user.start("work"), await user.start("work", ask=True)]
        await user.reaches(tasks[1], "input_required")
    assert asyncio.all_tasks() == before
    assert log == ["ended", "ended"]
    async with use(board) as client:
        for task in tasks:
            found = await User(client).get(task)
            assert (found["status"], found["error"]["code"]) == ("failed", -32603)
            assert "stopped" in found["error"]["message"]


async def test_a_call_that_has_not_become_a_task_fails_when_its_board_stops() -> None:
    board, begun = Board("t"), asyncio.Event()

    @board.tool(task="required", detach="manual")
    async def work() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with use(board) as client:
        call = asyncio.ensure_future(client.call("work"))
        await begun.wait()
    with pytest.raises(InternalFailure, match="stopped"):
        await call


async def test_the_work_of_a_task_ends_with_its_time() -> None:
    board, ended = Board("t", limits=Limits(task_seconds=0.05)), asyncio.Event()

    @board.tool(task="optional")
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with use(board) as client:
        task = await User(client).start("work")
        await ended.wait()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        # The clock of the loop and that of the day need not agree to the millisecond.
        with pytest.raises(InvalidParams, match="Unknown task"):
            await User(client).reaches(task, "forgotten")


async def test_a_tool_that_goes_on_after_its_end_is_not_left_waiting_for_an_answer() -> None:
    board, log = Board("t"), list[str]()

    @board.tool(task="optional")
    async def stubborn(ctx: Context) -> str:
        for question in ("Sure?", "Really?", "Honestly?"):
            try:
                await ctx.elicit(question, bool)
            except asyncio.CancelledError:
                log.append(question)
        return "went on"

    async with use(board) as client:
        user = User(client)
        task = await user.start("stubborn")
        await user.reaches(task, "input_required")
        await user.cancel(task)
        await until(lambda: len(log) == 3)
        assert set(await user.get(task)) == TASK_FIELDS | {"statusMessage"}
        assert (await user.get(task))["status"] == "cancelled"


# -- bounds ------------------------------------------------------------------------------------------------------------


class Peer:
    """One who calls a board, under a name of its own."""

    def __init__(self, board: Board, principal: str) -> None:
        self._handler = board.handler
        self._caller = Caller(version=MODERN, transport="http", principal=Principal(principal), capabilities=ABLE)

    async def ask(self, method: str, name: str, arguments: Any = None) -> Reply:
        raw = msgspec.Raw(msgspec.json.encode(arguments or {}))
        return await self._handler(
            Call(method=method, caller=self._caller, channel=NULL_CHANNEL, id=1, name=name, raw=raw)
        )

    async def update(self, task: str, answers: Mapping[str, Any]) -> None:
        call = Call(method="tasks/update", caller=self._caller, channel=NULL_CHANNEL, id=1, name=task)
        call.answers = msgspec.Raw(msgspec.json.encode(answers))
        await self._handler(call)


async def test_a_principal_that_has_too_many_tasks_gets_no_more_and_others_do() -> None:
    board, runs = Board("t", limits=Limits(tasks_per_caller=2, tasks=3)), list[int]()

    @board.tool(task="optional")
    async def work() -> str:
        runs.append(1)
        return "done"

    ada, bob = Peer(board, "ada"), Peer(board, "bob")
    kinds = [type(await one.ask("tools/call", "work")) for one in (ada, ada, ada, bob, bob)]
    assert kinds == [TaskStarted, TaskStarted, Done, TaskStarted, Done]
    refused = await ada.ask("tools/call", "work")
    assert isinstance(refused, Done)
    assert refused.result["isError"]  # type: ignore[index]  # a mapping, as every tool's own result
    assert len(runs) == 3
    await board.stop()


async def test_a_result_that_exceeds_the_remaining_space_fails_its_task() -> None:
    board = Board("t", limits=Limits(task_bytes=5000))

    @board.tool(task="optional")
    async def say(size: int) -> str:
        return "x" * size

    async with use(board) as client:
        user = User(client)
        assert len(await user.result(await user.start("say", size=2000))) == 2000
        found = await user.reaches(await user.start("say", size=20_000), "failed")
        assert "more than the remaining space" in found["error"]["message"]
        task = await user.start("say", size=10)
        assert len(await user.result(task)) == 10


async def test_the_requests_of_running_tasks_take_room_until_their_work_has_ended() -> None:
    board, go = Board("t", limits=Limits(task_bytes=10_000)), asyncio.Event()

    @board.tool(task="required")
    async def keep(text: str) -> int:
        await go.wait()
        return len(text)

    async with use(board) as client:
        user = User(client)
        task = await user.start("keep", text="x" * 6000)
        refused = await client.call("keep", {"text": "x" * 6000})
        assert refused.is_error
        assert "their requests and results are too large" in refused.text
        go.set()
        assert await user.result(task) == "6000"
        assert await user.result(await user.start("keep", text="x" * 6000)) == "6000"


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_over_http_a_task_outlives_the_connection_that_began_it() -> None:
    board, go_on, log = Board("t", version="1"), asyncio.Event(), list[str]()
    begun = asyncio.Event()

    @board.tool(task="required", detach="manual")
    async def work(ctx: Context, wait: bool = False) -> str:
        try:
            if wait:
                begun.set()
                await asyncio.Event().wait()
            await ctx.detach()
            await go_on.wait()
            log.append("done")
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        return "done"

    endpoint = HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard())
    server = await listen(endpoint, board.limits)
    one = House(server.port, Seen(), endpoint)
    meta = {"_meta": {PREFIX + "clientCapabilities": ABLE}}

    def asked(method: str, task: str, header: str | None = None) -> bytes:
        return one.modern(method, {"taskId": task, **meta}, mcp_name=header or task)

    try:
        line = await one.connect()
        started = (await line.ask(one.modern("tools/call", {"name": "work", "arguments": {}, **meta}))).json["result"]
        assert started["resultType"] == "task"
        line.hang_up()
        task = started["taskId"]
        assert (await one.ask(asked("tasks/get", task))).json["result"]["status"] == "working"
        for method, about, header, code in (
            ("tasks/get", task, "f" * 32, -32020),
            ("tasks/get", "f" * 32, None, -32602),
            ("tasks/cancel", "f" * 32, None, -32602),
            ("tasks/update", "f" * 32, None, -32602),
            ("tasks/update", task, None, -32602),
        ):
            reply = await one.ask(asked(method, about, header))
            assert (reply.status, reply.json["error"]["code"]) == (400, code)
        for method in ("tasks/result", "tasks/list"):
            reply = await one.ask(one.modern(method, {"taskId": task, **meta}))
            assert (reply.status, reply.json["error"]["code"]) == (404, -32601)
        go_on.set()
        await until(lambda: log == ["done"])
        assert (await one.ask(asked("tasks/get", task))).json["result"]["result"]["content"][0]["text"] == "done"

        line = await one.connect()
        await line.say(one.modern("tools/call", {"name": "work", "arguments": {"wait": True}, **meta}))
        await begun.wait()
        line.hang_up()
        await until(lambda: log == ["done", "cancelled"])

        go_on.clear()
        await one.ask(one.modern("tools/call", {"name": "work", "arguments": {}, **meta}))
    finally:
        one.close()
        await server.close()
        await board.stop()
    assert log == ["done", "cancelled", "cancelled"]


# -- any tool ----------------------------------------------------------------------------------------------------------

Kind = Literal["elicit", "sample", "roots", "both", "group", "keep", "detach"]
Step = tuple[Kind, int]
steps = st.lists(
    st.tuples(st.sampled_from(["elicit", "sample", "roots", "both", "group", "keep", "detach"]), st.integers(0, 2)),
    max_size=8,
)


def tool_of(plan: list[Step]) -> Callable[[Context], Any]:
    async def one(ctx: Context, text: str) -> str:
        return str((await ctx.elicit(text, int)).content)

    async def walk(ctx: Context) -> str:
        """Ask as planned; what was answered decides where it goes on."""
        seen: list[str] = []
        for kind, number in plan:
            match kind:
                case "elicit":
                    seen.append(await one(ctx, f"Number {number}?"))
                    if seen[-1] == "2":
                        break
                case "sample":
                    seen.append((await ctx.sample(f"Text {number}")).text)
                case "roots":
                    seen.append((await ctx.roots())[0].uri)
                case "both":
                    told = await ctx.ask(a=Elicit(f"A {number}?", int), b=Sample(f"B {number}"))
                    seen.append(f"{told['a'].content}{told['b'].text}")
                case "group":
                    async with asyncio.TaskGroup() as group:
                        asked = [group.create_task(one(ctx, f"{at} {number}?")) for at in "XYZ"]
                    seen.append("".join(task.result() for task in asked))
                case "keep":
                    seen.append(str(await ctx.keep(f"k{number}", lambda: len(seen))))
                case "detach":
                    await ctx.detach()
        return "|".join(seen)

    return walk


ANSWERS = QuestionHandlers(
    elicit=lambda asked: {"value": int(asked.message[-2])},
    sample=lambda asked: f"<{asked['messages'][0]['content']['text']}>",
    roots=["file:///r"],
)


async def in_a_task(board: Board, name: str) -> str:
    """All rounds of a call, and all questions of the task it becomes, if it does."""
    able = {**ANSWERS.capabilities(), **ABLE}
    reply = await send(board, name, capabilities=able)
    while isinstance(reply, InputRequired):
        told = {key: await ANSWERS.answer(question) for key, question in reply.questions.items()}
        reply = await send(board, name, ticket=reply.ticket, answers=told, capabilities=able)
    if not isinstance(reply, TaskStarted):
        return text_of(reply)
    task, seen = reply.task["taskId"], set[str]()
    while True:
        got = await send(board, task, method="tasks/get", capabilities=able)
        found = got.result
        assert isinstance(found, Mapping)
        if found["status"] == "completed":
            return str(found["result"]["content"][0]["text"])
        asks = {
            key: await ANSWERS.answer(Question(ask["method"], ask["params"]))
            for key, ask in found.get("inputRequests", {}).items()
        }
        assert seen.isdisjoint(asks)
        seen.update(asks)
        await send(board, task, method="tasks/update", answers=asks, capabilities=able)
        await asyncio.sleep(0)


@settings(deadline=None, max_examples=examples(15))
@given(steps)
def test_any_tool_comes_to_the_same_end_at_once_in_rounds_and_as_a_task(plan: list[Step]) -> None:
    board = Board("t")
    board.add(tool_of(plan), name="plain")
    board.add(tool_of(plan), name="start", task="required")
    board.add(tool_of(plan), name="manual", task="optional", detach="manual")

    async def compare() -> None:
        async with Client(board, elicit=ANSWERS.elicit, sample=ANSWERS.sample, roots=ANSWERS.roots) as client:
            at_once = (await client.call("plain")).text
        in_rounds, _ = await drive(board, "plain", ANSWERS)
        assert text_of(in_rounds) == at_once
        assert text_of((await drive(board, "manual", ANSWERS))[0]) == at_once
        assert await in_a_task(board, "start") == at_once
        assert await in_a_task(board, "manual") == at_once
        await board.stop()

    asyncio.run(compare())


Blow = Literal["leave", "cancel", "answer", "stop"]


class Struck:
    """One call of a tool that detaches and asks at some turn, and all that was seen of its task."""

    def __init__(self, detach: int, ask: int) -> None:
        self.board = Board("t")
        self.begun, self.ends, self.states = 0, list[str](), list[Any]()

        @self.board.tool(task="required", detach="manual")
        async def work(ctx: Context) -> str:
            self.begun += 1
            try:
                for turn in range(6):
                    if turn == detach:
                        await ctx.detach()
                    if turn == ask and detach <= ask:
                        await ctx.elicit("Sure?", bool, key="sure")
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
            self.ends.append("done")
            return "done"

        self._caller = Peer(self.board, "ada")
        self.call = asyncio.ensure_future(self._caller.ask("tools/call", "work"))

    async def turn(self) -> None:
        await asyncio.sleep(0)
        if self.call.done() and not self.call.cancelled() and self.call.exception() is None:
            reply = self.call.result()
            if isinstance(reply, TaskStarted):
                self.states.append((await self._caller.ask("tasks/get", reply.task["taskId"])).result)

    async def strike(self, blow: Blow) -> None:
        task = self.states[-1]["taskId"] if self.states else ""
        match blow:
            case "leave":
                self.call.cancel()
            case "stop":
                await self.board.stop()
            case "cancel" if task:
                await self._caller.ask("tasks/cancel", task)
            case "answer" if task:
                await self._caller.update(task, {"sure": accepted(True)})

    async def end(self) -> None:
        await self.board.stop()
        await asyncio.gather(self.call, return_exceptions=True)
        await self.turn()


@settings(deadline=None, max_examples=examples(25))
@given(
    detach=st.integers(0, 6),
    ask=st.integers(0, 6),
    blows=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["leave", "cancel", "answer", "stop"])), max_size=4),
)
def test_whatever_strikes_whenever_a_call_has_one_end_and_leaves_nothing_behind(
    detach: int, ask: int, blows: list[tuple[int, Blow]]
) -> None:
    async def walk() -> None:
        one = Struck(detach, ask)
        async with asyncio.timeout(10):
            for turns, blow in blows:
                for _ in range(turns):
                    await one.turn()
                await one.strike(blow)
            for _ in range(30):
                await one.turn()
            await one.end()
        assert len(one.ends) == one.begun <= 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        statuses = [state["status"] for state in one.states]
        ended = [state for state in one.states if state["status"] not in ("working", "input_required")]
        if one.states:
            assert one.states[-len(ended) :] == [ended[0]] * len(ended)
            assert statuses[-1] != "completed" or one.ends == ["done"]

    asyncio.run(walk())
