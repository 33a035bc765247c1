"""One battery for every target: what a client does is the same in process, over HTTP, HTTP+SSE, WebSocket and stdio, in either era."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client, ToolError
from pegboard.call import Change
from pegboard.client.client_channel import Elicitation
from pegboard.errors import ConnectionLost, InvalidParams, MalformedMessage, ResponseTimeout
from tests.client.battery_board import Point
from tests.client.process_leftovers import nothing_left
from tests.server_processes import PEGBOARD, HttpChild

pytestmark = pytest.mark.process

FILE = Path(__file__).with_name("battery_board.py")
OLD = "2024-11-05"
LEGACY = "2025-11-25"
MODERN = "2026-07-28"

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HttpChild(target=FILE) as child:
        yield f"http://127.0.0.1:{child.port}/mcp"


@pytest.fixture(scope="module")
def first_url() -> Iterator[str]:
    """A server that has nothing for a POST here: HTTP+SSE of 2024-11-05."""
    with HttpChild("--legacy-endpoints", "sse", target=FILE) as child:
        yield f"http://127.0.0.1:{child.port}/sse"


@pytest.fixture(
    params=[
        ("direct", None),
        ("direct", "rounds"),
        ("http", None),
        ("http", MODERN),
        ("http", LEGACY),
        ("http", "2025-03-26"),
        ("ws", None),
        ("ws", LEGACY),
        ("sse", None),
        ("stdio", None),
        ("stdio", LEGACY),
        pytest.param(("stdio", OLD), marks=pytest.mark.slow),
    ],
    ids=lambda about: "-".join(filter(None, about)),
)
def connect(request: pytest.FixtureRequest) -> Connect:
    transport, version = request.param
    if transport == "direct":
        spec = importlib.util.spec_from_file_location("battery_board_alone", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return lambda **more: Client(module.board, rounds=version == "rounds", **more)
    if transport == "sse":
        first_url: str = request.getfixturevalue("first_url")
        return lambda **more: Client(first_url, **more)
    if transport in ("http", "ws"):
        url: str = request.getfixturevalue("url")
        address = url if transport == "http" else url.replace("http:", "ws:").replace("/mcp", "/ws")
        return lambda **more: Client(address, version=version, **more)
    command = [*PEGBOARD, "run", str(FILE), "--stdio"]
    return lambda **more: Client(command, version=version, connect_timeout=30, **more)


def answering() -> dict[str, Any]:
    """What answers everything a tool can ask."""

    def elicit(asked: Elicitation) -> dict[str, Any]:
        properties = asked.schema["properties"]
        return {"name": "nuts"} if "count" in properties else {"value": "Ada"}

    return {"elicit": elicit, "sample": lambda params: "Hello Ada", "roots": ["file:///work"]}


async def test_tools_are_listed_and_called(connect: Connect) -> None:
    async with nothing_left(), connect() as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert tools["add"]["description"] == "Adds two numbers."
        assert (await client.call("add", {"a": 2, "b": 3})).text == "5"
        results = await asyncio.gather(*(client.call("add", {"a": number, "b": 0}) for number in range(100)))
        assert [result.text for result in results] == [str(number) for number in range(100)]


async def test_the_server_says_who_it_is(connect: Connect) -> None:
    async with connect() as client:
        about = await client.discover()
        assert about["instructions"] == "Try everything."
        assert client.version in about["supportedVersions"]
        assert about["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "battery"


async def test_a_result_may_be_a_value_of_a_type(connect: Connect) -> None:
    async with connect() as client:
        assert await client.call("move", {"x": 1, "y": 2}, result_type=Point) == Point(2, 3)
        assert await client.call("add", {"a": 1, "b": 2}, result_type=int) == 3
        with pytest.raises(ToolError, match="not today"):
            await client.call("fail", result_type=int)
        with pytest.raises(MalformedMessage, match="not a Point"):
            await client.call("add", {"a": 1, "b": 2}, result_type=Point)


async def test_a_tool_that_is_not_there_is_refused(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(InvalidParams, match="'add'"):
            await client.call("adda")
        result = await client.call("fail")
        assert (result.is_error, result.text) == (True, "not today")


async def test_progress_and_logs_are_heard_on_the_way(connect: Connect) -> None:
    steps: list[Any] = []
    logs: list[Any] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        steps.append((done, total))

    async with connect(log=lambda level, data: logs.append((level, data))) as client:
        assert (await client.call("climb", {"steps": 3}, progress=hear)).text == "up"
        assert steps == [(1, 3), (2, 3), (3, 3)]
        await client.call("grumble")
        assert logs == [("warning", "mind the gap")]


async def test_what_a_tool_asks_is_answered(connect: Connect) -> None:
    async with nothing_left(), connect(**answering()) as client:
        if client.version < "2025-06-18":
            return
        assert (await client.call("order")).text == "3 nuts"
        assert (await client.call("interview")).text == "Hello Ada ['file:///work']"


async def test_what_a_user_declines_is_declined(connect: Connect) -> None:
    async with connect(elicit=lambda asked: None) as client:
        if client.version >= "2025-06-18":
            assert (await client.call("order")).text == "decline"


async def test_resources_prompts_and_completions(connect: Connect) -> None:
    async with connect() as client:
        assert [one["uri"] for one in await client.list_resources()] == ["memo://today"]
        assert [one["uriTemplate"] for one in await client.list_templates()] == ["memo://days/{day}"]
        assert (await client.read("memo://today"))[0]["text"] == "sunny"
        assert (await client.read("memo://days/monday"))[0]["text"] == "rain on monday"
        assert [one["name"] for one in await client.list_prompts()] == ["review"]
        (message,) = await client.prompt("review", {"code": "x = 1"})
        assert message["content"]["text"] == "Review x = 1"
        with pytest.raises(InvalidParams):
            await client.read("memo://nowhere")


async def test_a_cancelled_call_is_cancelled_at_the_server(connect: Connect, request: pytest.FixtureRequest) -> None:
    key = request.node.name
    async with nothing_left(), connect() as client:
        call = asyncio.create_task(client.call("hold", {"key": key}))
        await client.call("is_held", {"key": key})
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        assert (await client.call("was_stopped", {"key": key})).text == "true"


async def test_silence_ends_at_the_deadline_and_stops_the_call(
    connect: Connect, request: pytest.FixtureRequest
) -> None:
    key = request.node.name
    async with nothing_left(), connect() as client:
        for seconds in (0.2, 2, 20):
            with pytest.raises(ResponseTimeout, match=f"no response to tools/call within {seconds} s"):
                await client.call("hold", {"key": key}, timeout=seconds)
            # On a busy machine a short deadline can pass before the request reaches the server.
            if (await client.call("has_begun", {"key": key})).text == "true":
                break
        assert (await client.call("was_stopped", {"key": key})).text == "true"


async def test_changes_are_heard(connect: Connect, request: pytest.FixtureRequest) -> None:
    async with nothing_left(), connect() as client:
        heard: list[Change] = []
        done = asyncio.Event()

        async def listen() -> None:
            async for change in client.listen(tools=True, uris=["memo://today"]):
                heard.append(change)
                if {Change("tools"), Change("updated", "memo://today")} <= set(heard):
                    done.set()

        listening = asyncio.create_task(listen())

        async def stir() -> None:
            number = 0
            while not done.is_set():
                number += 1
                await client.call("grow", {"name": f"{request.node.callspec.id}_{number}".replace("-", "_")})
                await client.call("touch", {"uri": "memo://today"})
                await asyncio.sleep(0.05)

        async with asyncio.timeout(20):
            await stir()
        assert set(heard) == {Change("tools"), Change("updated", "memo://today")}
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


async def test_a_long_answer_comes_whole(connect: Connect) -> None:
    async with connect() as client:
        assert len((await client.call("long", {"size": 10_000_000})).text) == 10_000_000


async def test_a_client_may_be_opened_again_and_closed_it_does_nothing(connect: Connect) -> None:
    client = connect()
    async with nothing_left():
        for _ in range(2):
            async with client:
                assert (await client.call("add", {"a": 2, "b": 3})).text == "5"
        if client._link.transport != "direct":
            with pytest.raises(ConnectionLost, match="this client is closed"):
                await client.call("add", {"a": 2, "b": 3})


async def test_arguments_that_a_tool_wants_in_headers_are_sent_so(connect: Connect) -> None:
    async with connect() as client:
        for region in ("eu", "Hällo", " padded ", "two\nlines", "", "=?base64?eA==?="):
            assert (await client.call("route", {"region": region, "size": -7})).text == f"{region} -7"
