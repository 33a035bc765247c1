"""The deprecated endpoints and `/ws` cost nothing until a client uses them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

SERVE = """
import asyncio, json, sys
from pegboard import Board, Limits
from pegboard.server import hosting
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
HEAD = "host: localhost\\r\\naccept: application/json, text/event-stream\\r\\ncontent-type: application/json\\r\\n"

async def main():
    board = Board("light")
    doors = ("rpc", "oneshot", "sse")
    endpoint = HttpEndpoint(board.handler, board.info, limits=Limits(), guard=Guard(), legacy_endpoints=doors, websocket=True)
    server = await listen(endpoint, Limits())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for line in sys.argv[1:]:
        writer.write(f"{line} HTTP/1.1\\r\\n{HEAD}content-length: {len(BODY)}\\r\\n\\r\\n{BODY}".encode())
        status = await reader.readline()
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        length = next(int(one[15:]) for one in head.lower().splitlines() if one.startswith(b"content-length:"))
        await reader.readexactly(length)
        print(status.decode().split()[1])
    writer.close()
    await server.close()

asyncio.run(main())
print(json.dumps(sorted(sys.modules)))
"""


def loaded_after(*requests: str) -> tuple[list[str], set[str]]:
    """The status of each response, and those of the deferred packages that a fresh process has loaded for them."""
    command = [sys.executable, "-c", SERVE, *requests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    *statuses, modules = done.stdout.splitlines()
    packages = ("pegboard.server.deprecated", "pegboard.server.websocket", "websockets")
    loaded = [module + "." for module in json.loads(modules)]
    return statuses, {package for package in packages if any(one.startswith(package + ".") for one in loaded)}


def test_serving_mcp_loads_neither_the_deprecated_endpoints_nor_websockets() -> None:
    assert loaded_after("POST /mcp") == (["200"], set())


def test_the_first_request_to_a_deprecated_endpoint_loads_it() -> None:
    assert loaded_after("POST /mcp", "POST /rpc") == (["200", "200"], {"pegboard.server.deprecated"})


def test_the_first_request_to_ws_loads_its_endpoint() -> None:
    # Without an upgrade: the protocol's implementation is still not needed.
    assert loaded_after("POST /mcp", "GET /ws") == (["200", "426"], {"pegboard.server.websocket"})
