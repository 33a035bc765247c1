"""Boards in FastAPI and Starlette applications: one line each, at any path, with and without a trailing slash."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount, Route

from pegboard import Board, Client, Context
from tests.server_processes import MODERN, modern
from tests.waiting import SOON, wait_until

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MODERN,
}


def make_board(name: str = "mounted") -> Board:
    board = Board(name)

    @board.tool
    def add(a: float, b: float) -> float:
        return a + b

    @board.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    @board.tool
    def whoami() -> str:
        return name

    return board


def body(tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> bytes:
    params = modern({"name": tool, "arguments": arguments}, **(meta or {}))
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def headers(tool: str) -> dict[str, str]:
    return {**HEADERS, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def fastapi_route(board: Board) -> Any:
    app = FastAPI()
    app.router.routes.append(board.asgi())
    return app


def fastapi_route_first(board: Board) -> Any:
    app = FastAPI()
    app.routes.append(board.asgi())

    @app.get("/items/{item}")
    def read_item(item: str) -> str:
        return item

    return app


def starlette_route(board: Board) -> Any:
    app = Starlette()
    app.routes.append(board.asgi())
    return app


def starlette_routes(board: Board) -> Any:
    return Starlette(routes=[Route("/", lambda request: None), board.asgi()])  # type: ignore[list-item]


def standalone(board: Board) -> Any:
    return board.asgi()


PLAIN = [fastapi_route, fastapi_route_first, starlette_route, starlette_routes, standalone]


@contextlib.asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def answer(client: httpx.AsyncClient, path: str, tool: str, **arguments: Any) -> str:
    response = await client.post(path, content=body(tool, **arguments), headers=headers(tool))
    assert response.status_code == 200, (path, response.status_code, response.text)
    assert not response.history
    text: str = response.json()["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("make", PLAIN)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_a_board_answers_with_and_without_a_trailing_slash(make: Callable[[Board], Any], path: str) -> None:
    async with client_of(make(make_board())) as client:
        assert await answer(client, path, "add", a=1, b=2) == "3"
        assert await answer(client, path, "whoami") == "mounted"


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
@pytest.mark.parametrize("path", ["/", "/tools", "/a/b/c"])
async def test_a_board_answers_at_any_path(framework: Callable[[], Any], path: str) -> None:
    app = framework()
    app.router.routes.append(make_board().asgi(path=path))
    async with client_of(app) as client:
        assert await answer(client, path, "whoami") == "mounted"
        assert await answer(client, path.rstrip("/") + "/", "whoami") == "mounted"
        other = await client.post("/elsewhere", content=body("whoami"), headers=headers("whoami"))
        assert other.status_code in (404, 405)


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_a_mounted_board_answers_below_its_mounting_point(framework: Callable[[], Any]) -> None:
    app = framework()
    app.mount("/tools", make_board().asgi())
    async with client_of(app) as client:
        assert await answer(client, "/tools/", "whoami") == "mounted"
        assert await answer(client, "/tools/mcp", "whoami") == "mounted"
        assert await answer(client, "/tools/mcp/", "whoami") == "mounted"


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_a_board_below_a_mounted_application_answers_too(framework: Callable[[], Any]) -> None:
    inner = Starlette()
    inner.routes.append(make_board().asgi())
    app = framework()
    app.mount("/v1", inner)
    async with client_of(app) as client:
        assert await answer(client, "/v1/mcp", "whoami") == "mounted"
        assert await answer(client, "/v1/mcp/", "whoami") == "mounted"


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_several_boards_live_in_one_application(framework: Callable[[], Any]) -> None:
    app = framework()
    for name in ("one", "two", "three"):
        app.router.routes.append(make_board(name).asgi(path=f"/{name}/mcp"))
    app.mount("/four", make_board("four").asgi())
    async with client_of(app) as client:
        for name in ("one", "two", "three"):
            assert await answer(client, f"/{name}/mcp", "whoami") == name
            assert await answer(client, f"/{name}/mcp/", "whoami") == name
        assert await answer(client, "/four/mcp", "whoami") == "four"


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_a_board_added_as_a_route_answers_at_exactly_that_path(framework: Callable[[], Any]) -> None:
    app = framework()
    app.add_route("/mcp", make_board().asgi())
    async with client_of(app) as client:
        assert await answer(client, "/mcp", "whoami") == "mounted"


async def test_the_routes_of_the_application_go_on_working() -> None:
    async with client_of(fastapi_route_first(make_board())) as client:
        assert (await client.get("/items/spoon")).json() == "spoon"
        assert (await client.get("/openapi.json")).status_code == 200
        assert (await client.get("/nothing")).status_code == 404


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_the_origins_of_the_applications_cors_middleware_are_allowed(framework: Callable[[], Any]) -> None:
    app = framework()
    app.routes.append(make_board().asgi())
    app.add_middleware(CORSMiddleware, allow_origins=["https://app.example.com", "*"], allow_methods=["*"])
    async with client_of(app) as client:
        for origin, status in (("https://app.example.com", 200), ("https://evil.example", 403)):
            response = await client.post(
                "/mcp", content=body("whoami"), headers={**headers("whoami"), "Origin": origin}
            )
            assert response.status_code == status, response.text
            assert len(response.headers.get_list("access-control-allow-origin")) == 1


@pytest.mark.parametrize(
    ("words", "variable", "store", "warned"),
    [
        (["uvicorn", "shop:app", "--workers", "2"], "", "memory", True),
        (["gunicorn", "-w4", "shop:app"], "", "memory", True),
        (["uvicorn", "shop:app"], "3", "memory", True),
        (["uvicorn", "shop:app", "--workers=2"], "", "sqlite:shop.db", False),
        (["uvicorn", "shop:app", "--workers", "1"], "3", "memory", False),
        (["pytest"], "", "memory", False),
    ],
)
def test_several_processes_without_a_store_are_warned_about(
    words: list[str],
    variable: str,
    store: str,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setenv("WEB_CONCURRENCY", variable)
    make_board().asgi(store=store)
    assert ('use asgi(store="sqlite:PATH")' in caplog.text) is warned


async def test_a_session_of_another_process_is_rejected_with_the_cure() -> None:
    async with client_of(make_board().asgi()) as client:
        response = await client.post(
            "/mcp",
            content=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(),
            headers={**HEADERS, "MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "of-another-process"},
        )
        assert response.status_code == 404
        assert "replicas of a server need a common store" in response.json()["error"]["message"]
        params = modern({"name": "steps", "arguments": {}, "requestState": "A" * 80})
        sent = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        response = await client.post("/mcp", content=sent, headers=headers("steps"))
        assert "need a common store or PEGBOARD_SECRET" in response.json()["error"]["message"]


async def test_a_legacy_client_is_served_where_the_board_is_mounted() -> None:
    async with client_of(fastapi_route(make_board())) as client:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        plain = {name: value for name, value in HEADERS.items() if name != "MCP-Protocol-Version"}
        begun = await client.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=plain
        )
        plain["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
        listed = await client.post("/mcp/", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=plain)
        assert len(listed.json()["result"]["tools"]) == 3


async def test_a_call_with_something_to_say_streams() -> None:
    async with client_of(fastapi_route(make_board())) as client:
        response = await client.post("/mcp", content=body("steps", {"progressToken": "t"}), headers=headers("steps"))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
    assert [event.get("method", "answer") for event in events] == ["notifications/progress", "answer"]


def test_one_application_serves_one_loop_after_the_other() -> None:
    app = fastapi_route(make_board())

    async def ask() -> str:
        async with client_of(app) as client:
            return await answer(client, "/mcp", "add", a=1, b=2)

    for _ in range(3):
        assert asyncio.run(asyncio.wait_for(ask(), SOON)) == "3"


# -- under a real server ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["h11", "httptools"])
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """A FastAPI application with two boards, under uvicorn."""
    app = FastAPI()
    app.router.routes.append(make_board("routed").asgi())
    app.mount("/tools", make_board("mounted").asgi())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="error", http=request.param, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(SOON)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/mcp", "routed"),
        ("/mcp/", "routed"),
        ("/tools/", "mounted"),
        ("/tools/mcp", "mounted"),
        ("/tools/mcp/", "mounted"),
    ],
)
def test_uvicorn_serves_a_board_at_its_path_without_a_redirect(served: str, path: str, name: str) -> None:
    with httpx.Client(base_url=served, timeout=SOON) as client:
        response = client.post(path, content=body("whoami"), headers=headers("whoami"))
        assert response.status_code == 200, response.text
        assert response.json()["result"]["content"][0]["text"] == name


def test_uvicorn_streams_what_a_call_says(served: str) -> None:
    with (
        httpx.Client(base_url=served, timeout=SOON) as client,
        client.stream(
            "POST", "/mcp", content=body("steps", {"progressToken": 1}), headers=headers("steps")
        ) as response,
    ):
        lines = [line for line in response.iter_lines() if line.startswith("data:")]
    assert len(lines) == 2
    assert json.loads(lines[-1][5:])["result"]["content"][0]["text"] == "done"


def test_uvicorn_serves_many_calls_at_once(served: str) -> None:
    async def crowd() -> list[str]:
        async with httpx.AsyncClient(base_url=served, timeout=SOON) as client:
            return await asyncio.gather(*(answer(client, "/mcp", "add", a=number, b=0) for number in range(50)))

    assert asyncio.run(crowd()) == [str(number) for number in range(50)]


def test_a_bare_mounting_point_is_the_frameworks_to_answer() -> None:
    """Starlette redirects before a mounted application is asked: the reason to append the board as a route instead."""

    async def ask() -> int:
        app = Starlette(routes=[Mount("/tools", app=make_board().asgi())])
        async with client_of(app) as client:
            return (await client.post("/tools", content=body("whoami"), headers=headers("whoami"))).status_code

    assert asyncio.run(ask()) == 307


async def test_services_of_the_application_end_with_the_lifespan() -> None:
    ended: list[str] = []

    class Pool:
        pass

    async def open_pool() -> AsyncIterator[Pool]:
        yield Pool()
        ended.append("pool")

    board = Board()
    board.services.factory(Pool, open_pool, lifetime="app")

    @board.tool
    async def use(pool: Pool) -> str:
        return "used"

    await Client(board).call("use")
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    told: list[str] = []

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        told.append(message["type"])

    await board.asgi()({"type": "lifespan"}, receive, send)
    assert ended == ["pool"]
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
