"""A board or gateway behind our own HTTP server in this process, and raw requests to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pegboard import Board, Gateway
from pegboard.protocol.revisions import MODERN
from pegboard.server.http.listener import Http1Server, bind_tcp
from pegboard.server.http_serving import make_endpoint
from pegboard.server.serving_options import resolve_options
from pegboard.server.shared_store import open_shared_store
from tests.server.http_clients import Line, Reply

META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
LEGACY = "2025-11-25"
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}


class Site:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def connect(self) -> Line:
        return Line(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """Send one request on a connection of its own."""
        line = await self.connect()
        try:
            return await line.ask(write_request(method, path, body, headers or {}), method)
        finally:
            line.hang_up()

    async def call(self, tool: str, token: str | None = None, path: str = "/mcp", **arguments: Any) -> Reply:
        """Call a tool as a client of 2026-07-28."""
        return await self.ask("POST", path, *modern_call(tool, token, **arguments))


async def read_to_end(line: Line) -> bytes:
    """Everything that arrives until the server closes the connection or ends its chunked response."""
    received = b""
    async with asyncio.timeout(60):
        try:
            while not received.endswith(b"0\r\n\r\n") and (part := await line._reader.read(65536)):
                received += part
        except ConnectionError:
            pass
        finally:
            line.hang_up()
    return received


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def write_request(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {"Host": "127.0.0.1", "Accept": "application/json, text/event-stream", **headers}
    if body:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def modern_call(tool: str, token: str | None = None, **arguments: Any) -> tuple[bytes, dict[str, str]]:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    return body, {**headers, **bearer(token)}


def legacy_message(
    method: str, token: str | None = None, session: str | None = None, **params: Any
) -> tuple[bytes, dict[str, str]]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"MCP-Protocol-Version": LEGACY} if session else {}
    return body, {**headers, **({"Mcp-Session-Id": session} if session else {}), **bearer(token)}


@asynccontextmanager
async def serving(app: Board | Gateway, **options: Any) -> AsyncIterator[Site]:
    """Serve over HTTP, as `pegboard run` does."""
    resolved = resolve_options(options, {})
    async with open_shared_store(resolved["store"], app) as shared:
        endpoint = make_endpoint(app, resolved, shared)
        sockets = bind_tcp("127.0.0.1", 0)
        server = Http1Server(endpoint, app.limits, sockets)
        await server.start()
        try:
            yield Site(sockets[0].getsockname()[1])
        finally:
            await endpoint.drain(0, asyncio.Event())
            await server.close()
            await app.stop()
