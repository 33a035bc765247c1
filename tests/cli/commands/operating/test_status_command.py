"""`pegboard status` shows what a running server says about itself."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from pegboard import Board, Client, ToolError
from pegboard.auth.auth import Auth
from pegboard.cli.commands.operating.status_command import _print
from pegboard.demo import notes
from pegboard.limits import Limits
from pegboard.middleware import Metrics
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.auth.serving import serving
from tests.cli.hostile_server import ATTACK
from tests.cli.in_process import run_here


async def status_of_a_server(*words: str) -> tuple[int, str, str]:
    endpoint = HttpEndpoint(notes.board.handler, notes.board.info, limits=Limits(), guard=Guard())
    server = await listen(endpoint, Limits())
    try:
        return await asyncio.to_thread(run_here, "status", f"http://127.0.0.1:{server.port}/mcp", *words)
    finally:
        await server.close()


def test_a_server_that_is_ready_is_described() -> None:
    code, out, err = asyncio.run(status_of_a_server())
    assert (code, err) == (0, "")
    assert re.search(r": ready, up for \d+ s, ", out)


async def test_a_version_is_shown_if_the_board_has_one() -> None:
    for version, shown in (("0", False), ("2.1", True)):
        async with serving(Board("shop", version=version)) as site:
            _, out, _ = await asyncio.to_thread(run_here, "status", f"http://127.0.0.1:{site.port}")
        assert (", version 2.1, " in out) is shown
        assert ("version" in out) is shown


async def test_calls_and_errors_are_shown_where_the_server_has_metrics() -> None:
    board = Board("shop")
    board.use(Metrics())

    @board.tool
    def price(article: str) -> float:
        if article != "chair":
            raise ToolError("There is none")
        return 49.5

    async with serving(board) as site:
        url = f"http://127.0.0.1:{site.port}"
        _, before, _ = await asyncio.to_thread(run_here, "status", url)
        async with Client(f"{url}/mcp") as client:
            for article in ("chair", "chair", "sofa"):
                await client.call("price", {"article": article})
        _, out, err = await asyncio.to_thread(run_here, "status", url)
        _, text, _ = await asyncio.to_thread(run_here, "status", url, "--json")
    assert before.splitlines()[1:] == ["  0 tool calls, 0 errors"]
    assert out.splitlines()[1:] == ["  3 tool calls, 1 error"]
    assert err == ""
    assert json.loads(text)["calls"] == {"calls": 3, "errors": 1}


async def test_where_a_key_is_needed_the_flag_that_passes_it_is_named(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    key = (await asyncio.to_thread(run_here, "keys", "add", "ann", "--store", store))[1].strip()
    board = Board("shop", auth=Auth(keys=True))
    board.use(Metrics())
    async with serving(board, store=store) as site:
        url = f"http://127.0.0.1:{site.port}"
        code, out, err = await asyncio.to_thread(run_here, "status", url)
        _, known, nothing = await asyncio.to_thread(run_here, "status", url, "--header", f"Authorization: Bearer {key}")
    assert code == 0
    assert "call" not in out
    assert "--header 'Authorization: Bearer KEY'" in err
    assert "0 tool calls, 0 errors" in known
    assert nothing == ""


def test_the_description_is_printed_as_json() -> None:
    code, out, _ = asyncio.run(status_of_a_server("--json"))
    assert code == 0
    assert json.loads(out)["ready"] == {"status": "ready"}


class _Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        document = {"version": ATTACK, "uptime_seconds": 1, "status": ATTACK, "servers": {ATTACK: {"state": ATTACK}}}
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_text_of_a_hostile_server_does_not_control_the_terminal() -> None:
    with HTTPServer(("127.0.0.1", 0), _Hostile) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            code, out, _ = run_here("status", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            serving.join()
    assert code == 1
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


class _Redirecting(BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        host, _, port = str(self.headers["Host"]).partition(":")
        if host == "127.0.0.1":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{port}{self.path}")
        else:
            self.seen.append(str(self.headers["Authorization"]))
            self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_headers_are_not_sent_to_another_host_that_the_server_redirects_to() -> None:
    with HTTPServer(("127.0.0.1", 0), _Redirecting) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            code, _, err = run_here("status", url, "--header", "Authorization: Bearer sesame")
        finally:
            server.shutdown()
            serving.join()
    assert code == 2
    assert "not as a Pegboard server" in err
    assert _Redirecting.seen == ["None"]


@pytest.mark.parametrize(
    "health",
    [
        {"uptime_seconds": "long", "stalls": {"count": "many"}},
        {"uptime_seconds": [], "stalls": [1], "status": {}},
    ],
)
def test_values_of_other_types_are_shown_as_unknown(
    health: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    _print("http://shop.example", {"health": health, "ready": {"servers": []}, "milliseconds": 1})
    assert "up for an unknown time" in capsys.readouterr().out


def test_a_server_that_is_not_there_is_exit_code_3() -> None:
    code, out, err = run_here("status", "http://127.0.0.1:1")
    assert (code, out) == (3, "")
    assert "Cannot reach http://127.0.0.1:1" in err


def test_a_url_of_another_kind_is_wrong_usage() -> None:
    code, _, err = run_here("status", "stdio")
    assert code == 2
    assert "is not the URL of a server" in err
