"""The endpoint as an ASGI application: alone, mounted, and under a real server."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from pegboard.limits import Limits
from pegboard.server.asgi.asgi_app import AsgiApp, read_body
from pegboard.server.http_types import Answer, Head, Headers, Sink
from tests.server.fake_transport import Fixed, Script, Scripted, get, until

SSE: Headers = ((b"content-type", b"text/event-stream"),)


def tell(head: Head, body: bytes, sink: Sink) -> Answer:
    """Says what it was given; only one path is the endpoint's."""
    return Answer(200 if head.path == b"/mcp" else 404, head.path + b" " + body, b"text/plain")


def application(script: Script = tell, limits: Limits | None = None, **options: Any) -> AsgiApp:
    return AsgiApp(Fixed(Scripted(script)), limits or Limits(), **options)


class Session:
    """One HTTP exchange in raw ASGI events."""

    def __init__(self, app: AsgiApp, *bodies: bytes, headers: Headers = (), method: str = "POST", **scope: Any) -> None:
        self.app = app
        self.scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "query_string": b"",
            "headers": list(headers),
            **scope,
        }
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        self.slow: asyncio.Event | None = None
        for number, body in enumerate(bodies, 1):
            self.events.put_nowait({"type": "http.request", "body": body, "more_body": number < len(bodies)})

    async def send(self, event: Any) -> None:
        if self.slow is not None:
            await self.slow.wait()
        self.sent.append(event)

    def disconnect(self) -> None:
        self.events.put_nowait({"type": "http.disconnect"})

    async def run(self) -> None:
        await self.app(self.scope, self.events.get, self.send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(event["body"] for event in self.sent[1:])


async def test_an_answer_is_two_events() -> None:
    session = Session(application(lambda *_: Answer(202, b"ok", headers=((b"mcp-session-id", b"7"),))), b"x")
    await session.run()
    assert session.sent == [
        {
            "type": "http.response.start",
            "status": 202,
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"2"), (b"mcp-session-id", b"7")],
        },
        {"type": "http.response.body", "body": b"ok"},
    ]


async def test_a_head_carries_all_that_the_scope_says() -> None:
    heads: list[Head] = []

    def keep(head: Head, body: bytes, sink: Sink) -> Answer:
        heads.append(head)
        return Answer(200)

    fields = ((b"host", b"x"), (b"accept", b"a"), (b"accept", b"b"), (b"mcp-name", b"c"))
    scope = {"query_string": b"q=1", "client": ("192.0.2.7", 1), "server": ("192.0.2.1", 443), "scheme": "https"}
    await Session(application(keep), b"", headers=fields, **scope).run()
    await Session(application(keep), b"", server=("/run/socket", None), client=None).run()
    first, second = heads
    assert first == Head(
        b"POST", b"/mcp", b"q=1", {b"host": b"x", b"accept": b"a, b", b"mcp-name": b"c"}, (b"accept",),
        "192.0.2.7", "192.0.2.1", True,
    )  # fmt: skip
    assert (second.peer, second.server, second.secure) == ("", "", False)


async def test_a_body_in_parts_is_joined() -> None:
    session = Session(application(), b"ab", b"", b"cd")
    await session.run()
    assert session.body == b"/mcp abcd"


async def test_the_answer_to_head_has_no_body() -> None:
    session = Session(application(), b"", method="HEAD")
    await session.run()
    assert (session.status, session.body) == (200, b"")


@pytest.mark.parametrize(
    ("status", "headers", "bodies"),
    [
        (413, ((b"content-length", b"11"),), [b""]),
        (413, ((b"content-length", b"9" * 5000),), [b""]),
        (413, (), [b"x" * 11]),
        (413, (), [b"x" * 6, b"x" * 5]),
        (413, ((b"content-length", b"3"),), [b"x" * 6, b"x" * 5]),
        (415, ((b"content-encoding", b"gzip"),), [b"x"]),
        (400, ((b"host", b"x"), (b"host", b"y")), [b"x"]),
        (400, ((b"content-length", b"1"), (b"content-length", b"1")), [b"x"]),
        (400, ((b"content-length", b"1"), (b"transfer-encoding", b"chunked")), [b"x"]),
        (400, ((b"content-length", b"+1"),), [b"x"]),
    ],
)
async def test_what_our_own_door_refuses_is_refused_here(status: int, headers: Headers, bodies: list[bytes]) -> None:
    session = Session(application(limits=Limits(body_bytes=10)), *bodies, headers=headers)
    await session.run()
    assert session.status == status
    assert (b"connection", b"close") in session.sent[0]["headers"]


async def test_a_client_that_leaves_before_its_request_is_whole_is_not_answered() -> None:
    session = Session(application(), headers=((b"host", b"x"),))
    session.events.put_nowait({"type": "http.request", "body": b"x", "more_body": True})
    session.disconnect()
    await session.run()
    assert session.sent == []


def fail(head: Head, body: bytes, sink: Sink) -> Answer:
    raise LookupError("a secret path")


async def fail_later() -> Answer:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    raise LookupError("a secret path")


async def answer_nothing() -> None:
    return None


async def cancel_itself() -> Answer:
    raise asyncio.CancelledError


def leave_the_house(head: Head, body: bytes, sink: Sink) -> Answer:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "script",
    [
        fail,
        lambda *_: fail_later(),
        lambda *_: answer_nothing(),
        lambda *_: cancel_itself(),
        leave_the_house,
        lambda *_: Answer(200, headers=((b"a", b"b\r\nc: d"),)),
    ],
)
async def test_a_failing_endpoint_is_a_500_with_an_id(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(application(script), b"")
    await session.run()
    assert session.status == 500
    assert b"secret" not in session.body
    assert session.body[-11:-3].decode() in caplog.text


async def test_a_stream_that_never_waits_is_sent_in_one_piece() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        sink.write(b"1")
        sink.write(b"")
        await sink.drain()
        sink.write(b"2")
        sink.end()

    session = Session(application(lambda head, body, sink: stream(sink)), b"")
    await session.run()
    assert session.status == 200
    assert session.sent[1:] == [{"type": "http.response.body", "body": b"12", "more_body": False}]


async def test_a_stream_is_sent_as_it_comes() -> None:
    gate = asyncio.Event()

    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        sink.write(b"1")
        await gate.wait()
        sink.write(b"2")
        sink.end()

    session = Session(application(lambda head, body, sink: stream(sink)), b"")
    running = asyncio.create_task(session.run())
    await until(lambda: len(session.sent) == 2)
    assert session.body == b"1"
    gate.set()
    await running
    assert session.body == b"12"


async def test_what_is_written_while_the_server_is_busy_follows_in_one_piece() -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        for chunk in (b"1", b"2", b"3"):
            sink.write(chunk)
            await asyncio.sleep(0)
        sink.end()
        busy.set()

    session = Session(application(lambda head, body, sink: stream(sink)), b"")
    session.slow = busy = asyncio.Event()
    await session.run()
    assert session.status == 200
    assert session.sent[1:] == [{"type": "http.response.body", "body": b"123", "more_body": False}]


async def test_a_stream_may_outlive_the_coroutine_that_opened_it() -> None:
    sinks: list[Sink] = []

    async def follow(sink: Sink) -> None:
        sink.start(200, SSE)
        sinks.append(sink)

    session = Session(application(lambda head, body, sink: follow(sink)), b"")
    running = asyncio.create_task(session.run())
    await until(lambda: session.sent)
    sinks[0].write(b"1")
    sinks[0].end()
    await running
    assert session.body == b"1"


async def test_a_stream_that_fails_is_left_without_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def stream(sink: Sink) -> None:
        sink.start(200, SSE)
        await asyncio.sleep(0)
        raise LookupError("lost")

    session = Session(application(lambda head, body, sink: stream(sink)), b"")
    await session.run()
    assert [event["type"] for event in session.sent] == ["http.response.start"]
    assert "lost" in caplog.text


async def test_drain_waits_for_a_server_that_takes_its_time() -> None:
    steps: list[int] = []

    async def flood(sink: Sink) -> None:
        sink.start(200, SSE)
        for number in range(100):
            sink.write(b"x" * 1000)
            await sink.drain()
            steps.append(number)
        sink.end()

    session = Session(application(lambda head, body, sink: flood(sink), Limits(write_buffer=5000)), b"")
    session.slow = asyncio.Event()
    running = asyncio.create_task(session.run())
    for _ in range(300):
        await asyncio.sleep(0)
    assert len(steps) == 5
    session.slow.set()
    await running
    assert len(session.body) == 100_000


async def test_a_server_that_takes_too_long_is_taken_as_gone() -> None:
    told: list[str] = []

    async def flood(sink: Sink) -> None:
        sink.on_gone(lambda: told.append("gone"))
        sink.start(200, SSE)
        try:
            while True:
                sink.write(b"x" * 1000)
                await sink.drain()
        except ConnectionError:
            told.append("raised")

    session = Session(
        application(lambda head, body, sink: flood(sink), Limits(write_buffer=100, write_seconds=0.01)), b""
    )
    session.slow = asyncio.Event()
    await session.run()
    assert told == ["gone", "raised"]


@pytest.mark.parametrize("started", [False, True])
async def test_a_disconnect_callback_is_called_once(started: bool) -> None:
    told: list[str] = []
    gate = asyncio.Event()

    async def wait(sink: Sink) -> Answer | None:
        sink.on_gone(lambda: told.append("gone"))
        if started:
            sink.start(200, SSE)
        await gate.wait()
        if started:
            sink.write(b"nobody reads this")
            sink.end()
            return None
        return Answer(200)

    session = Session(application(lambda head, body, sink: wait(sink)), b"")
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    session.disconnect()
    await until(lambda: told)
    assert not running.done(), "the call goes on: what to do about the leave is the endpoint's decision"
    gate.set()
    await running
    assert told == ["gone"]
    assert len(session.sent) == int(started)


async def test_a_call_that_is_cancelled_because_its_client_left_ends_in_peace() -> None:
    async def wait(sink: Sink) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        sink.on_gone(task.cancel)
        await asyncio.Event().wait()
        return Answer(200)

    session = Session(application(lambda head, body, sink: wait(sink)), b"")
    session.disconnect()
    await session.run()
    assert session.sent == []


async def test_a_cancelled_server_task_takes_the_call_with_it() -> None:
    ended: list[str] = []

    async def wait(sink: Sink) -> Answer:
        sink.on_gone(lambda: ended.append("gone"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return Answer(200)

    session = Session(application(lambda head, body, sink: wait(sink)), b"")
    running = asyncio.create_task(session.run())
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: len(ended) == 2)
    assert ended == ["gone", "cancelled"]


async def test_the_app_runs_its_own_lifespan_without_configuration() -> None:
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(events)

    async def send(event: Any) -> None:
        sent.append(event["type"])

    await application()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_turned_away_and_anything_else_is_an_error() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(event: Any) -> None:
        sent.append((event["type"], event["code"]))

    await application()({"type": "websocket", "path": "/mcp"}, receive, send)
    assert sent == [("websocket.close", 4404)]
    with pytest.raises(RuntimeError, match="carrier pigeon"):
        await application()({"type": "carrier pigeon"}, receive, send)


# Where it is mounted.


async def home(request: Any) -> PlainTextResponse:
    return PlainTextResponse("home")


def nested(kind: Callable[..., Any]) -> Any:
    inner, outer = kind(), kind()
    inner.routes.append(application(path="/tools/mcp"))
    outer.mount("/v1", inner)
    return outer


def appended(kind: Callable[..., Any], path: str) -> Any:
    app = kind()
    app.routes.append(application(path=path))
    app.add_route("/later", home)
    return app


def mounted(kind: Callable[..., Any], path: str) -> Any:
    app = kind()
    app.add_route("/home", home)
    app.mount("/", application(path=path))
    return app


PLACES: dict[str, tuple[Callable[[], Any], str]] = {}
for kind in (Starlette, FastAPI):
    name = kind.__name__
    PLACES |= {
        f"{name}: a route": (lambda kind=kind: appended(kind, "/mcp"), "/mcp"),
        f"{name}: a route at another path": (lambda kind=kind: appended(kind, "/tools"), "/tools"),
        f"{name}: a route at a deep path": (lambda kind=kind: appended(kind, "/a/b/c/"), "/a/b/c"),
        f"{name}: among the first routes": (
            lambda kind=kind: kind(routes=[Route("/home", home), application()]),
            "/mcp",
        ),
        f"{name}: a route of an inner application": (lambda kind=kind: nested(kind), "/v1/tools/mcp"),
        f"{name}: mounted at the root": (lambda kind=kind: mounted(kind, "/mcp"), "/mcp"),
        f"{name}: mounted at the root, another path": (lambda kind=kind: mounted(kind, "/tools"), "/tools"),
        f"{name}: mounted below": (
            lambda kind=kind: Starlette(routes=[Mount("/api", kind(routes=[application()]))]),
            "/api/mcp",
        ),
    }
PLACES["alone"] = (application, "/mcp")
PLACES["alone at another path"] = (lambda: application(path="tools"), "/tools")


@pytest.mark.parametrize(("make", "path"), PLACES.values(), ids=PLACES.keys())
async def test_it_answers_where_it_is_put_with_and_without_a_slash_and_never_redirects(
    make: Callable[[], Any], path: str
) -> None:
    transport = httpx.ASGITransport(make())
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for place in (path, path + "/"):
            for method in ("POST", "GET", "DELETE"):
                answer = await client.request(method, place, content=b"body")
                assert (answer.status_code, answer.text) == (200, "/mcp body")
        for place in (path + "x", path + "/x", "/nowhere"):
            assert (await client.post(place)).status_code == 404


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
async def test_it_leaves_the_other_routes_alone(kind: Callable[..., Any]) -> None:
    transport = httpx.ASGITransport(appended(kind, "/mcp"))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.get("/later")).text == "home"
        if kind is FastAPI:
            assert (await client.get("/openapi.json")).status_code == 200


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
async def test_mounted_at_its_own_path_it_answers_behind_the_slash(kind: Callable[..., Any]) -> None:
    app = kind()
    app.mount("/tools", application())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        assert (await client.post("/tools/", content=b"b")).text == "/mcp b"
        # Starlette redirects before a mounted application is asked: the reason why it is a route, too.
        assert (await client.post("/tools", content=b"b")).status_code == 307


async def test_no_name_of_a_url_leads_to_it() -> None:
    app = appended(Starlette, "/mcp")
    assert str(app.url_path_for("home")) == "/later"


# Under a real server.


@asynccontextmanager
async def serving(app: Any, **options: Any) -> Any:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="auto", **options))
        running = asyncio.create_task(server.serve([one]))
        try:
            yield one.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@pytest.mark.parametrize("root", ["", "/behind"])
async def test_uvicorn_serves_it_mounted(root: str) -> None:
    async with (
        serving(appended(FastAPI, "/mcp"), root_path=root) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        for path in ("/mcp", "/mcp/"):
            answer = await client.post(path, content=b"body")
            assert (answer.status_code, answer.text) == (200, "/mcp body")


async def test_uvicorn_tells_of_a_client_that_leaves() -> None:
    gone = asyncio.Event()

    def script(head: Head, body: bytes, sink: Sink) -> Coroutine[Any, Any, Answer | None]:
        async def stream() -> None:
            sink.on_gone(gone.set)
            sink.start(200, SSE)
            sink.write(b"data: 1\n\n")
            await gone.wait()

        async def wait() -> Answer:
            sink.on_gone(gone.set)
            await gone.wait()
            return Answer(200)

        return stream() if head.query else wait()

    async with serving(application(script)) as port:
        for path in ("/mcp", "/mcp?stream"):
            gone.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get(path))
            if "?" in path:
                await reader.readuntil(b"data: 1")
            else:
                await asyncio.sleep(0)
            writer.close()
            await gone.wait()


async def test_uvicorn_streams_with_back_pressure() -> None:
    async def flood(sink: Sink) -> None:
        sink.start(200, SSE)
        for _ in range(100):
            sink.write(b"x" * 100_000)
            await sink.drain()
        sink.end()

    async with (
        serving(application(lambda head, body, sink: flood(sink))) as port,
        httpx.AsyncClient() as client,
        client.stream("POST", f"http://127.0.0.1:{port}/mcp") as answer,
    ):
        total = 0
        async for chunk in answer.aiter_raw():
            total += len(chunk)
        assert total == 10_000_000


async def test_a_body_in_many_small_pieces_takes_about_its_size() -> None:
    pieces = iter([b"ab"] * 200_000)

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        # A copy of its own, as a server makes one.
        return {"type": "http.request", "body": bytes(bytearray(piece or b"")), "more_body": piece is not None}

    tracemalloc.start()
    try:
        body = await read_body(await receive(), receive, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body == b"ab" * 200_000
    assert peak < 4 * 400_000
