"""A door without connections: requests go to an endpoint by hand, and what it says is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from pegboard.call import Call, Done, EncodedResult, Handler, Notification, Reply
from pegboard.errors import UnknownTool
from pegboard.limits import Limits
from pegboard.protocol.framing.sse import Event, EventReader
from pegboard.protocol.revisions import MODERN, SUPPORTED
from pegboard.server import eager_task
from pegboard.server.http.guard import Guard
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "probe", "version": "1", "title": "Probe"}
BOTH = "application/json, text/event-stream"


class RecordedSink:
    """A Sink that keeps what is streamed; it holds its user to the contract of the real ones."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.written = bytearray()
        self.started = asyncio.Event()
        self.ended = False
        self.gone = False
        self._callbacks: list[Callable[[], None]] = []
        self._room = asyncio.Event()
        self._room.set()

    def start(self, status: int, headers: Headers) -> None:
        if self.started.is_set() or self.ended:
            raise RuntimeError("the response has already started")
        self.status, self.headers = status, headers
        self.started.set()

    def write(self, chunk: bytes) -> bool:
        self._check_open()
        if not self.gone:
            self.written += chunk
        return self._room.is_set() and not self.gone

    def flush(self) -> None:
        self._check_open()

    async def drain(self) -> None:
        await self._room.wait()
        if self.gone:
            raise ConnectionError("the client has disconnected, or has read too slowly for too long")

    def end(self) -> None:
        self._check_open()
        self.ended = True

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self.gone:
            asyncio.get_running_loop().call_soon(callback)
        elif not self.ended:
            self._callbacks.append(callback)

    def _check_open(self) -> None:
        if not self.started.is_set() or self.ended:
            raise RuntimeError("the response is not open")

    # What the other end does.

    def leave(self) -> None:
        self.gone = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self._room.set()

    def clog(self) -> None:
        self._room.clear()

    def unclog(self) -> None:
        self._room.set()


class Response:
    """What came back, whether in one piece or as a stream."""

    def __init__(self, status: int, headers: Headers, content_type: bytes, body: bytes) -> None:
        self.status = status
        self.fields = headers
        self.headers = {name.decode(): value.decode() for name, value in headers}
        self.content_type = content_type.decode()
        self.body = body

    @property
    def json(self) -> Any:
        """The one JSON value of the answer: the body, or the last event of the stream."""
        return json.loads(self.events[-1].data if self.content_type == "text/event-stream" else self.body)

    @property
    def events(self) -> list[Event]:
        return list(EventReader().feed(self.body))

    @property
    def messages(self) -> list[Any]:
        return [json.loads(event.data) for event in self.events if event.data]

    @property
    def code(self) -> int | None:
        """The JSON-RPC error code; None for a result."""
        return self.json.get("error", {}).get("code")

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])


class Visit:
    """One request that has been handed in."""

    def __init__(self, outcome: EndpointResult, sink: RecordedSink) -> None:
        self.sink = sink
        self._answer: Answer | None = None
        self._task: asyncio.Task[Answer | None] | None = None
        if outcome is None or isinstance(outcome, Answer):
            self._answer = outcome
        elif isinstance(outcome, asyncio.Task):
            self._task = outcome
        else:
            self._task = eager_task.start(outcome, loop=asyncio.get_running_loop())

    async def response(self) -> Response:
        answer = self._answer if self._task is None else await self._task
        await self.settled()
        if answer is not None:
            assert not self.sink.started.is_set(), "answered twice"
            self.sink.ended = True
            return Response(answer.status, answer.headers, answer.content_type, answer.body)
        assert self.sink.ended or self.sink.gone, "neither an answer nor the end of a stream"
        headers = dict(self.sink.headers)
        return Response(
            self.sink.status, self.sink.headers, headers.get(b"content-type", b""), bytes(self.sink.written)
        )

    async def settled(self) -> None:
        """Wait for the endpoint to be done with it, whatever it said."""
        if self._task is not None:
            await self._task
            # What is told of a task's end is told in the turn after it.
            await asyncio.sleep(0)


class Probe:
    """A Handler whose tools do what a test needs, and say what became of them."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.arrivals: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.finished = asyncio.Event()
        self.late: asyncio.Task[None] | None = None
        self.calls: list[Call] = []
        tools = [{"name": "echo", "title": "Echo", "icons": [], "annotations": {}, "inputSchema": {"type": "object"}}]
        self._listing = EncodedResult({"tools": tools, "ttlMs": 0, "cacheScope": "public"})
        self._discovery = EncodedResult(
            {"supportedVersions": list(SUPPORTED), "capabilities": {"tools": {}}, "ttlMs": 1, "cacheScope": "public"}
        )

    async def __call__(self, call: Call) -> Reply:
        self.calls.append(call)
        match call.method, call.name:
            case "server/discover", _:
                return Done(self._discovery)
            case "tools/list", _:
                return Done(self._listing)
            case _, "echo":
                return said(bytes(call.raw).decode())
            case _, "steps":
                for done in (1, 2):
                    await self.progress(call, done)
                return said("done")
            case _, "slow":
                return await self._wait(call)
            case _, "chatty":
                await self.progress(call, 1)
                return await self._wait(call)
            case _, "afterwards":
                self.late = asyncio.ensure_future(self._speak_later(call))
                return said("done")
            case _, "number":
                return Done({"content": [], "structuredContent": 7}, wrapped=True)
            case _, "surrogate":
                return said("\ud800")
            case _, "broken":
                raise ValueError("a secret")
        raise UnknownTool(f"Unknown tool: {call.name!r}")

    async def wait_for_calls(self, count: int) -> None:
        """Return once so many calls are waiting to be released."""
        for _ in range(count):
            await self.arrivals.get()

    async def progress(self, call: Call, done: float) -> None:
        params = {"progressToken": call.token, "progress": done, "message": f"step {done}"}
        await call.channel.emit(Notification("notifications/progress", params))

    async def _wait(self, call: Call) -> Reply:
        self.started.set()
        self.arrivals.put_nowait(call.name)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if call.name == "chatty":
            await self.progress(call, 2)
        self.finished.set()
        return said("done")

    async def _speak_later(self, call: Call) -> None:
        await self.release.wait()
        await self.progress(call, 9)


def said(text: str) -> Reply:
    return Done({"content": [{"type": "text", "text": text}]})


class Door:
    """An endpoint with a Probe behind it, and requests to put to it."""

    def __init__(
        self,
        limits: Limits | None = None,
        guard: Guard | None = None,
        handler: Handler | None = None,
        info: Mapping[str, Any] = INFO,
        **settings: Any,
    ) -> None:
        self.probe = Probe()
        self.endpoint = HttpEndpoint(
            handler or self.probe, info, limits=limits or Limits(), guard=guard or Guard(), **settings
        )

    def send(
        self,
        body: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        query: str = "",
        repeated: tuple[str, ...] = (),
        server: str = "127.0.0.1",
        peer: str = "127.0.0.1",
    ) -> Visit:
        """Hand in a request; a header of None is left out."""
        sent: dict[str, str | None] = {"host": "127.0.0.1:7332", "content-type": "application/json", "accept": BOTH}
        for name, value in (headers or {}).items():
            sent[name.lower()] = value
        fields = {name.encode(): value.encode("latin-1") for name, value in sent.items() if value is not None}
        head = Head(
            method.encode(),
            path.encode(),
            query.encode(),
            fields,
            tuple(name.encode() for name in repeated),
            peer,
            server,
        )
        sink = RecordedSink()
        return Visit(self.endpoint.accept(head, body, sink), sink)

    def modern(self, method: str = "tools/list", params: Mapping[str, Any] | None = None, **options: Any) -> Visit:
        headers = options.pop("headers", {})
        request_id = options.pop("request_id", 1)
        meta = options.pop("meta", {})
        body = request(method, {**(params or {}), "_meta": {**envelope(), **meta}}, request_id)
        return self.send(body, {**mirror(method, params), **headers}, **options)

    def call(self, name: str, **options: Any) -> Visit:
        """A modern tools/call."""
        return self.modern("tools/call", {"name": name, "arguments": options.pop("arguments", {})}, **options)

    async def initialize(self, version: str = "2025-11-25", **options: Any) -> Response:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        return await self.send(request("initialize", params), **options).response()

    async def open_session(self, version: str = "2025-11-25") -> Legacy:
        response = await self.initialize(version)
        assert response.status == 200, response.body
        return Legacy(self, response.headers["mcp-session-id"], version)

    async def is_alive(self) -> bool:
        """Whether the next good request is served."""
        response = await self.modern().response()
        return response.status == 200 and "tools" in response.json["result"]


class Legacy:
    """A session of a legacy client."""

    def __init__(self, door: Door, session: str, version: str) -> None:
        self.door = door
        self.id = session
        self.headers = {"mcp-session-id": session, "mcp-protocol-version": version}

    def send(self, body: bytes, headers: Mapping[str, str | None] | None = None, **options: Any) -> Visit:
        return self.door.send(body, {**self.headers, **(headers or {})}, **options)

    def ask(self, method: str, params: Mapping[str, Any] | None = None, request_id: Any = 1, **options: Any) -> Visit:
        return self.send(request(method, params, request_id), **options)

    def call(self, name: str, request_id: Any = 1, token: Any = None, **options: Any) -> Visit:
        params: dict[str, Any] = {"name": name, "arguments": {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.ask("tools/call", params, request_id, **options)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Response:
        return await self.send(notification(method, params)).response()

    async def delete(self) -> Response:
        return await self.send(b"", method="DELETE").response()


def envelope(version: str = MODERN) -> dict[str, Any]:
    return {
        PREFIX + "protocolVersion": version,
        PREFIX + "clientInfo": {"name": "t", "version": "1"},
        PREFIX + "clientCapabilities": {},
    }


def mirror(method: str, params: Mapping[str, Any] | None = None, version: str = MODERN) -> dict[str, str | None]:
    """The headers that go with a modern body."""
    headers: dict[str, str | None] = {"mcp-protocol-version": version, "mcp-method": method}
    name = (params or {}).get("name")
    if isinstance(name, str):
        headers["mcp-name"] = name
    return headers


def request(method: Any, params: Any = None, request_id: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return json.dumps(message if params is None else {**message, "params": params}).encode()


def notification(method: str, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method}
    return json.dumps(message if params is None else {**message, "params": params}).encode()
