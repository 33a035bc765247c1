"""Real clients read what `pegboard connect --write` writes, and connect: their own list of servers says so.

The packages of the four clients have 1 GB, so this is part of `make test-long`.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_bench.installation import install
from agent_bench.roster import AGENTS, Agent
from pegboard.loading import load_board
from tests.auth.serving import serving

ROOT = Path(__file__).resolve().parents[2]
HELLO = ROOT / "examples" / "hello.py"
NODE = ROOT / ".peers" / "bin" / "node"


def packages(agent: Agent) -> Path:
    return agent.home / "node_modules"


COMMANDS: dict[str, tuple[str, Callable[[Agent], list[str | Path]]]] = {
    "claude-code": ("claude_code", lambda agent: [next(packages(agent).glob("@anthropic-ai/claude-code-*/claude"))]),
    "codex": ("codex", lambda agent: [NODE, packages(agent) / "@openai" / "codex" / "bin" / "codex.js"]),
    "opencode": ("opencode", lambda agent: [packages(agent) / "opencode-linux-x64" / "bin" / "opencode"]),
    "gemini": ("gemini_cli", lambda agent: [NODE, packages(agent) / "@google" / "gemini-cli" / "bundle" / "gemini.js"]),
}
# Codex lists the servers without connecting to them.
CONNECTED = {"claude-code": "Connected", "codex": "enabled", "opencode": "connected", "gemini": "Connected"}
QUIET = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
TRUSTED = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}


def run(words: list[str | Path], home: Path) -> str:
    variables = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        words,
        cwd=home,
        env={**variables, **QUIET, **TRUSTED, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("client", COMMANDS)
async def test_a_client_lists_the_servers_that_connect_has_written(client: str, tmp_path: Path) -> None:
    folder, command = COMMANDS[client]
    agent = next(agent for agent in AGENTS if agent.folder == folder)
    install(agent)
    connect: list[str | Path] = [sys.executable, "-m", "pegboard", "connect", client]
    async with serving(load_board(str(HELLO))) as site:
        for name, target in (("shop", f"{site.url}/mcp"), ("local", str(HELLO))):
            await asyncio.to_thread(run, [*connect, target, "--name", name, "--write"], tmp_path)
        again = await asyncio.to_thread(run, [*connect, str(HELLO), "--name", "local", "--write"], tmp_path)
        listed = await asyncio.to_thread(run, [*command(agent), "mcp", "list"], tmp_path)
    assert "up to date, nothing to write" in again
    for name in ("shop", "local"):
        line = next(line for line in listed.splitlines() if re.search(rf"\b{name}\b", line))
        assert CONNECTED[client] in line, listed
