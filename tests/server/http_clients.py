"""Real connections to a listening server: bytes out, and what comes back as a foreign parser reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import h11

from pegboard.protocol.framing.sse import Event, EventReader
from tests.server.fake_sink import BOTH, notification, request


class Reply:
    """One response as a foreign parser reads it."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def messages(self) -> list[Any]:
        return [json.loads(event.data) for event in EventReader().feed(self.body) if event.data]

    @property
    def json(self) -> Any:
        return self.messages[-1] if self.headers["content-type"] == "text/event-stream" else json.loads(self.body)


class Line:
    """One connection to the house."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.CLIENT)

    async def ask(self, raw: bytes, method: str = "POST") -> Reply:
        """Send bytes and read the response to them."""
        await self.say(raw, method)
        return await self.on_message()

    async def say(self, raw: bytes, method: str = "POST") -> None:
        if self._parser.our_state is h11.DONE:
            self._parser.start_next_cycle()
        # What is sent is raw; the parser has only to know that something was.
        self._parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self._parser.send(h11.EndOfMessage())
        self._writer.write(raw)
        await self._writer.drain()

    async def on_message(self) -> Reply:
        status, headers, body = 0, {}, bytearray()
        async for event in self.events():
            if isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
        return Reply(status, headers, bytes(body))

    async def events(self) -> AsyncIterator[Any]:
        """The parts of one response as they come."""
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                assert not isinstance(event, h11.ConnectionClosed), "closed without an answer"
                yield event

    def hang_up(self) -> None:
        self._writer.transport.abort()

    async def is_closed(self) -> bool:
        try:
            return not await self._reader.read(1)
        except ConnectionError:
            return True


class Response:
    """A response that is read as it comes."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.events: list[Event] = []
        self.ended = False
        self._reader = EventReader()
        self._parts = line.events()

    @property
    def messages(self) -> list[Any]:
        """What has come so far."""
        return [json.loads(event.data) for event in self.events if event.data]

    @property
    def json(self) -> Any:
        return self.messages[-1] if self.events else json.loads(self.body)

    @property
    def last_id(self) -> str:
        return next(event.id for event in reversed(self.events) if event.id is not None)

    async def begin(self) -> Response:
        """Wait for the head."""
        async for part in self._parts:
            if isinstance(part, h11.Response):
                self.status = part.status_code
                self.headers = {name.decode(): value.decode() for name, value in part.headers}
                return self
        raise AssertionError("no head")

    async def read(self, messages: int) -> list[Any]:
        """Wait until so many messages have come, or the end."""
        while len(self.messages) < messages and not self.ended:
            await self._read_part()
        return self.messages

    async def read_event(self) -> Event:
        """Wait for the next event, whatever it holds."""
        before = len(self.events)
        while len(self.events) == before:
            assert not self.ended, "the stream has ended"
            await self._read_part()
        return self.events[before]

    async def rest(self) -> list[Any]:
        """Wait for the end, and all messages."""
        while not self.ended:
            await self._read_part()
        return self.messages

    async def _read_part(self) -> None:
        async with asyncio.timeout(10):
            part = await anext(self._parts, None)
        if part is None:
            self.ended = True
        elif isinstance(part, h11.Data):
            self.body += bytes(part.data)
            if self.headers["content-type"] == "text/event-stream":
                self.events.extend(self._reader.feed(bytes(part.data)))


class Peer:
    """A client of the older revisions with a session; each of its requests has a connection of its own."""

    def __init__(self, port: int, version: str = "2025-11-25") -> None:
        self._port = port
        self._lines: list[Line] = []
        self.version = version
        self.session = ""

    async def initialize(self, capabilities: Mapping[str, Any] | None = None) -> None:
        info = {"name": "t", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": capabilities or {}, "clientInfo": info}
        answer = await self.ask("initialize", params, 0)
        assert answer.status == 200, answer.body
        self.session = answer.headers["mcp-session-id"]

    async def send(self, verb: str, body: bytes = b"", **headers: str | None) -> Response:
        """Send a request and wait for the head of its response; a header of None is left out."""
        fields: dict[str, str | None] = {
            "host": f"127.0.0.1:{self._port}",
            "content-type": "application/json",
            "accept": BOTH,
            "content-length": str(len(body)),
        }
        if self.session:
            fields |= {"mcp-session-id": self.session, "mcp-protocol-version": self.version}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
        line = Line(*await asyncio.open_connection("127.0.0.1", self._port))
        self._lines.append(line)
        await line.say("\r\n".join([*lines, "", ""]).encode() + body, verb)
        return await Response(line).begin()

    async def ask(self, method: str, params: Any = None, request_id: Any = 1, **headers: str | None) -> Response:
        """A request, and its response to the end."""
        response = await self.send("POST", request(method, params, request_id), **headers)
        await response.rest()
        return response

    def start(self, tool: str, request_id: Any = 1, **arguments: Any) -> asyncio.Task[Response]:
        """Call a tool that says something; done with the head of the response."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"t{request_id}"}}
        return asyncio.ensure_future(self.send("POST", request("tools/call", params, request_id)))

    async def answer(self, request_id: Any, **outcome: Any) -> Response:
        """Answer a question of the server."""
        response = await self.send("POST", json.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}).encode())
        await response.rest()
        return response

    async def notify(self, method: str, params: Any) -> int:
        return (await self.send("POST", notification(method, params))).status

    async def come_back(self, last: str | None, **headers: str | None) -> Response:
        return await self.send("GET", b"", **{"accept": "text/event-stream", "last_event_id": last, **headers})

    def close(self) -> None:
        for line in self._lines:
            line.hang_up()
