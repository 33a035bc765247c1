"""`pegboard status` shows what a running server says about itself."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from pegboard import Board, Client, Gateway, ToolError
from pegboard.auth.auth import Auth
from pegboard.cli.commands.operating.status_command import _print
from pegboard.cli.server_store import open_server_store
from pegboard.console.board_subject import BoardSubject
from pegboard.console.gateway_subject import GatewaySubject
from pegboard.console.status_document import StatusDocument
from pegboard.demo import notes
from pegboard.errors import InvalidParams
from pegboard.limits import Limits
from pegboard.middleware import Metrics
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.stores import operator_proof
from pegboard.stores.operator_proof import HEADER, make_proof
from tests.auth.serving import serving
from tests.cli.hostile_server import ATTACK
from tests.cli.in_process import run_here
from tests.waiting import SOON


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
    assert before.splitlines()[1:] == ["  0 calls, 0 errors"]
    assert out.splitlines()[1:] == ["  3 calls, 1 error"]
    assert err == ""
    assert json.loads(text)["calls"] == {"calls": 3, "errors": 1}


@asynccontextmanager
async def a_gateway(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The URL of a gateway that accepts keys and has a status, and its store."""
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    servers = {"notes": {"board": notes.board}, "broken": {"command": "/no/such/program"}}
    gateway = Gateway(
        {"name": "office", "toolboxes": {"dev": {"description": "Tools.", "mcpServers": servers}}}, auth=Auth(keys=True)
    )
    StatusDocument(GatewaySubject(gateway))
    async with serving(gateway, store=store) as site:
        await gateway.wait_connected(SOON)
        yield f"http://127.0.0.1:{site.port}", store


async def status(*words: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(run_here, "status", *words)


async def add_key(name: str, store: str, *words: str) -> str:
    return (await asyncio.to_thread(run_here, "keys", "add", name, "--store", store, *words))[1].strip()


async def test_servers_calls_and_errors_are_for_operators_where_callers_authenticate(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (url, store):
        caller, operator = await add_key("bob", store), await add_key("ann", store, "--scope", "console.read")
        async with Client(f"{url}/mcp", headers={"Authorization": f"Bearer {caller}"}) as client:
            await client.call("dev__notes__find_notes")
            with pytest.raises(InvalidParams):
                await client.call("dev__notes__nothing")
        stranger = await status(url)
        rejected = await status(url, "--header", f"Authorization: Bearer {caller}")
        by_key = await status(url, "--header", f"Authorization: Bearer {operator}")
        by_store = await status(url, "--store", store)
        document = json.loads((await status(url, "--store", store, "--json"))[1])
    for code, out, err in (stranger, rejected):
        assert (code, len(out.splitlines())) == (0, 1)
        assert "keys add NAME --scope console.read" in err
    for _, out, err in (by_key, by_store):
        assert [line.split() for line in out.splitlines()[1:3]] == [
            ["dev/notes", "ready", *out.splitlines()[1].split()[2:4], "1", "call", "0", "errors"],
            ["dev/broken", "failed", "0", "tools", "0", "calls", "0", "errors"],
        ]
        assert "  dev/broken: /no/such/program: cannot be started" in out
        assert re.fullmatch(r"  2 calls since \S+ \S+, 1 error", out.splitlines()[-1])
        assert err == ""
    assert document["servers"]["dev/notes"]["state"] == "ready"
    assert document["calls"]["errors"] == 1


async def test_a_proof_is_for_the_status_alone_and_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        a_gateway(tmp_path) as (url, store),
        open_server_store(store, "keys") as opened,
        httpx.AsyncClient() as web,
    ):
        proof = {HEADER: await make_proof(opened.records)}
        assert (await web.get(f"{url}/operator/status", headers=proof)).status_code == 200
        assert (await web.post(f"{url}/mcp", headers=proof, json={})).status_code == 401
        assert (await web.get(f"{url}/operator/status", headers={HEADER: proof[HEADER] + "A"})).status_code == 401
        assert (await web.get(f"{url}/operator/elsewhere", headers=proof)).status_code == 404
        assert (await web.post(f"{url}/operator/status", headers=proof)).status_code == 405
        monkeypatch.setattr(operator_proof, "VALID_SECONDS", -1.0)
        old = {HEADER: await make_proof(opened.records)}
        assert (await web.get(f"{url}/operator/status", headers=old)).status_code == 401


async def test_a_store_that_cannot_be_read_is_an_error_only_if_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_gateway(tmp_path) as (url, _):
        monkeypatch.setenv("PEGBOARD_STORE", "redis://127.0.0.1:1")
        assert (await status(url))[0] == 0
        assert (await status(url, "--store", "redis://127.0.0.1:1"))[0] == 2


async def test_without_authentication_states_and_numbers_are_shown_to_all() -> None:
    board = Board("shop")
    StatusDocument(BoardSubject(board))

    @board.tool
    def price() -> float:
        return 49.5

    async with serving(board) as site:
        url = f"http://127.0.0.1:{site.port}"
        async with Client(f"{url}/mcp") as client:
            await client.call("price")
        assert "  1 call since" in (await status(url))[1]


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
    assert err.count("Cannot reach http://127.0.0.1:1") == err.count("Is the server running?") == 1


def test_a_url_of_another_kind_is_wrong_usage() -> None:
    code, _, err = run_here("status", "stdio")
    assert code == 2
    assert "is not the URL of a server" in err
