"""Tasks, by the rules of the extension `io.modelcontextprotocol/tasks`."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest

from pegboard import Board, Context, ToolError
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, TaskStarted
from pegboard.errors import InternalFailure, InvalidParams
from tests.requirements.clients import MODERN, Client, connect
from tests.requirements.test_asks import filled, tool
from tests.requirements.test_changes import Listener
from tests.waiting import SOON

TASKS = "io.modelcontextprotocol/tasks"
ABLE: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {}}
GONE = "f" * 32


class House:
    """A board whose tools run as tasks, and what holds them up."""

    def __init__(self) -> None:
        self.board = Board("tasks", version="1")
        self.go_on = asyncio.Event()
        self.stopped = asyncio.Event()
        self.release = asyncio.Event()

        @self.board.tool(task="optional")
        async def work(ctx: Context) -> str:
            """Works until it is told to go on."""
            await ctx.progress(1, 2, "half")
            await ctx.log("error", "working")
            await self.go_on.wait()
            return "worked"

        @self.board.tool(task="required")
        async def toil() -> str:
            """Has to be a task."""
            return "toiled"

        @self.board.tool(task="optional")
        async def sorry() -> str:
            """Fails in its own words."""
            raise ToolError("cannot")

        @self.board.tool(task="optional")
        async def broken() -> str:
            """Ends in an error of the protocol."""
            raise InternalFailure("no disk")

        @self.board.tool(task="optional")
        async def stubborn() -> str:
            """Does not stop when it is told to."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.set()
                await self.release.wait()
            return "went on"

        @self.board.tool(task="optional")
        async def ask(ctx: Context) -> str:
            """Asks three things, the first two under one key."""
            told = [await ctx.elicit("One?", str, key="same"), await ctx.elicit("Two?", str, key="same")]
            async with asyncio.TaskGroup() as group:
                last = [group.create_task(_asked(ctx, text)) for text in ("Three?", "Four?")]
            return " ".join(str(one) for one in [*(one.content for one in told), *(task.result() for task in last)])

        @self.board.tool(task="optional")
        async def ask_number(ctx: Context) -> str:
            """Asks for a number."""
            return str((await ctx.elicit("How many?", int, key="number")).content)

        @self.board.tool
        async def plain() -> str:
            """Is never a task."""
            return "plain"

        self.board.resource("x://a")(lambda: "a")


async def _asked(ctx: Context, text: str) -> Any:
    return (await ctx.elicit(text, str)).content


async def start(client: Client, name: str, **more: Any) -> str:
    started = await client.result("tools/call", tool(name, **more))
    assert started["resultType"] == "task"
    return str(started["taskId"])


async def get(client: Client, task: str) -> Any:
    return await client.result("tasks/get", {"taskId": task})


async def wait_for(client: Client, task: str, status: str, questions: int = 0) -> Any:
    async with asyncio.timeout(SOON):
        while True:
            found = await get(client, task)
            if found["status"] == status and len(found.get("inputRequests", ())) >= questions:
                return found
            await asyncio.sleep(0)


@pytest.mark.requirement(
    "modern/tasks/result-type",
    "modern/tasks/durable-first",
    "modern/tasks/get-working",
    "modern/tasks/get-completed",
    "modern/tasks/get-complete-type",
)
async def test_a_task_can_be_queried_once_announced_and_finally_has_its_result() -> None:
    house = House()
    client = await connect(house.board, "modern", ABLE)
    task = await start(client, "work")
    other = await connect(house.board, "modern", ABLE)
    for one in (client, other):
        found = await get(one, task)
        assert (found["resultType"], found["status"], found["taskId"]) == ("complete", "working", task)
        assert "result" not in found
    house.go_on.set()
    found = await wait_for(client, task, "completed")
    assert found["resultType"] == "complete"
    assert found["result"]["content"] == [{"type": "text", "text": "worked"}]


@pytest.mark.requirement(
    "modern/tasks/capability-declared",
    "modern/tasks/capability-required",
    "modern/tasks/older-capability-is-none",
    "modern/versioning/extension-fallback",
)
@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"extensions": {}},
        {"extensions": {"com.example/tasks": {}}},
        {"tasks": {"requests": {"tools": {"call": {}}}}},
    ],
)
async def test_a_client_without_the_extension_gets_no_task(declared: dict[str, Any]) -> None:
    house = House()
    house.go_on.set()
    able = await connect(house.board, "modern", ABLE)
    await start(able, "work")
    client = await connect(house.board, "modern", declared)
    done = await client.result("tools/call", tool("work"))
    assert (done["resultType"], done["content"][0]["text"]) == ("complete", "worked")
    response = await client.response("tools/call", tool("toil"))
    assert (response.status, response.code) == (400, -32021)
    assert response.json["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.mark.requirement("modern/tasks/methods-capability")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_who_did_not_declare_the_extension_cannot_ask_after_tasks(method: str) -> None:
    house = House()
    task = await start(await connect(house.board, "modern", ABLE), "work")
    client = await connect(house.board, "modern")
    response = await client.response(method, {"taskId": task, "inputResponses": {}})
    assert (response.status, response.code) == (400, -32021)
    assert response.json["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    house.go_on.set()


@pytest.mark.requirement("modern/tasks/result-type-alone", "modern/base/result-types-known")
async def test_nothing_else_has_the_type_of_a_task() -> None:
    house = House()
    house.go_on.set()
    client = await connect(house.board, "modern", ABLE)
    task = await start(client, "work")
    for method, params in (
        ("server/discover", {}),
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/read", {"uri": "x://a"}),
        ("tools/call", tool("plain")),
        ("tasks/get", {"taskId": task}),
        ("tasks/update", {"taskId": task, "inputResponses": {}}),
        ("tasks/cancel", {"taskId": task}),
    ):
        assert (await client.result(method, params))["resultType"] == "complete"
    assert list((await client.capabilities())["extensions"]) == [TASKS]


@pytest.mark.requirement("modern/tasks/get-cancelled", "modern/tasks/cancel-empty")
async def test_a_task_that_is_cancelled_says_so_and_stays_so() -> None:
    house = House()
    client = await connect(house.board, "modern", ABLE)
    task = await start(client, "stubborn")
    answer = await client.result("tasks/cancel", {"taskId": task})
    assert set(answer) - {"_meta"} == {"resultType"}
    assert answer["resultType"] == "complete"
    await wait_for(client, task, "cancelled")
    await house.stopped.wait()
    house.release.set()
    assert (await client.result("tasks/cancel", {"taskId": task}))["resultType"] == "complete"
    assert (await get(client, task))["status"] == "cancelled"


@pytest.mark.requirement("modern/tasks/get-failed", "modern/tasks/error-kept", "modern/tasks/failed-is-protocol")
async def test_an_error_of_the_protocol_is_the_failure_of_a_task() -> None:
    client = await connect(House().board, "modern", ABLE)
    found = await wait_for(client, await start(client, "broken"), "failed")
    assert (found["error"]["code"], found["error"]["message"]) == (-32603, "no disk")
    assert "result" not in found


@pytest.mark.requirement("modern/tasks/tool-error-completed", "modern/tasks/failed-is-protocol")
async def test_a_tool_that_says_it_failed_has_completed() -> None:
    client = await connect(House().board, "modern", ABLE)
    found = await wait_for(client, await start(client, "sorry"), "completed")
    assert (found["result"]["isError"], found["result"]["content"][0]["text"]) == (True, "cannot")
    assert "error" not in found


@pytest.mark.requirement("modern/tasks/get-input-required", "modern/tasks/keys-unique", "modern/tasks/update-empty")
async def test_a_task_that_asks_shows_every_open_question_under_a_key_of_its_own() -> None:
    client = await connect(House().board, "modern", ABLE)
    task = await start(client, "ask")
    seen: list[str] = []
    for answer, questions in (("1", 1), ("2", 1), ("3", 2)):
        asked = (await wait_for(client, task, "input_required", questions))["inputRequests"]
        assert len(asked) == questions
        assert all(question["method"] == "elicitation/create" for question in asked.values())
        seen += asked
        told = await client.result(
            "tasks/update", {"taskId": task, "inputResponses": {key: filled(answer) for key in (*asked, "unknown")}}
        )
        assert set(told) - {"_meta"} == {"resultType"}
        assert told["resultType"] == "complete"
        # An answer to what was answered already changes nothing.
        await client.result("tasks/update", {"taskId": task, "inputResponses": {seen[0]: filled("late")}})
    found = await wait_for(client, task, "completed")
    assert found["result"]["content"][0]["text"] == "1 2 3 3"
    assert len(set(seen)) == len(seen) == 4


@pytest.mark.requirement("modern/tasks/keys-unique")
async def test_a_question_that_is_asked_again_has_another_key() -> None:
    client = await connect(House().board, "modern", ABLE)
    task = await start(client, "ask_number")
    seen: list[str] = []
    for answer in ("many", "several", 3):
        (key,) = (await wait_for(client, task, "input_required", 1))["inputRequests"]
        seen.append(key)
        await client.result("tasks/update", {"taskId": task, "inputResponses": {key: filled(answer)}})
    assert (await wait_for(client, task, "completed"))["result"]["content"][0]["text"] == "3"
    assert len(set(seen)) == 3


@pytest.mark.requirement("modern/tasks/unknown-task")
@pytest.mark.parametrize("task", [GONE, "", "é", "x" * 5000])
async def test_an_unknown_task_is_rejected_as_invalid_params(task: str) -> None:
    client = await connect(House().board, "modern", ABLE)
    headers = {"taskId": task}
    response = await client.response("tasks/get", headers)
    assert (response.status, response.code in (-32602, -32020)) == (400, True)
    assert (await client.error("tasks/get", {"taskId": GONE}))["code"] == -32602


@pytest.mark.requirement("modern/tasks/ids-unguessable")
async def test_ids_of_tasks_have_128_bits_of_chance() -> None:
    house = House()
    house.go_on.set()
    client = await connect(house.board, "modern", ABLE)
    ids = [await start(client, "work") for _ in range(20)]
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    assert len(set(ids)) == 20
    # No digit stands still, as it would in a counter or a clock.
    assert all(len({one[at] for one in ids}) > 1 for at in range(32))


class _Caller:
    def __init__(self, board: Board, principal: str) -> None:
        self._handler = board.handler
        self._caller = Caller(version=MODERN, transport="http", principal=Principal(principal), capabilities=ABLE)

    async def ask(self, method: str, name: str) -> Any:
        answers = msgspec.Raw(b"{}") if method == "tasks/update" else None
        call = Call(method=method, caller=self._caller, channel=NULL_CHANNEL, id=1, name=name, answers=answers)
        return await self._handler(call)


@pytest.mark.requirement("modern/tasks/auth-each-request")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_task_of_one_principal_is_unknown_to_every_other(method: str) -> None:
    house = House()
    ada, bob, nobody = (_Caller(house.board, principal) for principal in ("ada", "bob", ""))
    started = await ada.ask("tools/call", "work")
    assert isinstance(started, TaskStarted)
    task = started.task["taskId"]
    for thief in (bob, nobody):
        with pytest.raises(InvalidParams, match="Unknown task"):
            await thief.ask(method, task)
    assert (await ada.ask("tasks/get", task)).result["status"] == "working"
    house.go_on.set()


@pytest.mark.requirement("modern/tasks/no-progress-on-listen")
async def test_no_listener_hears_what_a_task_says_on_its_way() -> None:
    house = House()
    client = await connect(house.board, "modern", ABLE)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]}
    listener = Listener(client.ask("subscriptions/listen", {"notifications": wanted}, token="l"))
    await listener.hears(lambda: listener.heard)
    task = await start(client, "work", _meta={"io.modelcontextprotocol/logLevel": "debug", "progressToken": "t"})
    house.go_on.set()
    assert (await wait_for(client, task, "completed"))["result"]
    house.board.resource_changed("x://a")
    await listener.hears(lambda: len(listener.heard) >= 2)
    assert not {"notifications/progress", "notifications/message"} & set(listener.methods)


@pytest.mark.requirement("modern/versioning/extension-names")
async def test_extensions_are_named_with_a_prefix() -> None:
    names = list((await (await connect(House().board, "modern", ABLE)).capabilities())["extensions"])
    label = "[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
    assert names
    assert all(re.fullmatch(rf"{label}(\.{label})*/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name) for name in names)


@pytest.mark.requirement("legacy/tasks/extension-unknown", "legacy/tasks/undeclared-ignored")
async def test_the_extension_makes_no_tasks_for_clients_of_2025_11_25() -> None:
    house = House()
    house.go_on.set()
    client = await connect(house.board, "legacy", ABLE)
    assert not {"tasks", "extensions"} & set(await client.capabilities())
    done = await client.result("tools/call", tool("work", task={"ttl": 1000}))
    assert done["content"][0]["text"] == "worked"
    assert (await client.error("tasks/get", {"taskId": GONE}))["code"] == -32601
    assert "error" in (await client.response("tools/call", tool("toil"))).json


@pytest.mark.requirement("modern/tasks/notices-capability")
async def test_asking_for_notices_of_tasks_takes_the_extension() -> None:
    house = House()
    task = await start(await connect(house.board, "modern", ABLE), "work")
    client = await connect(house.board, "modern", {})
    response = await client.response("subscriptions/listen", {"notifications": {"taskIds": [task]}})
    assert (response.status, response.code) == (400, -32021)
    assert response.json["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    house.go_on.set()
