"""Requests are authenticated at every endpoint, and tools see their principal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Context, Gateway, Principal
from pegboard.config.gateway_config import read_config
from pegboard.testing import fixed_tokens
from tests.auth.serving import HELLO, legacy_message, modern_call, serving, write_request

ANN = Principal(
    "ann", scopes=frozenset({"notes.read"}), roles=frozenset({"nurse"}), claims={"email": "ann@example.com"}
)
BOB = Principal("bob", scopes=frozenset({"notes.read", "notes.write"}))


def notes_board(**options: Any) -> Board:
    board = Board("notes", auth=fixed_tokens({"ann-token": ANN, "bob-token": BOB}, **options))

    @board.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.roles)} {ctx.principal.claims.get('email')}"

    @board.tool(scopes={"notes.write", "notes.read"})
    async def write() -> str:
        return "written"

    return board


async def test_a_tool_sees_the_principal_of_its_caller() -> None:
    async with serving(notes_board()) as site:
        reply = await site.call("whoami", "ann-token")
        assert reply.json["result"]["content"][0]["text"] == "ann ['nurse'] ann@example.com"


async def test_a_request_without_credentials_gets_a_challenge_without_an_error() -> None:
    async with serving(notes_board(scopes={"notes.read"})) as site:
        reply = await site.call("whoami")
        assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer scope="notes.read"')
        assert "result" not in reply.json


async def test_an_unknown_token_gets_a_challenge_that_says_so() -> None:
    async with serving(notes_board()) as site:
        reply = await site.call("whoami", "eve-token")
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith('Bearer error="invalid_token", error_description="')


async def test_a_tool_with_scopes_rejects_a_caller_without_them_and_names_all_of_them() -> None:
    async with serving(notes_board()) as site:
        reply = await site.call("write", "ann-token")
        assert reply.status == 403
        assert reply.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="notes.read notes.write"'
        assert reply.json["error"]["data"]["scope"] == "notes.read notes.write"
        assert (await site.call("write", "bob-token")).json["result"]["content"][0]["text"] == "written"


async def test_a_repeated_request_on_one_connection_is_authenticated_by_its_own_token() -> None:
    async with serving(notes_board()) as site:
        line = await site.connect()
        seen = []
        for token in ("ann-token", "ann-token", "bob-token", "eve-token", "ann-token", None):
            reply = await line.ask(write_request("POST", "/mcp", *modern_call("whoami", token)))
            seen.append(reply.json["result"]["content"][0]["text"][:3] if reply.status == 200 else reply.status)
        line.hang_up()
        assert seen == ["ann", "ann", "bob", 401, "ann", 401]


async def test_a_legacy_session_belongs_to_the_principal_that_opened_it() -> None:
    async with serving(notes_board()) as site:
        opened = await site.ask("POST", "/mcp", *legacy_message("initialize", "ann-token", **HELLO))
        session = opened.headers["mcp-session-id"]
        call = {"name": "whoami", "arguments": {}}
        own = await site.ask("POST", "/mcp", *legacy_message("tools/call", "ann-token", session, **call))
        assert own.json["result"]["content"][0]["text"].startswith("ann ")
        for token, status in (("bob-token", 404), ("eve-token", 401), (None, 401)):
            reply = await site.ask("POST", "/mcp", *legacy_message("tools/call", token, session, **call))
            assert reply.status == status
        step_up = await site.ask("POST", "/mcp", *legacy_message("tools/call", "ann-token", session, name="write"))
        assert (step_up.status, "insufficient_scope" in step_up.headers["www-authenticate"]) == (403, True)


@pytest.mark.parametrize("path", ["/rpc", "/sse"])
async def test_deprecated_endpoints_authenticate_too(path: str) -> None:
    async with serving(notes_board()) as site:
        body, headers = legacy_message("tools/call", "ann-token", name="whoami", arguments={})
        assert "ann " in (await site.ask("POST", path, body, headers)).body.decode()
        assert (await site.ask("POST", path, body, {})).status == 401


async def test_a_tool_never_sees_the_token_of_its_caller() -> None:
    seen: list[Any] = []
    board = Board("spy", auth=fixed_tokens({"ann-token": ANN}))

    async def look(call: Any, inner: Any) -> Any:
        seen.append(dict(call.headers))
        return await inner(call)

    board.use(look)

    @board.tool
    def nothing() -> None: ...

    async with serving(board) as site:
        assert (await site.call("nothing", "ann-token")).status == 200
    assert seen
    assert not any(b"authorization" in headers for headers in seen)


async def test_a_tool_of_a_board_behind_a_gateway_checks_the_scopes_of_the_caller(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from pegboard import Board, Context\nboard = Board('shop')\n"
        "@board.tool(scopes={'notes.write'})\ndef write(ctx: Context) -> str:\n    return ctx.principal.id\n"
    )
    config = tmp_path / "gateway.json"
    servers = {"shop": {"board": str(file)}}
    config.write_text(json.dumps({"toolboxes": {"office": {"description": "x", "mcpServers": servers}}}))
    auth = fixed_tokens({"ann-token": ANN, "bob-token": BOB})
    async with serving(Gateway(read_config(config, {}), auth=auth)) as site:
        listed = await site.ask("POST", "/rpc", *legacy_message("tools/list", "bob-token"))
        [name] = [tool["name"] for tool in listed.json["result"]["tools"]]
        assert (await site.call(name, "bob-token")).json["result"]["content"][0]["text"] == "bob"
        refused = await site.call(name, "ann-token")
        assert "result" not in refused.json or refused.json["result"]["isError"]
        assert refused.status == 403
        assert 'scope="notes.write"' in refused.headers["www-authenticate"]
