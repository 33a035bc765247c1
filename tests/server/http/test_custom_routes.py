"""Custom routes: an author's paths beside the MCP endpoint, with its checks, authentication and limits."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from pegboard import Board, HttpRequest, HttpResponse, Limits, Principal
from pegboard.console.console import PATH as CONSOLE
from pegboard.console.status_document import ROUTE as OPERATOR
from pegboard.errors import DeclarationError
from pegboard.gateway.connections.connect_pages import PATH as CONNECT
from pegboard.server.endpoint_names import APPROVALS, DEPRECATED_ENDPOINTS, SIGN_IN, endpoint_paths
from pegboard.server.http.custom_routes import RESERVED
from pegboard.testing import fixed_tokens
from tests.auth.serving import bearer, serving
from tests.waiting import SOON


@dataclass
class Order:
    item: str
    count: int = 1


def shop(**options: Any) -> Board:
    board = Board("shop", **options)

    @board.route("/orders", methods=["POST"])
    async def order(request: HttpRequest) -> Any:
        made = request.json(Order)
        return {"item": made.item, "count": made.count, "who": request.principal.id}

    @board.route("/orders/{number}")
    def show(request: HttpRequest) -> str:
        return f"order {request.path_params['number']} {request.query.get('as', '')}"

    @board.route("/hook", methods=["POST"], public=True)
    async def hook(request: HttpRequest) -> None:
        assert not request.principal

    @board.route("/teapot")
    async def teapot(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("short and stout", 418, headers={"X-Spout": "here"})

    @board.route("/raw")
    async def raw(_request: HttpRequest) -> bytes:
        return b"\x00\x01"

    @board.route("/broken")
    async def broken(_request: HttpRequest) -> None:
        raise RuntimeError("the password is 1234")

    @board.route("/split")
    async def split(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("", headers={"X-One": "a\r\nX-Two: b"})

    @board.tool
    def add(a: int, b: int) -> int:
        return a + b

    return board


async def ask_all(client: httpx.AsyncClient, base: str = "") -> None:
    """What holds on our own server and under ASGI alike."""
    made = await client.post(f"{base}/orders", json={"item": "apples"})
    assert (made.status_code, made.json()) == (200, {"item": "apples", "count": 1, "who": ""})
    assert made.headers["x-content-type-options"] == "nosniff"
    shown = await client.get(f"{base}/orders/a%20b/?as=text")
    assert (shown.text, shown.headers["content-type"]) == ("order a b text", "text/plain; charset=utf-8")
    assert (await client.head(f"{base}/orders/1")).status_code == 200
    assert (await client.post(f"{base}/hook")).status_code == 204
    teapot = await client.get(f"{base}/teapot")
    assert (teapot.status_code, teapot.text, teapot.headers["x-spout"]) == (418, "short and stout", "here")
    assert (await client.get(f"{base}/raw")).content == b"\x00\x01"
    wrong = await client.post(f"{base}/orders", content=b'{"item": 5}', headers={"content-type": "application/json"})
    assert wrong.status_code == 400
    assert "Expected `str`, got `int` - at `$.item`" in wrong.json()["error"]["message"]
    refused = await client.delete(f"{base}/orders")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    broken = await client.get(f"{base}/broken")
    assert broken.status_code == 500
    assert "1234" not in broken.text
    assert "error id" in broken.text
    assert (await client.get(f"{base}/split")).status_code == 500
    assert (await client.get(f"{base}/orders/1/2")).status_code == 404
    foreign = await client.get(f"{base}/teapot", headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert (await client.post(f"{base}/orders", content=b"x" * 2000)).status_code == 413


LIMITS = Limits(body_bytes=1000)


async def test_routes_are_served_by_our_own_server() -> None:
    async with serving(shop(limits=LIMITS)) as site, httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
        await ask_all(client)
        assert (await client.get("/teapot", headers={"Host": "evil.example"})).status_code == 421
        assert b'"3"' in (await site.call("add", a=1, b=2)).body


async def test_routes_are_served_below_a_path_prefix_and_only_there() -> None:
    async with (
        serving(shop(limits=LIMITS), path_prefix="/x") as site,
        httpx.AsyncClient(base_url=site.url, trust_env=False) as client,
    ):
        await ask_all(client, "/x")
        assert (await client.get("/teapot")).status_code == 404
        assert (await client.get("/xteapot")).status_code == 404


async def test_routes_are_served_by_an_asgi_application() -> None:
    app = shop(limits=LIMITS).asgi()
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await ask_all(client)


async def test_a_route_of_the_application_around_takes_precedence() -> None:
    app = FastAPI()
    app.router.routes.append(shop().asgi(path="/api/mcp"))  # type: ignore[arg-type]  # a route by duck typing

    @app.get("/api/teapot")
    def own() -> str:
        return "own"

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/api/teapot")).json() == "own"
        assert (await client.get("/api/orders/7")).text == "order 7 "
        assert (await client.get("/teapot")).status_code == 404


def authenticated() -> Board:
    return shop(auth=fixed_tokens({"secret": Principal("ada")}))


@pytest.mark.parametrize("kind", ["own", "asgi"])
async def test_a_route_needs_the_credentials_of_the_server_unless_it_is_public(kind: str) -> None:
    board = authenticated()
    body = json.dumps({"item": "apples"}).encode()

    async def check(client: httpx.AsyncClient) -> None:
        refused = await client.post("/orders", content=body)
        assert refused.status_code == 401
        assert "www-authenticate" in refused.headers
        assert (await client.post("/orders", content=body, headers=bearer("wrong"))).status_code == 401
        made = await client.post("/orders", content=body, headers=bearer("secret"))
        assert made.json()["who"] == "ada"
        assert (await client.get("/orders/7")).status_code == 401
        assert (await client.post("/hook")).status_code == 204
        assert (await client.get("/nowhere")).status_code == 404

    if kind == "own":
        async with serving(board) as site, httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            await check(client)
    else:
        app = board.asgi()
        async with (
            app,
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
        ):
            await check(client)


async def test_a_request_that_runs_counts_as_a_call_and_ends_with_its_client() -> None:
    board = Board("slow", limits=Limits(calls=1))
    begun, ended = asyncio.Event(), asyncio.Event()

    @board.route("/slow")
    async def slow(_request: HttpRequest) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(board) as site:
        waiting = asyncio.create_task(site.ask("GET", "/slow"))
        await asyncio.wait_for(begun.wait(), SOON)
        assert (await site.ask("GET", "/slow")).status == 503
        waiting.cancel()
        await asyncio.wait_for(ended.wait(), SOON)


async def test_a_page_of_an_allowed_origin_may_call_a_route() -> None:
    origin = {"Origin": "https://app.example"}
    async with (
        serving(shop(), cors="https://app.example") as site,
        httpx.AsyncClient(base_url=site.url, trust_env=False) as client,
    ):
        answer = await client.get("/teapot", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        preflight = await client.options("/teapot", headers={**origin, "Access-Control-Request-Method": "GET"})
        assert preflight.status_code == 204


def test_every_path_of_the_server_is_reserved() -> None:
    served = {CONSOLE, OPERATOR, CONNECT, APPROVALS, SIGN_IN, *endpoint_paths(DEPRECATED_ENDPOINTS)}
    served |= {"/mcp", "/ws", "/health", "/ready", "/metrics", "/toolboxes", "/.well-known"}
    assert {path.strip("/") for path in served} == RESERVED


@pytest.mark.parametrize(
    ("path", "methods", "problem"),
    [
        ("/mcp", ["GET"], "could be a path of the server itself"),
        ("/console/extra", ["GET"], "could be a path of the server itself"),
        ("/{anything}", ["GET"], "could be a path of the server itself"),
        ("hook", ["GET"], "starts with a slash"),
        ("/a//b", ["GET"], "cannot be part of a path"),
        ("/a/../mcp", ["FETCH"], "use a list of some of GET, POST"),
        ("/a b", ["GET"], "cannot be part of a path"),
        ("/a/{x}/{x}", ["GET"], "a name in braces twice"),
        ("/teapot", ["GET"], "is already a route"),
        ("/hook", ["GET"], "already a route with public=True"),
    ],
)
def test_wrong_routes_are_rejected_with_the_authors_line(path: str, methods: list[str], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem) as raised:
        shop().route(path, methods=methods)(lambda _request: None)
    assert "test_custom_routes.py:" in str(raised.value)


@pytest.mark.parametrize("part", ["..%2f..%2fetc", "%2e%2e", "a%2Fb", "a%5Cb", "a%00"])
async def test_a_part_of_a_path_does_not_lead_out_of_a_folder(part: str) -> None:
    board = shop()
    async with serving(board) as site, httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
        assert (await client.get(f"/orders/{part}")).status_code == 404
        assert (await client.get("/orders/a%20b")).text == "order a b "


async def test_plain_functions_run_in_the_threads_of_the_board() -> None:
    board = Board("shop")

    @board.route("/thread")
    def name(_request: HttpRequest) -> str:
        return str(board._threads.busy)

    async with serving(board) as site, httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
        assert (await client.get("/thread")).text == "1"


async def test_a_body_that_is_nested_too_deep_is_the_callers_mistake() -> None:
    board = Board("shop")

    @board.route("/any", methods=["POST"])
    async def take(request: HttpRequest) -> Any:
        return request.json()

    async with serving(board) as site, httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
        assert (await client.post("/any", content="[" * 100_000)).status_code == 400


@pytest.mark.parametrize("headers", [{"Location": "/\r\nSet-Cookie: a=b"}, {"X-A\nX-B": "c"}, {"X": "\x00"}, {"": "x"}])
def test_a_header_that_would_write_another_one_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        HttpResponse(headers=headers)


def test_wrong_responses_are_rejected() -> None:
    with pytest.raises(ValueError, match="status=99"):
        HttpResponse(status=99)
    with pytest.raises(ValueError, match="content_type"):
        HttpResponse(content_type="text/html\r\nx: y")


async def test_the_url_without_a_path_names_the_public_paths_unless_the_author_has_a_route_there() -> None:
    board = Board("shop", auth=fixed_tokens({"t": Principal("ann")}))
    public = {"mcp": "/x/mcp", "health": "/x/health", "ready": "/x/ready"}
    async with (
        serving(board, path_prefix="/x") as site,
        httpx.AsyncClient(base_url=f"{site.url}/x", trust_env=False) as client,
    ):
        shown = await client.get("/", headers={"Accept": "text/html"})
        assert (shown.status_code, shown.json()) == (200, public)
        assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get("/", headers={"Accept": "text/event-stream"})).status_code == 404
        assert (await client.post("/")).status_code == 404

        @board.route("/")
        async def home(request: HttpRequest) -> str:
            return f"hello {request.principal.id}"

        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers=bearer("t"))).text == "hello ann"
