"""Foreign clients log in through a certified authorization server (oidc-provider), and call tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import pytest

from tests.peers.judges import HERE, MCP1_PYTHON, NODE, PYTHON
from tests.peers.person import log_in
from tests.peers.serving import PEGBOARD, free_port, running

pytestmark = pytest.mark.peer


@contextmanager
def issuing() -> Iterator[str]:
    port = free_port()
    command = [str(NODE), str(HERE / "node" / "issuer.mjs"), str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE / "node"
    ) as server:
        assert server.stdout is not None
        try:
            assert any(line.strip() == "ready" for line in server.stdout)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with issuing() as issuer:
        port = free_port()
        os.environ["ISSUER"], os.environ["PUBLIC_URL"] = issuer, f"http://127.0.0.1:{port}"
        try:
            command = [str(PEGBOARD), "run", str(HERE / "locked_board.py"), "--http", "--port", str(port)]
            with running(command, port) as address:
                yield address
        finally:
            del os.environ["ISSUER"], os.environ["PUBLIC_URL"]


@pytest.mark.parametrize(
    ("python", "script", "more"),
    [
        (PYTHON, "login_mcp2.py", ["2026-07-28"]),
        (PYTHON, "login_mcp2.py", ["legacy"]),
        (MCP1_PYTHON, "login_mcp1.py", []),
        (PYTHON, "login_fastmcp.py", []),
    ],
    ids=["mcp 2.x", "mcp 2.x legacy", "mcp 1.x", "fastmcp"],
)
def test_a_client_logs_in_and_steps_up(locked: str, python: Path, script: str, more: list[str]) -> None:
    command = [str(python), str(HERE / script), f"{locked}/mcp", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["said"][0].startswith("ann notes.read")
    assert told["said"][1] == "ann wrote"
    assert told["logins"] == 2


def test_the_inspector_logs_in(locked: str, tmp_path: Path) -> None:
    callback = f"http://127.0.0.1:{free_port()}/oauth/callback"
    surroundings = {**os.environ, "HOME": str(tmp_path), "MCP_OAUTH_CALLBACK_URL": callback}
    surroundings["MCP_INSPECTOR_SECRET_STORE"] = "file"

    def mcpdo(*words: str) -> str:
        command = [str(NODE), str(HERE / "node" / "node_modules" / ".bin" / "mcpdo"), *words]
        done = subprocess.run(
            command, env=surroundings, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
        return done.stdout + done.stderr

    try:
        said = mcpdo("connect", f"{locked}/mcp")
        visit = re.search(r"^ +(http\S+/auth\?\S+)$", said, re.MULTILINE)
        assert visit is not None, said
        redirect = parse_qs(urlsplit(visit[1]).query)["redirect_uri"][0]
        found = log_in(visit[1], redirect)
        with urlopen(f"{redirect}?{urlencode(found)}", timeout=20) as page:
            assert page.status == 200
        shown = mcpdo("connections/show", f"@{locked}/mcp")
        assert "pending" not in shown, shown
        assert "ann notes.read" in mcpdo("--connection", f"{locked}/mcp", "tools/call", "whoami")
    finally:
        mcpdo("daemon", "stop")
