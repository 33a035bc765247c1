"""A mounted board takes the principal from the application around it, for HTTP and WebSockets alike."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Mount

from pegboard import Auth, Board, Context, Issuer, Principal
from pegboard.testing import fixed_tokens
from tests.auth.issuing import RESOURCE, issuing
from tests.auth.serving import META, modern_call


def whoami_board(**options: Any) -> Board:
    board = Board("notes", **options)

    @board.tool
    async def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)} {ctx.principal.kind}"

    return board


class Names(AuthenticationBackend):
    """Takes the user from a header."""

    async def authenticate(self, conn: Any) -> Any:
        name = conn.headers.get("x-user")
        return None if name is None else (AuthCredentials(["notes.read"]), SimpleUser(name))


async def current_user(x_user: Annotated[str | None, Header()] = None) -> Principal:
    if x_user is None:
        raise HTTPException(401, "who are you?", {"WWW-Authenticate": 'Basic realm="x"'})
    return Principal(x_user, scopes=frozenset({"notes.read"}), kind="app")


def with_prefix(user: Annotated[Principal, Depends(current_user)]) -> Principal:
    return Principal(f"app:{user.id}", scopes=user.scopes, kind="app")


def from_scope(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


async def from_scope_later(scope: Any) -> str | None:
    return from_scope(scope)


APPS = {
    "user": lambda: Starlette(
        routes=[whoami_board().asgi(principal="user", ws="/ws")],
        middleware=[Middleware(AuthenticationMiddleware, backend=Names())],
    ),
    "function": lambda: Starlette(routes=[whoami_board().asgi(principal=from_scope, ws="/ws")]),
    "async function": lambda: Starlette(routes=[whoami_board().asgi(principal=from_scope_later, ws="/ws")]),
    "dependency": lambda: FastAPI(routes=[whoami_board().asgi(principal=Depends(with_prefix), ws="/ws")]),
}
NAMES = {"user": "ann ['notes.read'] app", "dependency": "app:ann ['notes.read'] app"}


async def ask(app: Any, headers: dict[str, str], path: str = "/mcp") -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        body, fields = modern_call("whoami")
        every = {
            **fields,
            **headers,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        return await client.post(path, content=body, headers=every)


@pytest.mark.parametrize("source", APPS)
async def test_http_requests_have_the_principal_of_the_application(source: str) -> None:
    app = APPS[source]()
    seen = await ask(app, {"X-User": "ann"})
    assert seen.json()["result"]["content"][0]["text"] == NAMES.get(source, "ann [] app")
    other = await ask(app, {"X-User": "bob"})
    assert "bob" in other.json()["result"]["content"][0]["text"]
    missing = await ask(app, {})
    assert missing.status_code == 401
    assert missing.headers["www-authenticate"] == ('Basic realm="x"' if source == "dependency" else "Bearer")


async def call_on_socket(app: Any, headers: dict[str, str]) -> Any:
    """The result of a call on a WebSocket, or the code with which the socket is rejected."""
    params = {"name": "whoami", "arguments": {}, "_meta": META}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    await events.put({"type": "websocket.connect"})
    seen: list[Any] = []

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "websocket.accept":
            await events.put({"type": "websocket.receive", "text": call})
        elif event["type"] == "websocket.send":
            seen.append(json.loads(event["text"])["result"]["content"][0]["text"])
            await events.put({"type": "websocket.disconnect", "code": 1000})
        elif event["type"] == "websocket.close":
            seen.append(event["code"])

    scope = {
        "type": "websocket",
        "path": "/ws",
        "query_string": b"",
        "scheme": "ws",
        "headers": [
            (b"host", b"127.0.0.1"),
            *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": [],
    }
    async with asyncio.timeout(30):
        await app(scope, events.get, send)
    return seen[0]


@pytest.mark.parametrize("source", APPS)
async def test_websockets_have_the_principal_of_the_application(source: str) -> None:
    app = APPS[source]()
    assert await call_on_socket(app, {"X-User": "ann"}) == NAMES.get(source, "ann [] app")
    assert await call_on_socket(app, {}) == 4401


@pytest.mark.parametrize("prefix", ["", "/tools"], ids=["as a route", "mounted"])
async def test_a_mounted_board_with_auth_describes_itself_where_its_application_is(prefix: str) -> None:
    async with issuing() as issuer:
        mcp = whoami_board(auth=Auth(issuers=[Issuer(issuer.url, RESOURCE)])).asgi()
        app = Starlette(routes=[Mount(prefix, mcp) if prefix else mcp])
        refused = await ask(app, {}, f"{prefix}/mcp")
        url = f"http://127.0.0.1{prefix}/.well-known/oauth-protected-resource/mcp"
        assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{url}"'
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            described = (await client.get(url)).json()
        assert described["resource"] == f"http://127.0.0.1{prefix}/mcp"
        seen = await ask(app, {"Authorization": f"Bearer {issuer.sign()}"}, f"{prefix}/mcp")
        assert seen.json()["result"]["content"][0]["text"] == "ann ['notes.read'] token"
        await mcp.close()


async def test_probes_of_a_mounted_board_need_no_principal() -> None:
    app = Starlette(routes=[Mount("/tools", whoami_board().asgi(principal=from_scope))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/tools/health")).status_code == 200
        assert (await client.get("/tools/mcp")).status_code == 401


async def test_a_function_that_finds_no_principal_leaves_it_to_the_auth_of_the_board() -> None:
    board = whoami_board(auth=fixed_tokens({"t": Principal("bob")}))
    mounted = board.asgi(principal=from_scope)
    app = Starlette(routes=[mounted])
    assert "ann" in (await ask(app, {"X-User": "ann"})).text
    assert "bob" in (await ask(app, {"Authorization": "Bearer t"})).text
    assert (await ask(app, {})).status_code == 401
    await mounted.close()
