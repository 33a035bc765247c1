"""The console over HTTP: who may use it, what it shows, and what it does."""

from __future__ import annotations

import asyncio
import json
import webbrowser
from typing import Any

import httpx
import pytest

from pegboard import Accepted, Board, Client, Context
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from tests.console.served import ServedConsole, serving_console


def make_board() -> Board:
    board = Board("shop", version="1.2")

    @board.tool
    def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    @board.tool
    async def greet(ctx: Context) -> str:
        """Asks for a name."""
        await ctx.progress(1, 2, "asking")
        await ctx.log("info", "about to ask")
        answer = await ctx.elicit("Who is there?", str)
        return f"Hello {answer.content}" if isinstance(answer, Accepted) else answer.action

    return board


class Response:
    """The response to one request."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def open_request(
    at: ServedConsole, path: str, method: str, body: Any, headers: dict[str, str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = at.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = {"host": f"{host}:{port}", "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        fields["content-length"] = str(len(sent))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + sent)
    return reader, writer


async def send(at: ServedConsole, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> Response:
    """Send a request as a page of the console does; headers replace those that it sends."""
    own = {"cookie": at.cookie, **({"x_pegboard_csrf": at.csrf} if method == "POST" else {})}
    given = {name: value for name, value in {**own, **headers}.items() if value}
    reader, writer = await open_request(at, path, method, body, given)
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return Response(head, rest)


async def test_the_link_in_the_command_line_of_a_browser_works_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    board = make_board()
    async with serving_console(board) as at:
        Console(BoardSubject(board)).open_in_browser(at.mcp)
        (link,) = opened
        token = at.link.partition("token=")[2]
        assert token not in link
        # The browser is let in; who reads the command line later is not. The printed link still works.
        for path, status in ((link, 303), (link, 401), (at.link, 303)):
            assert (await send(at, path.removeprefix(at.base), cookie="")).status == status


async def test_a_browser_is_led_from_the_address_of_the_server_to_the_console() -> None:
    async with serving_console(make_board()) as at, httpx.AsyncClient(base_url=at.base, trust_env=False) as browser:
        led = await browser.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
        assert (led.status_code, str(led.next_request and led.next_request.url)) == (303, f"{at.base}/console/")
        assert (await browser.get("/")).json() == {"mcp": "/mcp", "health": "/health", "ready": "/ready"}


async def test_the_link_opens_the_console_and_its_token_becomes_a_cookie() -> None:
    async with serving_console(make_board()) as at:
        entered = await send(at, at.link.removeprefix(at.base), cookie="")
        assert (entered.status, entered.headers["location"]) == (303, "/console/")
        cookie = entered.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", "Path=/"))
        page = await send(at, "/console/")
        assert page.status == 200
        assert b"app.js" in page.body


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/console/", ""),
        ("/console/", "guessed"),
        ("/console/?token=guessed", ""),
        ("/console/api/me", ""),
        ("/console/api/calls", ""),
        ("/console/api/tools", "guessed"),
        ("/console/events", ""),
        ("/console/app.js", ""),
    ],
)
async def test_nothing_is_shown_without_the_token(path: str, value: str) -> None:
    async with serving_console(make_board()) as at:
        refused = await send(at, path, cookie=value and f"{at.cookie.partition('=')[0]}={value}")
        assert refused.status == 401
        assert b"Open the console link" in refused.body
        assert b"greet" not in refused.body


async def test_other_sites_can_neither_read_nor_change_nor_frame_the_console() -> None:
    async with serving_console(make_board()) as at:
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        for token in ("", "guessed", at.cookie):
            refused = await send(at, "/console/api/call", method="POST", body=call, x_pegboard_csrf=token)
            assert refused.status == 403
        foreign = await send(at, "/console/api/calls", origin="https://evil.example")
        assert foreign.status == 403
        assert (await send(at, "/console/api/calls", sec_fetch_site="cross-site")).status == 401
        rebound = await send(at, "/console/api/calls", host="evil.example")
        assert rebound.status == 421
        page = await send(at, "/console/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"


async def test_calls_of_every_client_are_listed_and_can_be_exported() -> None:
    async with serving_console(make_board()) as at:
        async with Client(at.mcp, name="agent") as client:
            await client.call("add", {"a": 2, "b": "3"})
        (row,) = (await send(at, "/console/api/calls")).json
        assert (row["name"], row["client"], row["repairs"]) == ("add", "agent", 1)
        details = (await send(at, f"/console/api/calls/{row['number']}")).json
        assert (details["sent"], details["ran"]) == ({"a": 2, "b": "3"}, {"a": 2, "b": 3})
        exported = await send(at, "/console/api/calls.jsonl")
        assert json.loads(exported.body.splitlines()[0])["name"] == "add"
        assert (await send(at, "/console/api/calls/99")).status == 404
        assert (await send(at, "/console/api/calls/99999999999999999999")).status == 404


async def test_the_overview_and_the_tools_have_what_the_pages_show() -> None:
    async with serving_console(make_board()) as at:
        overview = (await send(at, "/console/api/overview")).json
        assert (overview["kind"], overview["name"], overview["costs"]["tools"]) == ("board", "shop", 2)
        tools = (await send(at, "/console/api/tools")).json
        assert [tool["tool"] for tool in tools] == ["add", "greet"]
        assert all(tool["tokens"] > 10 for tool in tools)
        assert (await send(at, "/console/api/search?q=numbers")).json == ["add"]


async def test_a_call_from_the_console_reports_progress_and_asks_in_place() -> None:
    async with serving_console(make_board()) as at:
        reader, writer = await open_request(
            at,
            "/console/api/call",
            "POST",
            {"name": "greet", "arguments": {}},
            {"cookie": at.cookie, "x-pegboard-csrf": at.csrf},
        )
        events = await reader.readuntil(b"event: question\ndata: ")
        question = json.loads(await reader.readuntil(b"\n\n"))
        (name,) = question["schema"]["properties"]
        wrong = await send(at, "/console/api/answer", method="POST", body={"id": "unknown"})
        assert wrong.status == 400
        answer = {"id": question["id"], "action": "accept", "content": {name: "Ada"}}
        assert (await send(at, "/console/api/answer", method="POST", body=answer)).status == 200
        events += await reader.read()
        writer.close()
        assert b"event: progress" in events
        assert b"about to ask" in events
        assert b"Hello Ada" in events


@pytest.mark.parametrize("body", [[], {"name": 5}, {"name": "add", "arguments": []}, {"method": "x", "name": "add"}])
async def test_a_malformed_request_is_rejected(body: Any) -> None:
    async with serving_console(make_board()) as at:
        refused = await send(at, "/console/api/call", method="POST", body=body)
        assert refused.status == 400


async def test_unknown_paths_and_methods_are_rejected() -> None:
    async with serving_console(make_board()) as at:
        for path in ("/console/api/nothing", "/console/../board.py", "/console/%2e%2e/console.py", "/console/x.js"):
            assert (await send(at, path)).status == 404
        assert (await send(at, "/console/", method="PUT")).status == 405
        assert (await send(at, "/consoles/")).status == 404
