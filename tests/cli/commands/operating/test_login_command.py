"""`pegboard login`: a server that wants one says so, is logged in to without a browser, and is used from then on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from pegboard import Client
from tests.client.login.authorization_server import Locked, locked
from tests.client.login.test_browser import come_back
from tests.server_processes import PEGBOARD, Child, HttpChild
from tests.waiting import SOON, until

pytestmark = pytest.mark.process


def configure(folder: Path, server: Locked) -> Path:
    config = folder / "gateway.json"
    servers = {"safe": {"url": server.url}, "calc": {"command": "true"}}
    config.write_text(json.dumps({"toolboxes": {"dev": {"description": "Dev", "mcpServers": servers}}}))
    return config


async def log_in(config: Path, *words: str, **env: str) -> tuple[int, str]:
    """Run the verb, and go where its link leads."""
    command = (*PEGBOARD, "login", config, "safe", "--no-browser", *words)
    with Child(*command, stdin=subprocess.DEVNULL, **env) as child:
        await until(lambda: "state=" in child.said() or child.process.poll() is not None)
        found = re.search(r"^Log in here to continue:\n(http://\S+)$", child.said(), re.MULTILINE)
        assert found is not None, child.said()
        asked = {name: values[0] for name, values in parse_qs(urlsplit(found[1]).query).items()}
        assert asked["code_challenge_method"] == "S256"
        await come_back(asked["redirect_uri"], f"code=yes&state={asked['state']}")
        code = await asyncio.to_thread(child.wait)
        return code, child.said()


async def test_a_server_that_needs_a_login_says_so_and_is_used_after_one(tmp_path: Path) -> None:
    env = {"PEGBOARD_STATE": str(tmp_path / "state")}
    async with locked() as server:
        config = configure(tmp_path, server)
        child = await asyncio.to_thread(lambda: HttpChild(verb="up", target=config, **env))
        with child:
            await until(lambda: "log in   " in child.said())
            assert re.search(r"^    dev  safe  needs login  http", child.said(), re.MULTILINE)
            assert re.search(rf"^  log in   \S+ login {config} dev/safe$", child.said(), re.MULTILINE)
            async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
                told = (await client.request("tools/list"))["_meta"]["dev.pegboard/servers"]["dev/safe"]
                assert told == {
                    "state": "needs_login",
                    "problem": "needs a login by the operator of this gateway",
                }
            code, said = await log_in(config, **env)
            assert (code, said.splitlines()[-1]) == (0, "dev/safe: logged in, 0 tools")
            # Not necessarily the last one: the gateway still tries without a token.
            assert "Bearer a-token-1" in server.shown()
            again = await asyncio.to_thread(run, tmp_path, "gateway.json", "safe", **env)
            assert again == (0, "dev/safe: needs no new login, 0 tools\n")
            # The gateway that runs already finds the token by itself, within its next attempts.
            async with Client(f"http://127.0.0.1:{child.port}/mcp") as client, asyncio.timeout(45):
                while "dev/safe" in str(await client.request("tools/list")):  # noqa: ASYNC110 — nothing tells it
                    await asyncio.sleep(0.1)
        assert list((tmp_path / "state" / "tokens").iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gateway.json", "sfae"), r"gateway\.json: unknown server 'sfae'; did you mean 'safe'\?"),
        (("gateway.json", "dev/calc"), "calc uses stdio; only servers with a URL can be logged in to"),
        (("gatewy.json", "safe"), r"File not found: .*gatewy\.json, did you mean .*gateway\.json\?"),
    ],
)
def test_an_invalid_login_target_is_reported(tmp_path: Path, words: tuple[str, str], told: str) -> None:
    servers = {"safe": {"url": "http://127.0.0.1:9/mcp"}, "calc": {"command": "true"}}
    config = {"toolboxes": {"dev": {"description": "Dev", "mcpServers": servers}}}
    (tmp_path / "gateway.json").write_text(json.dumps(config))
    code, said = run(tmp_path, *words)
    assert code == 2
    assert re.search(told, said), said


def run(folder: Path, *words: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PEGBOARD, "login", *words, "--no-browser"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=SOON,
        env={**os.environ, **env},
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


async def test_a_person_who_does_not_come_is_waited_for_in_vain(tmp_path: Path) -> None:
    env = {"PEGBOARD_STATE": str(tmp_path / "state")}
    async with locked() as server:
        configure(tmp_path, server)
        code, said = await asyncio.to_thread(run, tmp_path, "gateway.json", "safe", "--timeout", "0.2", **env)
    assert code != 0
    assert "No login within 0.2 s" in said
    assert "Traceback" not in said


async def test_a_token_of_one_principal_is_not_the_gateways(tmp_path: Path) -> None:
    env = {"PEGBOARD_STATE": str(tmp_path / "state")}
    async with locked() as server:
        config = configure(tmp_path, server)
        assert (await log_in(config, "--principal", "ann", **env))[0] == 0
        # Nobody else is let in by it: there is a link to follow again.
        assert (await log_in(config, **env))[0] == 0
        assert server.authority.tokens == ["a-token-1", "a-token-2"]
