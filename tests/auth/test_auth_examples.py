"""The examples of docs/security.md run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from examples import authenticated, mounted_principal

from pegboard.cli.commands.operating import keys_command
from tests.auth.serving import modern_call, serving


async def test_the_authenticated_board_takes_api_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:{tmp_path / 'notes.sqlite'}"
    await asyncio.to_thread(keys_command.main, ["add", "ci", "--scope", "notes.write", "--store", store])
    key = capsys.readouterr().out.strip()
    async with serving(authenticated.board, store=store) as site:
        added = await site.call("add_note", key, text="milk")
        assert added.json["result"]["content"][0]["text"] == "key:ci has 1 notes"
        listed = await site.call("list_notes", key)
        assert listed.json["result"]["structuredContent"] == ["milk"]
        assert (await site.call("list_notes")).status == 401


async def test_the_application_authenticates_the_callers_of_its_board() -> None:
    body, headers = modern_call("whoami")
    every = {**headers, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    transport = httpx.ASGITransport(app=mounted_principal.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        seen = await client.post("/mcp", content=body, headers={**every, "X-Secret": "secret-of-ann"})
        assert seen.json()["result"]["content"][0]["text"] == "ann"
        assert (await client.post("/mcp", content=body, headers=every)).status_code == 401
    await mounted_principal.board.stop()
