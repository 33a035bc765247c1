"""API keys: added by a command, kept as digests, known to every process, revoked within seconds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from pegboard import Auth, Board, Context
from pegboard.cli.commands.operating import keys_command
from pegboard.errors import SetupError
from tests.auth.serving import HELLO, bearer, legacy_message, read_to_end, serving, write_request


def board_with_keys(running: asyncio.Event | None = None) -> Board:
    board = Board("notes", auth=Auth(keys=True))

    @board.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)} {sorted(ctx.principal.roles)} {ctx.principal.kind}"

    @board.tool
    async def wait() -> str:
        if running is not None:
            running.set()
        await asyncio.Event().wait()
        return "never"

    return board


def keys(store: str, *arguments: str) -> None:
    assert keys_command.main([*arguments, "--store", store]) == 0


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


async def add(store: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    await asyncio.to_thread(keys, store, "add", *arguments)
    return capsys.readouterr().out.strip()


async def test_a_key_gives_its_principal_and_the_store_has_only_its_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "store.sqlite"
    key = await add(f"sqlite:{file}", capsys, "ci", "--scope", "notes.read", "--role", "robot", "--expires", "30d")
    assert key.startswith("pb_")
    async with serving(board_with_keys(), store=f"sqlite:{file}") as site:
        reply = await site.call("whoami", key)
        assert reply.json["result"]["content"][0]["text"] == "key:ci ['notes.read'] ['robot'] key"
        for wrong in ("pb_" + "A" * 43, key[:-1], key.lower(), "pb_"):
            assert (await site.call("whoami", wrong)).status == 401
        metadata = await site.ask("GET", "/.well-known/oauth-protected-resource/mcp")
        assert metadata.status == 404
    assert all(key.encode() not in data for data in contents(tmp_path))


async def test_two_servers_know_a_key_and_its_revocation_ends_streams_calls_and_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.auth.api_keys.CHECK_SECONDS", 0.1)
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    running = asyncio.Event()
    async with serving(board_with_keys(running), store=store) as one, serving(board_with_keys(), store=store) as two:
        key = await add(store, capsys, "ci")
        opened = await one.ask("POST", "/mcp", *legacy_message("initialize", key, **HELLO))
        session = opened.headers["mcp-session-id"]
        line = await two.connect()
        headers = {**bearer(key), "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        await line.say(write_request("GET", "/mcp", b"", {**headers, "Accept": "text/event-stream"}), "GET")
        assert b"200 OK" in await line._reader.readuntil(b"\r\n\r\n")
        call = await one.connect()
        await call.say(write_request("POST", "/mcp", *legacy_message("tools/call", key, session, name="wait")))
        await running.wait()
        await asyncio.to_thread(keys, store, "revoke", "ci")
        await read_to_end(line)
        assert b"never" not in await read_to_end(call)
        for site in (one, two):
            # The other server may have ended all this, before this one checked the key.
            while (await site.call("whoami", key)).status != 401:
                pass


async def test_a_websocket_of_a_revoked_key_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.auth.api_keys.CHECK_SECONDS", 0.1)
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    key = await add(store, capsys, "ci")
    async with serving(board_with_keys(), store=store) as site:
        url = f"ws://127.0.0.1:{site.port}/ws"
        async with connect(url, additional_headers=bearer(key), proxy=None) as socket:
            await asyncio.to_thread(keys, store, "revoke", "ci")
            await socket.wait_closed()
            assert socket.close_code == 3000


async def test_an_expired_key_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    key = await add(store, capsys, "ci", "--expires", "1h")
    board = Board("notes", auth=Auth(keys=True, clock=lambda: time.time() + 3601))
    async with serving(board, store=store) as site:
        reply = await site.call("whoami", key)
        assert (reply.status, "The key has expired" in reply.headers["www-authenticate"]) == (401, True)


def test_keys_are_listed_without_their_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    keys(store, "add", "ci", "--scope", "notes.read")
    key = capsys.readouterr().out.strip()
    keys(store, "list")
    shown = capsys.readouterr().out
    assert shown.startswith("ci  added ")
    assert "scopes notes.read" in shown
    assert key not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "ci"], "already a key 'ci'"),
        (["add", "a b"], "not a name for a key"),
        (["add", "x", "--scope", "a b"], "not a scope"),
        (["add", "x", "--expires", "soon"], "not a time"),
        (["revoke", "cd"], "no key 'cd'; there are: ci"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, arguments: list[str], message: str) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    keys(store, "add", "ci")
    with pytest.raises(SetupError, match=message):
        keys(store, *arguments)


async def test_keys_need_a_store() -> None:
    with pytest.raises(SetupError, match="kept in a store"):
        async with serving(board_with_keys()):
            raise AssertionError


def test_the_keys_of_a_configuration_are_in_the_store_that_up_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    config = tmp_path / "gateway.json"
    config.write_text('{"auth": {"keys": true}, "toolboxes": {}}')
    assert keys_command.main(["add", "ci", "--config", str(config)]) == 0
    assert capsys.readouterr().out.startswith("pb_")
    assert [file.suffix for file in (tmp_path / "state").glob("gateway-*.sqlite")] == [".sqlite"]
