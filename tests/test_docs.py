"""Every Python snippet of the documents stands in the example it names, and every example runs."""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from pegboard import Board, Client
from pegboard.protocol.revisions import TASKS
from pegboard.repair import repairer
from tests.server.fake_sink import envelope, mirror, request

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "tools",
        "arguments",
        "providers",
        "asking",
        "tasks",
        "client",
        "streaming",
        "serving",
        "gateway",
        "testing",
        "composition",
        "security",
        "rules",
        "limits",
    )
]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str]]:
    return [(path.name, found) for path in DOCUMENTS for found in SNIPPET.findall(path.read_text())]


def test_there_are_snippets() -> None:
    assert len(snippets()) >= 8


@pytest.mark.parametrize(("document", "snippet"), snippets())
def test_a_snippet_stands_in_the_example_it_names(document: str, snippet: str) -> None:
    first, _, code = snippet.partition("\n")
    named = re.fullmatch(r"# (examples/\w+\.py)", first)
    assert named, f"{document}: the first line of a snippet names its example"
    assert code in (ROOT / named[1]).read_text()


def test_the_document_of_repairs_lists_every_code() -> None:
    told = re.findall(r"^    ((?:\w+, )*\w+,?)(?:  |$)", repairer.__doc__ or "", re.MULTILINE)
    codes = {code for line in told for code in re.findall(r"\w+_\w+", line)}
    assert len(codes) > 25
    text = (ROOT / "docs" / "arguments.md").read_text()
    assert {code for code in codes if f"`{code}`" not in text} == set()


def test_the_loop_of_your_own_runs() -> None:
    command = [sys.executable, str(ROOT / "examples" / "embedded.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[:2] == ["success 5", '[ParseWarning] a: string "2" read as number 2']


def test_every_kind_of_server_is_used() -> None:
    command = [sys.executable, str(ROOT / "examples" / "using_servers.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    told = done.stdout.splitlines()
    assert [line.partition(": ")[2] for line in told if ": Order" in line] == ["Order(item='apples', count=1)"] * 3
    assert told.count("packed") == 3
    assert "no program 'no-such-program'" in told[-1]


async def test_a_gateway_is_served_from_python() -> None:
    gateway = importlib.import_module("examples.gateway").gateway
    async with Client(gateway) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert "office__hello__add" in names
        assert (await client.call("office__hello__add", {"a": 1, "b": "2"})).text == "3"


async def test_a_mounted_board_shows_its_console_to_the_user_of_the_application() -> None:
    example = importlib.import_module("examples.mounted_console")
    transport = httpx.ASGITransport(example.app)
    async with example.mounted, httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/console/api/me")).json()["rights"] == ["read"]


async def test_a_mounted_board_lives_with_its_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mounted = importlib.import_module("examples.mounted")
    async with (
        mounted.lifespan(mounted.app),
        httpx.AsyncClient(transport=httpx.ASGITransport(mounted.app), base_url="http://127.0.0.1") as client,
    ):
        params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        answer = await client.post(
            "/mcp",
            content=request("tools/call", {**params, "_meta": envelope()}),
            headers={name: value for name, value in (headers | mirror("tools/call", params)).items() if value},
        )
        assert answer.json()["result"]["content"][0]["text"] == "3"
        assert (tmp_path / "mounted.db").exists()


async def test_the_services_are_injected() -> None:
    board: Board = importlib.import_module("examples.services").board
    async with Client(board) as client:
        assert (await client.call("fetch", {"key": 7})).text == "Hello, row 7"
        assert list((await client.list_tools())[0]["inputSchema"]["properties"]) == ["key"]


async def test_the_route_and_the_tool_share_what_the_lifespan_opens() -> None:
    board: Board = importlib.import_module("examples.webhook").board
    app = board.asgi()
    async with (
        app,
        Client(board) as client,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
    ):
        made = await http.post("/orders", json={"item": "apples"})
        assert (made.status_code, made.json(), made.headers["location"]) == (201, {"number": 1}, "/orders/1")
        assert (await http.get("/status")).text == "open"
        assert (await client.call("count_orders")).text == "1"


async def test_a_board_is_composed_of_boards_servers_and_transformed_tools() -> None:
    board: Board = importlib.import_module("examples.composing").board
    async with asyncio.timeout(60), Client(board) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert {"notes.search", "summary", "find_recipe"} <= {*names}
        assert "notes.erase" not in names
        assert (await client.call("summary", {"topic": "tea"})).text == "2 notes. The note today."
        found = await client.call("find_recipe", {"dish": "soup", "limit": 1})
        assert found.structured == {"result": ["recipes: soup"]} or found.structured == ["recipes: soup"]


async def test_the_tools_that_ask_are_answered() -> None:
    asking = importlib.import_module("examples.asking")

    def fill_in(asked: Any) -> dict[str, Any]:
        if "go" in asked.message:
            return {"where": "Rome", "days": "4"}
        named = {"Which": "blue", "A new": "shopping"}
        return {"value": next((value for begin, value in named.items() if asked.message.startswith(begin)), True)}

    async with Client(
        asking.board, elicit=fill_in, sample=lambda _: "Call them both.", roots=["file:///work"]
    ) as client:
        assert (await client.call("book")).text == "Booked 4 days in Rome, economy class."
        assert (await client.call("shorten", {"name": "call"})).text == "Call them both."
        assert (await client.call("set_up")).text == "blue, in file:///work"
        assert (await client.call("draw_lots", {"first": "Ada", "second": "Ada"})).text == "Ada wins."
        assert (await client.call("rename_note", {"name": "milk"})).text == "There are now: call, shopping"
        assert (await client.call("delete_note", {"name": "call"})).text == "Deleted call."


async def test_the_tools_of_tasks_run_as_tasks_and_without() -> None:
    board: Board = importlib.import_module("examples.tasks").board
    async with Client(board) as client:
        assert (await client.call("index", {"folder": "docs"})).text == "3 files of docs are indexed."
    able = {"extensions": {TASKS: {}}}
    async with Client(board, capabilities=able, elicit=lambda _: {"value": True}) as client:
        for tool, arguments, result in (
            ("index", {"folder": "docs"}, "3 files of docs are indexed."),
            ("clean_up", {"folder": "docs"}, "Removed."),
            ("deploy", {"version": "1.2"}, "1.2 is deployed."),
        ):
            task = {"taskId": (await client.request("tools/call", {"name": tool, "arguments": arguments}))["taskId"]}
            told = {"remove": {"action": "accept", "content": {"value": True}}}
            async with asyncio.timeout(20):
                while (found := await client.request("tasks/get", task))["status"] != "completed":
                    await client.request("tasks/update", {**task, "inputResponses": told})
                    await asyncio.sleep(0.001)
            assert found["result"]["content"][0]["text"] == result
