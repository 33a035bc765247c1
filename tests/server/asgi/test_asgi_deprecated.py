"""The deprecated doors of a mounted board: beside its endpoint, wherever that is, as our own server has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from pegboard import Board, Client, Context
from pegboard.errors import SetupError
from pegboard.server.http_types import Head
from tests.server.asgi.test_asgi_app import serving
from tests.server.fake_sink import notification, request

JSON = {"content-type": "application/json", "accept": "application/json"}
SSE = {"content-type": "application/json", "accept": "text/event-stream"}


def board() -> Board:
    made = Board("mounted")

    @made.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    return made


OPEN: dict[str, Any] = {"legacy_endpoints": "all", "ws": "/ws"}


def routed(kind: Callable[..., Any], **options: Any) -> Any:
    app = kind()
    app.routes.append(board().asgi(**OPEN | options))
    return app


# What is made of a board, and the paths before its endpoint's name, and that name.
PLACES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "alone": (lambda: board().asgi(**OPEN), "", "/mcp"),
    "alone, at another path": (lambda: board().asgi(**OPEN, path="/a/tools"), "/a", "/tools"),
    "a route of Starlette": (lambda: routed(Starlette), "", "/mcp"),
    "a route of FastAPI": (lambda: routed(FastAPI), "", "/mcp"),
    "a route at another path": (lambda: routed(FastAPI, path="/v1/mcp"), "/v1", "/mcp"),
    "mounted": (lambda: Starlette(routes=[Mount("/api", board().asgi(**OPEN))]), "/api", "/mcp"),
    "mounted, at another path": (
        lambda: Starlette(routes=[Mount("/api", board().asgi(**OPEN, path="/v1/x"))]),
        "/api/v1",
        "/x",
    ),
    "within a mounted application": (lambda: Starlette(routes=[Mount("/in", routed(FastAPI))]), "/in", "/mcp"),
    "mounted for anybody": (lambda: Starlette(routes=[Mount("/{who}", board().asgi(**OPEN))]), "/ed%C3%A9", "/mcp"),
}


@asynccontextmanager
async def visiting(app: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(app, **options) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client,
    ):
        yield client


async def check_all(client: httpx.AsyncClient, before: str, name: str, root: str = "") -> None:
    """Whether each door is there, below `before`, and says to its client where it is, behind `root`."""
    successor = f'<{root}{before}{name}>; rel="successor-version"'
    call = request("tools/call", {"name": "steps", "arguments": {}})
    for slash in ("", "/"):
        answer = await client.post(before + "/rpc" + slash, content=call, headers=JSON)
        assert (answer.status_code, answer.headers["deprecation"]) == (200, "@1742947200")
        assert answer.headers["link"] == successor
        assert answer.json()["result"]["content"][0]["text"] == "done"
    told = await client.post(before + "/rpc", content=notification("notifications/initialized"), headers=JSON)
    assert (told.status_code, told.content) == (204, b"")
    shot = await client.post(before + "/sse", content=call, headers=SSE)
    assert [line for line in shot.text.splitlines() if line.startswith("event:")] == ["event: message", "event: done"]
    assert shot.headers["link"] == successor
    async with client.stream("GET", before + "/sse", headers=SSE) as stream:
        assert stream.headers["deprecation"]
        lines = stream.aiter_lines()
        place = await _data(lines)
        path, _, session = place.partition("?sessionId=")
        assert path == f"{root}{before}/messages"
        assert len(session) == 32
        posted = await client.post(place.removeprefix(root), content=call, headers=JSON)
        assert posted.status_code == 202
        assert json.loads(await _data(lines))["result"]["content"][0]["text"] == "done"


async def _data(lines: AsyncIterator[str]) -> str:
    while True:
        line = await anext(lines)
        if line.startswith("data: "):
            return line.removeprefix("data: ")


@pytest.mark.parametrize("name", PLACES)
async def test_every_door_is_beside_the_endpoint(name: str) -> None:
    make, before, endpoint = PLACES[name]
    async with visiting(make()) as client:
        await check_all(client, before, endpoint)
        assert (await client.post("/elsewhere/rpc", content=request("ping"), headers=JSON)).status_code == (
            200 if name == "mounted for anybody" else 404
        )


async def test_clients_receive_urls_with_the_prefix_that_a_proxy_strips() -> None:
    async with visiting(routed(FastAPI), root_path="/behind") as client:
        await check_all(client, "", "/mcp", "/behind")


@pytest.mark.parametrize("path", ["/sse", "/api/sse"])
async def test_our_own_client_finds_its_way_by_the_old_transport(path: str) -> None:
    app = routed(FastAPI) if path == "/sse" else FastAPI(routes=[Mount("/api", board().asgi(**OPEN))])
    async with serving(app) as port, Client(f"http://127.0.0.1:{port}{path}") as client:
        assert (await client.call("steps")).text == "done"


async def test_two_slashes_in_a_prefix_lead_to_no_other_server() -> None:
    head = Head(b"GET", b"/sse", b"", {}, prefix="//evil.example/\r\nx: y")
    assert head.locate("/messages") == "/evil.example/%0D%0Ax%3A%20y/messages"
    assert Head(b"GET", b"/sse", b"", {}).locate("/messages") == "/messages"


# -- which are open ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doors", "found"),
    [
        ("all", {"POST /rpc", "POST /sse", "GET /sse", "POST /messages"}),
        ("none", set()),
        ("rpc", {"POST /rpc"}),
        ("oneshot", {"POST /sse"}),
        (["sse"], {"GET /sse", "POST /messages"}),
    ],
)
@pytest.mark.parametrize("kind", ["alone", "route"])
async def test_each_door_can_be_closed(doors: Any, found: set[str], kind: str) -> None:
    app = board().asgi(legacy_endpoints=doors) if kind == "alone" else routed(FastAPI, legacy_endpoints=doors)
    there = set()
    async with visiting(app) as client:
        for door in ("POST /rpc", "POST /sse", "GET /sse", "POST /messages"):
            verb, path = door.split()
            body = request("ping") if verb == "POST" else b""
            headers = {**JSON, "accept": "*/*"}
            async with client.stream(verb, path, content=body, headers=headers) as answer:
                if answer.status_code not in (404, 405):
                    there.add(door)
        assert (await client.post("/mcp", content=b"", headers=JSON)).status_code == 400
    assert there == found


@pytest.mark.parametrize("kind", ["alone", "route", "mounted"])
async def test_a_mounted_board_serves_only_its_own_path_unless_asked(kind: str) -> None:
    app: Any = board().asgi()
    if kind != "alone":
        app = FastAPI(routes=[Mount("/", app) if kind == "mounted" else app])
    async with visiting(app) as client:
        for path in ("/rpc", "/sse", "/messages", "/ws"):
            assert (await client.post(path, content=request("ping"), headers=JSON)).status_code == 404
            assert (await client.get(path, headers={"accept": "*/*"})).status_code == 404
        assert (await client.post("/mcp", content=b"", headers=JSON)).status_code == 400


@pytest.mark.parametrize(
    ("headers", "remedy"),
    [
        ({"origin": "http://evil.example"}, 'asgi(cors="http://evil.example")'),
        ({"host": "evil.example"}, 'asgi(allow_host="evil.example")'),
    ],
)
async def test_a_rejection_names_the_option_of_asgi(headers: dict[str, str], remedy: str) -> None:
    async with visiting(board().asgi()) as client:
        answer = await client.post("/mcp", content=request("ping"), headers={**JSON, **headers})
        assert remedy in answer.json()["error"]["message"]


def test_a_door_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(SetupError, match="is not one of rpc, oneshot, sse"):
        board().asgi(legacy_endpoints="rcp")


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
async def test_what_the_application_has_at_a_path_goes_before_a_door(kind: Callable[..., Any]) -> None:
    async def own(request: Any) -> PlainTextResponse:
        return PlainTextResponse("own")

    app = kind(routes=[board().asgi(**OPEN), Route("/messages", own, methods=["POST"]), Route("/sse", own)])
    async with visiting(app) as client:
        assert (await client.post("/messages", content=b"{}")).text == "own"
        assert (await client.get("/sse")).text == "own"
        assert (await client.post("/rpc", content=request("ping"), headers=JSON)).json()["result"] == {}


async def test_added_as_a_route_of_one_path_it_has_that_path_alone() -> None:
    app = FastAPI()
    app.add_route("/mcp", board().asgi(**OPEN))
    async with visiting(app) as client:
        assert (await client.post("/mcp", content=b"", headers=JSON)).status_code == 400
        for path in ("/rpc", "/sse", "/messages", "/ws"):
            assert (await client.post(path, content=request("ping"), headers=JSON)).status_code == 404


# -- as our own server has them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/rpc", "/sse", "/messages"])
async def test_strangers_are_turned_away_at_every_door(path: str) -> None:
    async with visiting(routed(FastAPI)) as client:
        for headers, status in (({"origin": "http://evil.example"}, 403), ({"host": "evil.example"}, 421)):
            answer = await client.post(path, content=request("ping"), headers={**JSON, **headers})
            assert answer.status_code == status
        other = await client.put(path)
        assert other.status_code == 405
        assert "POST" in other.headers["allow"]


@pytest.mark.parametrize("make", [lambda: board().asgi(**OPEN), lambda: routed(FastAPI)], ids=["alone", "a route"])
async def test_a_plain_request_to_the_websocket_is_rejected_with_an_upgrade_header(make: Callable[[], Any]) -> None:
    async with visiting(make()) as client:
        answer = await client.get("/ws")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")


async def test_served_alone_it_says_that_it_lives_and_as_a_route_it_leaves_that_to_its_application() -> None:
    async with visiting(board().asgi(**OPEN)) as client:
        health = (await client.get("/health")).json()
        assert (health["status"], health["version"]) == ("ok", "0")
        assert health["uptime_seconds"] >= 0
        assert (await client.get("/ready")).json() == {"status": "ready"}
        assert (await client.get("/other")).status_code == 404
    async with visiting(routed(FastAPI)) as client:
        assert [(await client.get(path)).status_code for path in ("/health", "/ready")] == [404, 404]


async def test_paths_of_our_own_server_mean_nothing_where_it_has_others() -> None:
    async with visiting(board().asgi(**OPEN, path="/v1/tools")) as client:
        for path in ("/mcp", "/rpc", "/v1/mcp"):
            assert (await client.post(path, content=request("ping"), headers=JSON)).status_code == 404
        assert (await client.post("/v1/tools", content=b"", headers=JSON)).status_code == 400
