"""What passes through the gateway as it is, what is mended on the way, and what a caller is told when a server fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board, Client, Context
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Done, InputRequired, Reply, TaskStarted
from pegboard.errors import InternalFailure, InvalidParams, MissingCapability, QuestionFailed, Refusal, ResourceNotFound
from pegboard.gateway.forwarding.outcome import Destination
from tests.client.fakes import Answer, Asked, Fake, error, faking, initialized, legacy, modern, reply, result
from tests.gateway.asking_server import FORM, Asker, told
from tests.gateway.forwarding.test_parking_lot import Heard, accept, asked, resume, text
from tests.gateway.minimal_gateway import ASKABLE, LEGACY, MODERN, TASKS, Crossing, crossing
from tests.waiting import SOON, until

ANY = {"type": "object"}


def takes_tasks(server: Answer) -> Answer:
    """The same server, which says at the handshake that its tools may be called as tasks."""

    def answer(one: Asked, writer: asyncio.StreamWriter) -> Any:
        if one.method == "POST" and one.message.get("method") == "initialize":
            said = initialized(one)
            said["result"]["capabilities"]["tasks"] = {"requests": {"tools": {"call": {}}}}
            return reply(writer, said, Mcp_Session_Id="s1")
        return server(one, writer)

    return answer


@asynccontextmanager
async def fake_server(answer: Any, *, era: str = MODERN, **definition: Any) -> AsyncIterator[tuple[Crossing, Fake]]:
    """A gateway in front of a server that answers a call of its only tool as a test says."""

    def call(one: Asked, writer: asyncio.StreamWriter) -> Any:
        told = result(one, {"tools": []}) if one.message.get("method") == "tools/list" else answer(one)
        if isinstance(told, bytes):
            writer.write(told)
            writer.close()
        elif told is not None:
            reply(writer, told)

    server = modern(call) if era == MODERN else takes_tasks(legacy(call))
    async with faking(server) as fake, crossing(fake.url, era, timeout=5) as gateway:
        gateway.add({"name": "it", "inputSchema": ANY, **definition})
        yield gateway, fake


def params(fake: Fake, method: str = "tools/call") -> dict[str, Any]:
    """What the server was sent with the last request of that method."""
    sent: dict[str, Any] = [one.message for one in fake.asked if one.body and one.message.get("method") == method][-1]
    return sent["params"]


def told_of(reply: Reply) -> Mapping[str, Any]:
    assert isinstance(reply, Done), reply
    assert isinstance(reply.result, Mapping)
    return reply.result


def says(**more: Any) -> Any:
    return lambda one: result(one, {"resultType": "complete", "content": [{"type": "text", "text": "fine"}], **more})


# -- metadata and unknown members --------------------------------------------------------------------------------------


async def test_trace_context_and_unknown_metadata_go_down_and_what_belongs_to_a_hop_does_not() -> None:
    async with fake_server(says()) as (gateway, fake):
        meta = {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "example.org/x": [1],
            "progressToken": "ours",
            "io.modelcontextprotocol/clientInfo": {"name": "the caller's own"},
            "io.modelcontextprotocol/related-task": {"taskId": "x"},
        }
        await gateway.call("it", meta=meta, capabilities={"roots": {}})
        sent = params(fake)["_meta"]
    assert sent["traceparent"] == meta["traceparent"]
    assert sent["example.org/x"] == [1]
    assert "progressToken" not in sent
    assert "io.modelcontextprotocol/related-task" not in sent
    assert sent["io.modelcontextprotocol/clientInfo"]["name"] == "pegboard"
    assert sent["io.modelcontextprotocol/clientCapabilities"] == {"roots": {}}


async def test_a_result_keeps_unknown_fields_and_drops_the_server_identity() -> None:
    meta = {"example.org/x": {"a": None}, "io.modelcontextprotocol/serverInfo": {"name": "fake"}}
    answer = says(_meta=meta, future={"deep": [1, 2.5]}, isError=False)
    async with fake_server(answer) as (gateway, _):
        got = told_of(await gateway.call("it"))
    assert got["future"] == {"deep": [1, 2.5]}
    assert got["_meta"] == {"example.org/x": {"a": None}}
    assert "resultType" not in got
    assert got["isError"] is False


async def test_arguments_go_on_as_they_fit_the_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with fake_server(says(), inputSchema=schema) as (gateway, fake):
        got = told_of(await gateway.call("it", {"n": "7", "extra": {"a": 1}}))
        assert params(fake)["arguments"] == {"n": 7, "extra": {"a": 1}}
        assert got["_meta"]["dev.pegboard/parseWarnings"]
        refused = told_of(await gateway.call("it", {"n": "seven"}))
        assert refused["isError"]
        assert fake.methods.count("tools/call") == 1


# -- results that are not what they should be --------------------------------------------------------------------------

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize("structured", [{"structuredContent": {"x": "SECRET"}}, {}])
async def test_a_server_that_breaks_its_own_output_schema_fails_and_the_model_sees_none_of_it(
    structured: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_server(says(**structured), outputSchema=POINT) as (gateway, _):
        got = told_of(await gateway.call("it"))
    assert got["isError"]
    assert "error id" in got["content"][0]["text"]
    assert "SECRET" not in json.dumps(got)
    assert "dev/there: it" in caplog.text


async def test_a_failure_need_not_fit_the_output_schema() -> None:
    async with fake_server(says(isError=True), outputSchema=POINT) as (gateway, _):
        got = told_of(await gateway.call("it"))
    assert (got["isError"], got["content"][0]["text"]) == (True, "fine")


@pytest.mark.parametrize(
    "odd",
    [{"content": "text"}, {"content": [1]}, {"resultType": "else"}, {"resultType": "input_required", "content": None},
     {"resultType": "input_required", "inputRequests": {"a": 1}}, {"resultType": "task"},
     {"resultType": "input_required", "requestState": 7},
     {"resultType": "input_required", "inputRequests": {"a": {"method": 1}}}],
)  # fmt: skip
async def test_an_invalid_answer_is_reported_as_a_failure_of_the_server(odd: dict[str, Any]) -> None:
    async with fake_server(says(**odd)) as (gateway, _):
        got = told_of(await gateway.call("it", capabilities={**ASKABLE, **TASKS}))
    assert got["isError"]
    assert got["content"][0]["text"].startswith("[dev/there/it] Error: The server 'there'")


async def test_a_result_without_content_has_none() -> None:
    async with fake_server(lambda one: result(one, {"resultType": "complete"})) as (gateway, _):
        assert told_of(await gateway.call("it")) == {"content": []}


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "became"),
    [
        (-32602, -32602),
        (-32603, -32603),
        (7, 7),
        (-32000, -32000),
        (-32002, -32602),
        (-32050, -32603),
        (-32042, -32603),
    ],
)
async def test_an_error_from_a_server_is_forwarded_with_an_allowed_code(code: int, became: int) -> None:
    async with fake_server(lambda one: error(one, code, "no such luck", {"why": 1})) as (gateway, _):
        with pytest.raises(Refusal) as refused:
            await gateway.call("it")
    assert (refused.value.code, refused.value.message, refused.value.data) == (
        became,
        "[dev/there/it] Error: no such luck",
        {"why": 1},
    )


def wants_a_link(one: Asked) -> Any:
    link = {"mode": "url", "elicitationId": "e1", "url": "https://x.example/login", "message": "Log in"}
    return error(one, -32042, "first a link", {"elicitations": [link]})


async def test_a_link_that_an_older_server_wants_opened_first_is_asked_for_in_the_callers_words() -> None:
    tries: list[Asked] = []

    def answer(one: Asked) -> Any:
        tries.append(one)
        return wants_a_link(one) if len(tries) == 1 else says()(one)

    async with fake_server(answer, era=LEGACY) as (gateway, _):
        first = await gateway.call("it")
        assert isinstance(first, InputRequired)
        (question,) = first.questions.values()
        assert (question.method, question.params["url"]) == ("elicitation/create", "https://x.example/login")
        assert text(await resume(gateway, "it", first, "opened")) == "fine"


async def test_a_caller_of_the_same_revision_gets_that_refusal_as_it_is() -> None:
    async with fake_server(wants_a_link, era=LEGACY) as (gateway, _):
        with pytest.raises(Refusal) as refused:
            await gateway.call("it", version=LEGACY)
    assert (refused.value.code, len(refused.value.data["elicitations"])) == (-32042, 1)


async def test_a_lost_server_is_named_and_nothing_of_where_it_is() -> None:
    async with fake_server(lambda one: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") as (gateway, fake):
        got = told_of(await gateway.call("it"))
        assert got["isError"]
        assert got["content"][0]["text"].startswith("[dev/there/it] Error: The server 'there' was lost")
        assert str(fake.port) not in json.dumps(got)


# -- rounds ------------------------------------------------------------------------------------------------------------


def asking(state: str | None) -> Any:
    """A modern server that asks once, and tells what it was brought back."""

    def answer(one: Asked) -> Any:
        sent = one.message["params"]
        if "inputResponses" in sent:
            said = json.dumps([sent["inputResponses"], sent.get("requestState")])
            return result(one, {"resultType": "complete", "content": [{"type": "text", "text": said}]})
        asks = {
            "a": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}},
            "b": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Go", "url": "https://x.example"},
            },
        }
        told = {"resultType": "input_required", "inputRequests": asks}
        return result(one, told if state is None else {**told, "requestState": state})

    return answer


@pytest.mark.parametrize("state", ["", 'sta\u2028te "ünd" \\n', None])
async def test_a_servers_state_comes_back_to_it_byte_for_byte_and_is_not_shown(state: str | None) -> None:
    async with fake_server(asking(state)) as (gateway, _):
        first = await gateway.call("it")
        keys, ticket = asked(first)
        assert ticket != state
        got = json.loads(text(await gateway.call("it", answers={keys[0]: accept("Ann"), "c": 1}, ticket=ticket)))
    assert got == [{"a": accept("Ann")}, state]


async def test_what_a_caller_cannot_be_asked_is_declined_for_it() -> None:
    only_forms = {"elicitation": {"form": {}}}
    async with fake_server(asking("s")) as (gateway, _):
        first = await gateway.call("it", capabilities=only_forms)
        assert asked(first)[0] == ["a"]
        got = json.loads(text(await resume(gateway, "it", first, "Ann", capabilities=only_forms)))
        assert got[0] == {"a": accept("Ann"), "b": {"action": "decline"}}
        alone = json.loads(text(await gateway.call("it", capabilities={})))
        assert alone[0] == {key: {"action": "decline"} for key in "ab"}


async def test_a_call_resumes_when_a_server_requires_input_without_a_question() -> None:
    def answer(one: Asked) -> Any:
        state = int(one.message["params"].get("requestState", "0"))
        return (
            says()(one) if state == 2 else result(one, {"resultType": "input_required", "requestState": str(state + 1)})
        )

    async with fake_server(answer) as (gateway, _):
        assert text(await gateway.call("it", version=LEGACY)) == "fine"
        first = await gateway.call("it")
        second = await resume(gateway, "it", first)
        assert asked(second)[0] == []
        assert text(await resume(gateway, "it", second)) == "fine"


async def test_answers_without_a_ticket_go_to_the_server_as_they_are() -> None:
    async with fake_server(asking("s")) as (gateway, _):
        assert json.loads(text(await gateway.call("it", answers={"z": 1}))) == [{"z": 1}, None]
        with pytest.raises(InvalidParams, match="must be an object"):
            await gateway.call("it", answers=[])  # type: ignore[arg-type]  # as a client may


class Failing(Heard):
    """A caller that can be asked, and cannot answer."""

    async def ask(self, asks: Mapping[str, Any]) -> Mapping[str, Any]:
        raise QuestionFailed("The client could not answer")


async def test_a_caller_that_fails_to_answer_fails_its_own_call_in_words_for_the_model() -> None:
    async with fake_server(asking("s")) as (gateway, _):
        got = told_of(await gateway.call("it", channel=Failing(), version=LEGACY))
    assert (got["isError"], got["content"][0]["text"]) == (True, "The client could not answer")


async def test_an_older_server_is_notified_that_the_caller_could_not_answer() -> None:
    async with crossing(Asker(), LEGACY) as gateway:
        got = told_of(await gateway.call("ask", channel=Failing(), version=LEGACY))
    assert got["isError"]
    assert "could not answer" in got["content"][0]["text"]


class Answering(Heard):
    """A caller that is asked while its call runs."""

    async def ask(self, asks: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict.fromkeys(asks, accept("Ann"))


async def test_a_server_that_asks_without_an_end_is_left() -> None:
    def answer(one: Asked) -> Any:
        asks = {"a": {"method": "elicitation/create", "params": {"message": "Again?", "requestedSchema": FORM}}}
        return result(one, {"resultType": "input_required", "inputRequests": asks})

    async with fake_server(answer) as (gateway, fake):
        got = told_of(await gateway.call("it", channel=Answering(), version=LEGACY))
        assert got["isError"]
        assert fake.methods.count("tools/call") == 16


# -- resources, prompts, completions -----------------------------------------------------------------------------------


def reading_board() -> Board:
    board = Board("library")

    @board.resource("memo://{name}")
    async def memo(name: str, ctx: Context) -> str:
        return f"{name} by {told(await ctx.elicit('Who wrote it?', FORM, key='who'))}"

    @board.prompt
    async def review(code: str) -> str:
        return f"Review {code}"

    @board.complete("review", "code")
    def suggest(typed: str) -> list[str]:
        return ["print", "pass"]

    board.add(lambda: "x", name="x")
    return board


async def forward(gateway: Crossing, method: str, answers: Any = None, ticket: Any = None, **params: Any) -> Reply:
    caller = Caller(version=MODERN, transport="http", principal=Principal("alice"), capabilities=ASKABLE)
    call = Call(method=method, caller=caller, channel=NULL_CHANNEL, name=params.get("uri", ""), ticket=ticket)
    call.params = Raw(msgspec.json.encode({**params, "_meta": {}}))
    call.answers = None if answers is None else Raw(msgspec.json.encode(answers))
    destination = Destination(downstream=gateway.downstream, map_result=lambda result: {**result, "mapped": True})
    return await gateway.forwarder.forward(destination, call, params)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_reads_prompts_and_completions_go_on_and_reads_may_ask(era: str) -> None:
    async with crossing(reading_board(), era) as gateway:
        first = await forward(gateway, "resources/read", uri="memo://today")
        keys, ticket = asked(first)
        read = told_of(await forward(gateway, "resources/read", {keys[0]: accept("Ann")}, ticket, uri="memo://today"))
        assert read["contents"][0]["text"] == "today by Ann"
        assert (read["ttlMs"], read["cacheScope"], read["mapped"]) == (0, "private", True)
        got = told_of(await forward(gateway, "prompts/get", name="review", arguments={"code": "x"}))
        assert got["messages"][0]["content"]["text"] == "Review x"
        ref = {"type": "ref/prompt", "name": "review"}
        found = told_of(
            await forward(gateway, "completion/complete", ref=ref, argument={"name": "code", "value": "pr"})
        )
        assert found["completion"]["values"] == ["print"]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_resource_that_is_not_there_is_not_there_in_every_era(era: str) -> None:
    async with crossing(reading_board(), era) as gateway:
        with pytest.raises(ResourceNotFound) as refused:
            await forward(gateway, "resources/read", uri="none://x")
        assert refused.value.code == -32602


@pytest.mark.parametrize(("method", "odd"), [("prompts/get", {"messages": [1]}), ("resources/read", {"contents": "x"})])
async def test_a_read_that_brings_nothing_is_the_servers_failure(method: str, odd: dict[str, Any]) -> None:
    async with fake_server(lambda one: result(one, {"resultType": "complete", **odd})) as (gateway, _):
        with pytest.raises(InternalFailure, match="The server 'there'"):
            await forward(gateway, method, name="x", uri="x:y")


async def test_a_failed_read_is_an_error_that_names_the_server() -> None:
    async with fake_server(lambda one: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") as (gateway, _):
        with pytest.raises(InternalFailure, match="The server 'there'"):
            await forward(gateway, "prompts/get", name="review")


# -- tasks -------------------------------------------------------------------------------------------------------------

KNOWS_TASKS = {**ASKABLE, **TASKS}


def task_board() -> Board:
    board = Board("tasks")

    @board.tool(task="optional")
    async def index(ctx: Context) -> int:
        await ctx.progress(1, 2, "half")
        return 7

    @board.tool(task="required")
    async def clean(ctx: Context) -> str:
        return f"Removed by {told(await ctx.elicit('Who?', FORM, key='who'))}"

    @board.tool(task="required")
    async def forever() -> str:
        await asyncio.Event().wait()
        return "never"

    return board


async def test_a_task_runs_at_its_server_under_an_id_of_its_principal() -> None:
    async with crossing(task_board(), MODERN) as gateway:
        started = await gateway.call("clean", capabilities=KNOWS_TASKS)
        assert isinstance(started, TaskStarted)
        task_id = started.task["taskId"]
        assert gateway.forwarder.owns(task_id)
        assert not gateway.forwarder.owns("0123456789abcdef0123456789abcdef")
        got = await gateway.task("tasks/get", task_id)
        while got["status"] == "working":
            got = await gateway.task("tasks/get", task_id)
        assert (got["taskId"], got["status"]) == (task_id, "input_required")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(InvalidParams, match="Unknown task"):
                await gateway.task(method, task_id, principal="eve")
        (key,) = got["inputRequests"]
        await gateway.task("tasks/update", task_id, inputResponses={key: accept("Ann")})
        while got["status"] != "completed":
            got = await gateway.task("tasks/get", task_id)
        assert got["result"]["content"][0]["text"] == "Removed by Ann"
        assert got["result"]["resultType"] == "complete"


async def test_a_task_is_cancelled_at_its_server() -> None:
    async with crossing(task_board(), MODERN) as gateway:
        started = await gateway.call("forever", capabilities=KNOWS_TASKS)
        assert isinstance(started, TaskStarted)
        await gateway.task("tasks/cancel", started.task["taskId"])
        assert (await gateway.task("tasks/get", started.task["taskId"]))["status"] == "cancelled"


async def test_who_has_not_the_extension_cannot_ask_after_tasks() -> None:
    async with crossing(task_board(), MODERN) as gateway:
        started = await gateway.call("forever", capabilities=KNOWS_TASKS)
        assert isinstance(started, TaskStarted)
        caller = Caller(version=MODERN, transport="http", principal=Principal("alice"))
        with pytest.raises(MissingCapability):
            await gateway.forwarder.task(
                Call(method="tasks/get", caller=caller, channel=NULL_CHANNEL, name=started.task["taskId"])
            )
        await gateway.task("tasks/cancel", started.task["taskId"])


async def test_a_task_is_waited_for_where_its_caller_is_too_old_to_know_any() -> None:
    async with crossing(task_board(), MODERN) as gateway:
        assert text(await gateway.call("clean", version=LEGACY, channel=Answering())) == "Removed by Ann"
        assert text(await gateway.call("index", version=LEGACY)) == "7"


async def test_a_client_that_could_support_tasks_is_informed_that_the_capability_is_required() -> None:
    async with crossing(task_board(), MODERN) as gateway:
        with pytest.raises(MissingCapability) as refused:
            await gateway.call("clean")
        assert refused.value.data == {"requiredCapabilities": TASKS}
        assert text(await gateway.call("index")) == "7"


async def test_a_task_that_takes_too_long_is_stopped() -> None:
    async with crossing(task_board(), MODERN, max_timeout=0.2) as gateway:
        got = told_of(await gateway.call("forever", version=LEGACY))
        assert got["isError"]
        assert got["_meta"]["dev.pegboard/refused"]["reason"] == "timeout"


def modern_task(states: list[dict[str, Any]], seen: list[str]) -> Any:
    """A server that answers every call by a task."""

    def answer(one: Asked) -> Any:
        seen.append(one.message["method"])
        if one.message["method"] == "tools/call":
            return result(one, {"resultType": "task", "taskId": "t1", "status": "working"})
        if one.message["method"] == "tasks/get":
            state = states.pop(0) if len(states) > 1 else states[0]
            return result(one, {"resultType": "complete", "taskId": "t1", "pollIntervalMs": 1, **state})
        return result(one, {"resultType": "complete"})

    return answer


@pytest.mark.parametrize(
    "odd", [{"status": "completed"}, {"status": "failed"}, {"status": "else"}, {"status": "input_required"}]
)
async def test_a_task_in_no_state_that_there_is_fails_its_server(odd: dict[str, Any]) -> None:
    async with fake_server(modern_task([{"status": "working"}, odd], [])) as (gateway, _):
        got = told_of(await gateway.call("it", version=LEGACY))
    assert got["content"][0]["text"].startswith("[dev/there/it] Error: The server 'there'")


async def test_a_failed_task_is_its_error_and_its_status_is_progress() -> None:
    states = [
        {"status": "working", "statusMessage": "digging"},
        {"status": "working", "statusMessage": "digging"},
        {"status": "failed", "error": {"code": -32602, "message": "no", "data": 7}},
    ]
    heard = Heard()
    async with fake_server(modern_task(states, [])) as (gateway, _):
        with pytest.raises(InvalidParams, match="no") as refused:
            await gateway.call("it", version=LEGACY, token="t", channel=heard)
    assert refused.value.data == 7
    assert [notice.params for notice in heard.notices] == [{"progress": 1, "message": "digging", "progressToken": "t"}]


async def test_a_task_is_cancelled_with_the_call_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.client.polled_tasks.CANCEL_SECONDS", SOON)
    seen: list[str] = []
    async with fake_server(modern_task([{"status": "working"}], seen)) as (gateway, _):
        call = asyncio.create_task(gateway.call("it", version=LEGACY))
        await until(lambda: "tasks/get" in seen)
        call.cancel()
        await until(lambda: "tasks/cancel" in seen)
        await asyncio.wait({call})


def legacy_tasks(states: list[dict[str, Any]], seen: list[str]) -> Any:
    """A server whose tool runs by the older revision's rules for tasks."""

    def answer(one: Asked) -> Any:
        seen.append(one.message["method"])
        match one.message["method"]:
            case "tools/call":
                assert "ttl" in one.message["params"]["task"]
                return result(one, {"task": {"taskId": "t1", "status": "working", "pollInterval": 1}})
            case "tasks/get":
                return result(one, {"taskId": "t1", "pollInterval": 1, **states.pop(0)})
            case "tasks/result":
                return result(one, {"content": [{"type": "text", "text": "at last"}]})
            case _:
                return result(one, {})

    return answer


async def test_an_older_servers_task_is_run_to_its_end() -> None:
    seen: list[str] = []
    states = [{"status": "working"}, {"status": "completed"}]
    tool = {"execution": {"taskSupport": "required"}}
    async with fake_server(legacy_tasks(states, seen), era=LEGACY, **tool) as (gateway, _):
        assert text(await gateway.call("it")) == "at last"
    assert seen[-4:] == ["tools/call", "tasks/get", "tasks/get", "tasks/result"]


async def test_an_older_servers_task_is_cancelled_with_its_call() -> None:
    seen: list[str] = []
    states = [{"status": "working"}] * 10_000
    tool = {"execution": {"taskSupport": "required"}}
    async with fake_server(legacy_tasks(states, seen), era=LEGACY, **tool) as (gateway, _):
        call = asyncio.create_task(gateway.call("it"))
        await until(lambda: "tasks/get" in seen)
        call.cancel()
        await until(lambda: "tasks/cancel" in seen)
        await asyncio.wait({call})


# -- in process --------------------------------------------------------------------------------------------------------


async def test_a_client_in_this_process_is_asked_while_the_call_runs() -> None:
    board = Asker()
    async with (
        crossing(board, LEGACY) as gateway,
        Client(gateway.board, elicit=lambda asked: {"name": asked.message}) as client,
    ):
        assert (await client.call("ask_twice")).text == "First?, then After First??"
        assert len(gateway.forwarder.parking_lot) == 0
