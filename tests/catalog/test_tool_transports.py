"""Tools for some transports only: others are not shown them, and are told the way when they call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Tool, ToolConnector
from pegboard.errors import DeclarationError
from tests.server_processes import PEGBOARD, HttpChild, StdioChild, WsChild, modern

BOARD = """
from pegboard import Board, ToolConnector

board = Board("ways")

@board.tool(transports=["ws"])
async def upload(connector: ToolConnector) -> int:
    return sum([len(chunk) async for chunk in connector])

@board.tool(transports=["stdio", "http"])
def local() -> str:
    return "here"

@board.tool
def anywhere() -> str:
    return "anywhere"
"""

SHOWN = {"http": ["local", "anywhere"], "stdio": ["local", "anywhere"], "ws": ["upload", "anywhere"]}
CHILDREN: dict[str, Callable[[Path], Any]] = {
    "http": lambda place: HttpChild(target=place),
    "stdio": lambda place: StdioChild(*PEGBOARD, "run", place, "--stdio"),
    "ws": lambda place: WsChild(target=place),
}


@pytest.mark.process
@pytest.mark.parametrize("way", SHOWN)
def test_each_transport_lists_its_own_tools_and_refers_to_other_transports_for_the_rest(
    way: str, tmp_path: Path
) -> None:
    place = tmp_path / "ways.py"
    place.write_text(BOARD)
    with CHILDREN[way](place) as server:
        listed = ask(server, "tools/list", {})
        assert [tool["name"] for tool in listed["tools"]] == SHOWN[way]
        other, told = ("local", "connect over stdio or http") if way == "ws" else ("upload", "connect over /ws")
        result = ask(server, "tools/call", {"name": other, "arguments": {}})
        assert result["isError"]
        assert result["content"][0]["text"] == f"{other} cannot be called over {way}; {told}"
        result = ask(server, "tools/call", {"name": "anywhere", "arguments": {}})
        assert result["content"][0]["text"] == "anywhere"


def ask(server: Any, method: str, params: dict[str, Any]) -> Any:
    if not isinstance(server, HttpChild) or isinstance(server, WsChild):
        return server.request(method, modern(params))["result"]
    connection = server.connect()
    headers = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": params.get("name", ""),
    }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": modern(params)}
    connection.request("POST", "/mcp", json.dumps(body), {name: value for name, value in headers.items() if value})
    answer: Any = json.loads(connection.getresponse().read())["result"]
    connection.close()
    return answer


def test_a_list_is_the_same_object_for_all_where_no_tool_is_choosy() -> None:
    board = Board("plain")
    board.add(lambda: 1, name="one")
    whole = board.tools.listing()
    assert all(board.tools.listing(way) is whole for way in ("http", "stdio", "ws", "direct"))
    board.add(lambda: 2, name="two", transports=["ws"])
    assert board.tools.listing("ws") is board.tools.listing()
    assert board.tools.listing("http") is board.tools.listing("http")
    assert len(board.tools.listing("http").value["tools"]) == 1
    board.remove("two")
    assert board.tools.listing("http") is board.tools.listing("ws")


async def test_in_the_same_process_everything_is_there() -> None:
    board = Board("near")

    class Declared(Tool):
        name = "declared"
        transports = ("stdio",)

        def execute(self, _context: Any) -> str:
            return "yes"

    board.add(Declared())
    async with Client(board) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["declared"]
        assert (await client.call("declared")).text == "yes"


@pytest.mark.parametrize("given", ["ws", ["websocket"], [7]])
def test_a_transport_that_does_not_exist_is_refused(given: Any) -> None:
    async def upload(connector: ToolConnector) -> None: ...

    with pytest.raises(DeclarationError, match="use a list of some of http, stdio, ws"):
        Board("wrong").add(upload, transports=given)
