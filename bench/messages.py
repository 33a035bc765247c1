"""The messages that are measured, as bytes on a wire, in both eras."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientInfo": {"name": "bench", "version": "1.0.0"},
    PREFIX + "clientCapabilities": {},
}

ADD: tuple[str, dict[str, Any]] = ("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
LIST: tuple[str, dict[str, Any]] = ("tools/list", {})
STEPS = ("tools/call", {"name": "steps", "arguments": {"count": 10}})
INITIALIZE = (
    "initialize",
    {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1.0.0"}},
)

# More than are ever in flight together: no id meets itself, and the load generator has nothing to build. As with real
# clients ids go up one by one, arguments differ, and so does now and then the length of a body.
NUMBERS = range(1000, 2024)


def write(method: str, params: Mapping[str, Any], number: int | None) -> bytes:
    """One JSON-RPC message, a notification where there is no number."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else {**message, "id": number}, separators=(",", ":")).encode()


def modern(method: str, params: Mapping[str, Any], number: int, *, token: bool = False) -> bytes:
    """A request of 2026-07-28; with a progress token of its own where progress is wanted."""
    meta = {**ENVELOPE, "progressToken": number} if token else ENVELOPE
    return write(method, {**params, "_meta": meta}, number)


def post(port: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body in a request of HTTP/1.1, with the headers a client sends."""
    lines = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **headers,
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def modern_posts(port: int, method: str, params: Mapping[str, Any], *, token: bool = False) -> list[bytes]:
    """Modern requests that differ in their ids and arguments."""
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return [post(port, modern(method, vary(params, number), number, token=token), headers) for number in NUMBERS]


def legacy_posts(port: int, method: str, params: Mapping[str, Any], *sessions: str, token: bool = False) -> list[bytes]:
    """Legacy requests of these sessions in turn that differ in their ids and arguments."""
    return [
        post(
            port,
            write(method, {**vary(params, number), **({"_meta": {"progressToken": number}} if token else {})}, number),
            {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session},
        )
        for number, session in zip(NUMBERS, cycle(sessions), strict=False)
    ]


def mixed_posts(port: int, method: str, params: Mapping[str, Any], sessions: Sequence[str]) -> list[bytes]:
    """Legacy requests whose sessions take turns, as a proxy sends them that shares its connections among its clients."""
    # 1,024 requests are a multiple of 16 connections: without a shift, each connection would get one session.
    posts = [legacy_posts(port, method, params, session) for session in sessions]
    return [posts[(at + at // len(posts)) % len(posts)][at] for at in range(len(NUMBERS))]


def vary(params: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """The same call with another number to add."""
    if not params.get("name", "").endswith("add"):
        return params
    return {**params, "arguments": {**params["arguments"], "b": number - NUMBERS.start + 3}}
