"""`pegboard dev` loads a board again when its file is edited."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.server_processes import PEGBOARD, Child, HttpChild, finish
from tests.waiting import wait_until

pytestmark = pytest.mark.process

BOARD = """
import asyncio
from pathlib import Path
from pegboard import Board

board = Board("shop")

@board.tool
def price() -> str:
    return "old"

@board.tool
async def steps(gate: str) -> str:
    Path(gate + ".seen").touch()
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return price()

@board.tool
def fail() -> str:
    raise RuntimeError("out of stock")
"""
MORE = """
@board.tool
def stock() -> int:
    return 5
"""
LEGACY = "2025-11-25"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop.py"
    made.write_text(BOARD)
    return made


@pytest.fixture
def server(file: Path) -> Iterator[HttpChild]:
    with HttpChild(target=file, verb="dev") as started:
        yield started
        started.signal()
        assert started.wait() == 0


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def post(server: HttpChild, method: str, params: dict[str, Any], session: str = "") -> tuple[str, bytes]:
    """The session and the body of the response to a legacy request."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with closing(server.connect()) as connection:
        connection.request("POST", server.path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.headers["Mcp-Session-Id"] or "", response.read()


def begin_session(server: HttpChild) -> str:
    about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    session, answer = post(server, "initialize", about)
    assert session, answer
    return session


def test_an_edit_is_served_and_a_running_call_finishes_in_its_version(server: HttpChild, file: Path) -> None:
    gate = file.with_name("gate")
    running = server.start_call("steps", gate=str(gate))
    wait_until(Path(f"{gate}.seen").exists)
    edit(file, '"old"', '"new"')
    wait_until(lambda: server.text("price") == "new")
    assert "reloaded in" in server.said()
    wait_until(lambda: "the previous version finishes 1 call (steps), for up to 600 s" in server.said())
    assert "shutting down" not in server.said()
    gate.touch()
    assert finish(running)[1]["result"]["content"][0]["text"] == "old"


def test_a_mistake_is_reported_with_its_line_until_it_is_fixed(server: HttpChild, file: Path) -> None:
    edit(file, "board = Board", "board == Board")
    wait_until(lambda: f"{file}:6: NameError" in server.said())
    assert server.text("price") == "old"
    edit(file, "board == Board", "board = Board(")
    wait_until(lambda: "SyntaxError" in server.said())
    assert server.said().count("the previous version is served until it is fixed") == 2
    file.write_text(BOARD.replace('"old"', '"new"'))
    wait_until(lambda: server.text("price") == "new")


def test_a_session_outlives_an_edit_and_its_client_is_notified_of_new_tools(server: HttpChild, file: Path) -> None:
    session = begin_session(server)
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    with closing(server.connect()) as connection:
        connection.request("GET", server.path, headers=headers)
        stream = connection.getresponse()
        file.write_text(BOARD + MORE)
        # The version before notifies its subscribers, then ends their streams.
        assert b"notifications/tools/list_changed" in stream.read()
    assert b'"text":"5"' in post(server, "tools/call", {"name": "stock", "arguments": {}}, session)[1]
    assert "changed: tools" in server.said()


def test_callers_on_this_machine_see_the_traceback_of_a_tool_that_fails(server: HttpChild) -> None:
    shown = server.text("fail")
    assert "RuntimeError: out of stock" in shown
    assert "shop.py" in shown


def test_a_board_that_cannot_be_loaded_at_first_is_served_once_it_is_fixed(file: Path) -> None:
    file.write_text("import beside\n" + BOARD)
    with Child(*PEGBOARD, "dev", file, "--port", "0", stdin=subprocess.DEVNULL, stdout=None) as server:
        wait_until(lambda: "ModuleNotFoundError: No module named 'beside'  (waiting for an edit)" in server.said())
        file.with_name("beside.py").write_text("one = 1")
        wait_until(lambda: "shop: 3 tools, ready" in server.said())
        server.signal()
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [(("--stdio",), "--reload are for HTTP"), (("--http", "--workers", "2"), "--reload serve with one worker")],
)
def test_what_cannot_be_reloaded_is_rejected(file: Path, more: tuple[str, ...], told: str) -> None:
    with Child(*PEGBOARD, "run", file, "--reload", *more, stdin=subprocess.DEVNULL) as server:
        assert server.wait() == 2
        assert told in server.said()
