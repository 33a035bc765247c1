"""Foreign clients log in through a certified authorization server (oidc-provider), and call tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import httpx
import pytest

from pegboard import Auth, Issuer, SignInClient
from tests.peers.balancer import Balancer, balancing
from tests.peers.judges import DEADLINE, HERE, MCP1_PYTHON, NODE, PYTHON
from tests.peers.person import log_in
from tests.peers.serving import serve
from tests.ports import free_port
from tests.server.pages.paged_board import browsing, serving_notes

pytestmark = pytest.mark.peer

LOCKED = HERE / "locked_board.py"
CLIENTS: dict[str, tuple[Path, str, list[str]]] = {
    "mcp 2.x": (PYTHON, "login_mcp2.py", ["2026-07-28"]),
    "mcp 2.x legacy": (PYTHON, "login_mcp2.py", ["legacy"]),
    "mcp 1.x": (MCP1_PYTHON, "login_mcp1.py", []),
    "fastmcp": (PYTHON, "login_fastmcp.py", []),
}


@pytest.fixture(scope="module")
def replicas(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    """Two servers with one store and one public address: that of the balancer in front of them."""
    store = f"sqlite:{tmp_path_factory.mktemp('replicas') / 'shared.db'}"
    with balancing() as balancer:
        about = {"ISSUER": issuer, "PUBLIC_URL": balancer.address}
        with (
            serve("run", LOCKED, "--store", store, **about) as one,
            serve("run", LOCKED, "--store", store, **about) as two,
        ):
            balancer.replicas = [one, two]
            yield balancer


def call_tools(client: tuple[Path, str, list[str]], address: str, *tools: str) -> dict[str, Any]:
    """Has a client log in and call; the texts that it got and the number of its logins."""
    python, script, more = client
    command = [str(python), str(HERE / script), f"{address}/mcp", *more, *tools]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def both_served_calls(balancer: Balancer) -> None:
    """Both replicas answered a call, and neither rejected a request of the client once it had logged in."""
    statuses = [answer.status for answer in balancer.answers]
    assert max(statuses[statuses.index(200) :]) < 400, balancer.answers
    served = {answer.replica for answer in balancer.answers if answer.method == "tools/call" and answer.status == 200}
    assert len(served) == 2, balancer.answers


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_logs_in_and_steps_up(locked: str, client: tuple[Path, str, list[str]]) -> None:
    told = call_tools(client, locked, "whoami", "write")
    assert told["said"][0].startswith("ann notes.read")
    assert told["said"][1] == "ann wrote"
    assert told["logins"] == 2


# Of the clients with a session, one official client and the Inspector suffice.
@pytest.mark.parametrize("client", ["mcp 2.x", "mcp 1.x", "fastmcp"])
def test_a_client_logs_in_once_for_two_replicas(replicas: Balancer, client: str) -> None:
    replicas.answers.clear()
    told = call_tools(CLIENTS[client], replicas.address, "whoami", "whoami")
    assert told == {"said": ["ann notes.read"] * 2, "logins": 1}
    both_served_calls(replicas)


def call_with_the_inspector(address: str, home: Path, calls: int) -> list[str]:
    """Has the Inspector log in and call `whoami` this often; what it printed for each call."""
    callback = f"http://127.0.0.1:{free_port()}/oauth/callback"
    surroundings = {**os.environ, "HOME": str(home), "MCP_OAUTH_CALLBACK_URL": callback}
    surroundings["MCP_INSPECTOR_SECRET_STORE"] = "file"

    def mcpdo(*words: str) -> str:
        command = [str(NODE), str(HERE / "node" / "node_modules" / ".bin" / "mcpdo"), *words]
        done = subprocess.run(
            command,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.stdout + done.stderr

    try:
        said = mcpdo("connect", f"{address}/mcp")
        visit = re.search(r"^ +(http\S+/auth\?\S+)$", said, re.MULTILINE)
        assert visit is not None, said
        redirect = parse_qs(urlsplit(visit[1]).query)["redirect_uri"][0]
        found = log_in(visit[1], redirect)
        with urlopen(f"{redirect}?{urlencode(found)}", timeout=20) as page:
            assert page.status == 200
        shown = mcpdo("connections/show", f"@{address}/mcp")
        assert "pending" not in shown, shown
        return [mcpdo("--connection", f"{address}/mcp", "tools/call", "whoami") for _ in range(calls)]
    finally:
        mcpdo("daemon", "stop")


def test_the_inspector_logs_in(locked: str, tmp_path: Path) -> None:
    (printed,) = call_with_the_inspector(locked, tmp_path, 1)
    assert "ann notes.read" in printed


def test_the_inspector_logs_in_once_for_two_replicas(replicas: Balancer, tmp_path: Path) -> None:
    replicas.answers.clear()
    for printed in call_with_the_inspector(replicas.address, tmp_path, 2):
        assert "ann notes.read" in printed
    both_served_calls(replicas)


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_person_signs_in_to_a_page(issuer: str, method: str) -> None:
    about = {
        "redirect_uris": ["http://127.0.0.1/sign-in/callback"],
        "application_type": "native",
        "token_endpoint_auth_method": method,
    }
    async with httpx.AsyncClient(trust_env=False) as client:
        registered = (await client.post(f"{issuer}/reg", json=about)).json()
    sign_in = SignInClient(registered["client_id"], registered.get("client_secret", ""), ["notes.read"])
    auth = Auth(issuers=[Issuer(issuer, "pages", sign_in=sign_in)])
    async with serving_notes(auth) as (site, _), browsing() as browser:
        await browser.open(f"{site.url}/notes")
        sent = await browser.follow("Sign in with 127.0.0.1")
        shown = await browser.open(sent.headers["location"])
        assert str(shown.url) == f"{site.url}/notes", shown.text
        assert "ann [&#x27;notes.read&#x27;] token" in shown.text
