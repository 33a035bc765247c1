"""Servers that misbehave: over HTTP a function per request writes whatever it likes, over stdio a few lines of Python."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.body or b"{}")
        return message


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None] | None]


@dataclass
class Fake:
    """A server on a port of its own; `asked` is all that it was asked."""

    answer: Answer
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def methods(self) -> list[str]:
        return [str(asked.message.get("method")) for asked in self.asked if asked.method == "POST"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines if one)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = line.split(" ")
                asked = Asked(method, target, headers, body)
                self.asked.append(asked)
                told = self.answer(asked, writer)
                if told is not None:
                    await told
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def faking(answer: Answer, **how: Any) -> AsyncIterator[Fake]:
    fake = Fake(answer)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, limit=2**20, **how)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for task in fake.tasks:
            task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)


def reply(writer: asyncio.StreamWriter, body: Any, status: str = "200 OK", **headers: str) -> None:
    """A whole answer, of JSON unless it says otherwise."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    writer.write(f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data)


def stream(writer: asyncio.StreamWriter, *events: bytes, **headers: str) -> None:
    """The head of a stream that ends with its connection, and its first events."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{lines}Connection: close\r\n\r\n"
    writer.write(head.encode() + b"".join(events))


def data(message: Any, event_id: str | None = None) -> bytes:
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}data: {json.dumps(message)}\n\n".encode()


def result(asked: Asked, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": value}


def error(asked: Asked, code: int, message: str, about: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": code, "message": message, "data": about}}


def discovered(asked: Asked) -> dict[str, Any]:
    return result(
        asked,
        {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0},
    )


def initialized(asked: Asked) -> dict[str, Any]:
    info = {"name": "fake", "version": "1"}
    return result(asked, {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": info})


def text(asked: Asked, said: str) -> dict[str, Any]:
    return result(asked, {"content": [{"type": "text", "text": said}]})


def modern(call: Answer) -> Answer:
    """A modern server with no tools listed; `call` answers what else it is asked."""

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        match asked.message.get("method"):
            case "server/discover":
                reply(writer, discovered(asked))
            case "tools/list":
                reply(writer, result(asked, {"tools": [], "ttlMs": 60_000}))
            case _:
                return call(asked, writer)
        return None

    return answer


def legacy(call: Answer, session: str = "s1") -> Answer:
    """A legacy server with a session; `call` answers what else it is asked."""

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        match asked.method, asked.message.get("method"):
            case "POST", "server/discover":
                reply(
                    writer,
                    {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no session"}},
                    "400 Bad Request",
                )
            case "POST", "initialize":
                reply(writer, initialized(asked), Mcp_Session_Id=session)
            case "POST", str(method) if method.startswith("notifications/"):
                reply(writer, b"", "202 Accepted")
            case "GET", _ if "last-event-id" not in asked.headers:
                reply(writer, b"", "405 Method Not Allowed")
            case "DELETE", _:
                reply(writer, b"")
            case _:
                return call(asked, writer)
        return None

    return answer


def script(body: str) -> list[str]:
    """The command of a server on stdio that runs these lines; `read()` is the next message, `say(…)` answers."""
    start = (
        "import json, os, sys, time, signal, subprocess\n"
        "def read():\n"
        "    line = sys.stdin.readline()\n"
        "    if not line: sys.exit(0)\n"
        "    return json.loads(line)\n"
        "def say(message):\n"
        "    sys.stdout.write(json.dumps(message) + '\\n'); sys.stdout.flush()\n"
        "def result(asked, value): say({'jsonrpc': '2.0', 'id': asked['id'], 'result': value})\n"
        "def text(asked, said): result(asked, {'content': [{'type': 'text', 'text': said}]})\n"
        "def refuse(asked, code=-32601): say({'jsonrpc': '2.0', 'id': asked['id'], 'error': {'code': code, 'message': 'no'}})\n"
        "def discovered(asked): result(asked, {'supportedVersions': ['2026-07-28'], 'capabilities': {}})\n"
        "def initialized(asked): result(asked, {'protocolVersion': '2025-11-25', 'capabilities': {}, 'serverInfo': {'name': 'f', 'version': '1'}})\n"
        "def shake_hands():\n"
        "    asked = read()\n"
        "    while asked['method'] != 'initialize':\n"
        "        refuse(asked); asked = read()\n"
        "    initialized(asked); read()\n"
    )
    return [sys.executable, "-c", start + body]
