"""A record says from where a call came: over HTTP in both eras, over a WebSocket, and through a trusted proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard import Board
from pegboard import Client as RemoteClient
from pegboard.middleware import Audit
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.middleware.audit.audit_records import records_of


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
async def test_a_record_has_the_address_of_the_client(tmp_path: Path, scheme: str, version: str) -> None:
    board, audit = Board(), Audit(tmp_path)
    board.tool(lambda: "done", name="work")
    board.use(audit)
    server = await listen(HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard()), board.limits)
    path = "mcp" if scheme == "http" else "ws"
    async with RemoteClient(f"{scheme}://127.0.0.1:{server.port}/{path}", version=version) as client:
        for _ in range(2):
            await client.call("work")
    await server.close()
    audit.close()
    assert [record["address"] for record in records_of(tmp_path)] == ["127.0.0.1"] * 2


async def test_a_trusted_proxy_names_the_address(tmp_path: Path) -> None:
    board, audit = Board(), Audit(tmp_path)
    board.tool(lambda: "done", name="work")
    board.use(audit)
    guard = Guard(proxies=["127.0.0.1"])
    server = await listen(HttpEndpoint(board.handler, board.info, limits=board.limits, guard=guard), board.limits)
    headers = {"X-Forwarded-For": "203.0.113.7"}
    async with RemoteClient(f"http://127.0.0.1:{server.port}/mcp", headers=headers) as client:
        await client.call("work")
    await server.close()
    audit.close()
    assert [record["address"] for record in records_of(tmp_path)] == ["203.0.113.7"]
