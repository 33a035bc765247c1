"""The console of a board that is mounted in another application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from pegboard import Board, Gateway, Principal
from pegboard.errors import SetupError
from pegboard.server.asgi.asgi_app import AsgiApp
from tests.server.test_mounting import make_board

TOKEN = "a-token-of-this-application"
OPERATOR = Principal("app:ann", frozenset({"console.operate"}))


def named(scope: Any) -> Principal | None:
    """The principal that the application around the board finds in a request."""
    sent = dict(scope["headers"]).get(b"x-user")
    return {None: None, b"ann": OPERATOR}.get(sent, Principal("app:bob"))


def route(mounted: AsgiApp) -> FastAPI:
    app = FastAPI()
    app.routes.append(mounted)  # type: ignore[arg-type]  # a route by duck typing
    return app


@asynccontextmanager
async def serving(
    board: Board | Gateway, wrap: Callable[[AsgiApp], Any] = route, url: str = "http://127.0.0.1", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application that a board is mounted in."""
    mounted = board.asgi(**options)
    transport = httpx.ASGITransport(app=wrap(mounted))
    async with mounted, httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client


@pytest.mark.parametrize(
    ("wrap", "path", "root"),
    [
        (route, "/mcp", ""),
        (route, "/v1/tools", "/v1"),
        (lambda mounted: mounted, "/mcp", ""),
        (lambda mounted: Starlette(routes=[Mount("/api", mounted)]), "/mcp", "/api"),
    ],
)
async def test_a_link_with_the_token_opens_the_console_below_every_path(wrap: Any, path: str, root: str) -> None:
    async with serving(make_board(), wrap, console=TOKEN, path=path) as client:
        assert (await client.get(f"{root}/console/")).status_code == 401
        assert (await client.get(f"{root}/console/?token=guessed")).status_code == 401
        entered = await client.get(f"{root}/console/?token={TOKEN}")
        assert (entered.status_code, entered.headers["location"]) == (303, f"{root}/console/")
        assert f"Path={root}/console" in entered.headers["set-cookie"]
        assert b"app.js" in (await client.get(f"{root}/console/")).content
        assert (await client.get(f"{root}/console")).headers["location"] == f"{root}/console/"
        me = (await client.get(f"{root}/console/api/me")).json()
        called = await client.post(
            f"{root}/console/api/call",
            json={"name": "whoami", "arguments": {}},
            headers={"x-pegboard-csrf": me["csrf"]},
        )
        assert '"mounted"' in called.text
        (row,) = (await client.get(f"{root}/console/api/calls")).json()
        assert (row["name"], row["client"]) == ("whoami", "pegboard console")


async def test_the_principal_of_the_application_decides_about_the_console() -> None:
    async with serving(make_board(), principal=named, console=True) as client:
        locked = await client.get("/console/")
        assert (locked.status_code, "Sign in to the application" in locked.text) == (401, True)
        denied = await client.get("/console/", headers={"x-user": "bob"})
        assert (denied.status_code, "console.read" in denied.text) == (403, True)
        me = (await client.get("/console/api/me", headers={"x-user": "ann"})).json()
        assert (me["principal"], me["rights"]) == ("app:ann", ["read", "operate"])
        body = {"name": "whoami", "arguments": {}}
        forged = await client.post("/console/api/call", json=body, headers={"x-user": "ann"})
        assert forged.status_code == 403
        called = await client.post(
            "/console/api/call", json=body, headers={"x-user": "ann", "x-pegboard-csrf": me["csrf"]}
        )
        assert '"mounted"' in called.text
        assert (await client.get("/console/?token=x", headers={"x-user": ""})).status_code == 403


async def test_the_first_request_prints_the_link_on_this_machine_only(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(make_board(), url="http://127.0.0.1:8000", console=True) as client:
        await client.get("/console/")
        shown = capsys.readouterr().err
        assert shown.startswith("console of mounted: http://127.0.0.1:8000/console/?token=")
        link = httpx.URL(shown.strip().partition(": ")[2])
        assert (await client.get(f"{link.path}?{link.query.decode()}")).status_code == 303
    async with serving(make_board(), url="http://tools.example.com", console=True) as client:
        assert (await client.get("/console/")).status_code == 401
    assert "token=" not in capsys.readouterr().err


async def test_without_the_option_there_is_no_console_and_other_routes_come_first() -> None:
    async with serving(make_board()) as client:
        assert (await client.get("/console/")).status_code == 404

    def beside(mounted: AsgiApp) -> FastAPI:
        app = route(mounted)
        app.get("/console/notes")(lambda: "of the application")
        return app

    async with serving(make_board(), beside, console=TOKEN) as client:
        assert (await client.get("/console/notes")).json() == "of the application"
        assert (await client.get("/consoles/")).status_code == 404


async def test_a_mounted_gateway_has_a_console() -> None:
    async with serving(Gateway({"toolboxes": {}}), console=TOKEN) as client:
        await client.get(f"/console/?token={TOKEN}")
        assert (await client.get("/console/api/overview")).json()["kind"] == "gateway"


@pytest.mark.parametrize("token", ["short", "with spaces in the middle", "ä" * 20])
def test_a_token_that_is_short_or_needs_encoding_is_rejected(token: str) -> None:
    with pytest.raises(SetupError, match="at least 16 characters"):
        make_board().asgi(console=token)
