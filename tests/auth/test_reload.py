"""An edit of the `auth` of a gateway's file takes effect while it runs, and API keys outlive an idle gateway."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard import Gateway
from pegboard.cli.commands.operating import keys_command
from pegboard.config.gateway_config import read_config
from pegboard.gateway.state_folder import UNUSED_DAYS, store_path
from tests.auth.issuing import PUBLIC_URL, RESOURCE, issuing
from tests.auth.serving import bearer, modern_call, read_to_end, serving, write_request


def write(file: Path, *audience: str, issuer: str) -> Any:
    auth = {"publicUrl": PUBLIC_URL, "issuers": [{"issuer": issuer, "audience": list(audience)}]}
    file.write_text(json.dumps({"auth": auth, "toolboxes": {}}))
    return read_config(file, {})


async def test_an_edit_of_auth_rejects_tokens_no_longer_valid_and_closes_their_streams(tmp_path: Path) -> None:
    async with issuing() as issuer:
        file = tmp_path / "gateway.json"
        gateway = Gateway(write(file, RESOURCE, issuer=issuer.url))
        async with serving(gateway) as site:
            token = issuer.sign()
            line = await site.connect()
            raw = write_request("POST", "/mcp", *modern_call("nothing", token))
            assert (await line.ask(raw)).status != 401
            stream = await site.connect()
            await stream.say(write_request("GET", "/sse", b"", {**bearer(token), "Accept": "text/event-stream"}), "GET")
            assert b"200 OK" in await stream._reader.readuntil(b"event: endpoint")
            await gateway.reload(gateway.config, write(file, "https://new.example", issuer=issuer.url))
            assert (await line.ask(raw)).status == 401
            assert (await site.call("nothing", issuer.sign(aud="https://new.example"))).status != 401
            await read_to_end(stream)
            line.hang_up()


async def test_authentication_that_an_edit_adds_or_removes_is_said_to_wait_for_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "gateway.json"

    def edited(auth: str) -> Any:
        file.write_text(f'{{{auth}"toolboxes": {{}}}}')
        return read_config(file, {})

    opened, closed = edited(""), edited('"auth": {"keys": true}, ')
    for before, after, told in ((opened, closed, "still off, every caller is accepted"), (closed, opened, "still on")):
        gateway = Gateway(before)
        await gateway.reload(before, after)
        assert f"authentication is {told}" in caplog.text


def test_the_keys_of_a_gateway_that_has_not_run_for_long_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    files = []
    for name in ("with", "without"):
        config = tmp_path / f"{name}.json"
        config.write_text('{"auth": {"keys": true}, "toolboxes": {}}')
        assert keys_command.main(["add", "ci", "--config", str(config)]) == 0
        files.append(store_path(str(config)))
    assert keys_command.main(["revoke", "ci", "--config", str(tmp_path / "without.json")]) == 0
    long_ago = time.time() - (UNUSED_DAYS + 1) * 86_400
    for file in (tmp_path / "state").iterdir():
        os.utime(file, (long_ago, long_ago))
    store_path(str(tmp_path / "another.json"))
    assert [file.exists() for file in files] == [True, False]
