"""Two users with accounts at a certified authorization server (oidc-provider), two replicas of a gateway, both eras."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import httpx
import pytest

from pegboard import Client
from tests.gateway.connections.account_site import Person
from tests.peers.judges import DEADLINE
from tests.peers.person import log_in
from tests.peers.serving import PEGBOARD, running
from tests.ports import free_port
from tests.server.pages.paged_board import Browser
from tests.waiting import wait_until

pytestmark = pytest.mark.peer

MODERN, LEGACY = "2026-07-28", "2025-11-25"


def get(url: str) -> Any:
    with urlopen(url, timeout=20) as page:
        return json.loads(page.read() or b"null")


class Team:
    """A gateway file, its store, the operator's login, and a key for each user."""

    def __init__(self, folder: Path, locked: str, share: str) -> None:
        self.config = folder / "team.json"
        entry = {"url": f"{locked}/mcp", "share": share, "auth": {"kind": "oauth", "per": "user"}}
        tree = {
            "auth": {"keys": True},
            "toolboxes": {"work": {"description": "d", "mcpServers": {"notes": entry}}},
        }
        self.config.write_text(json.dumps(tree))
        self.env = {"PEGBOARD_STATE": str(folder / "state"), "PEGBOARD_SECRET": "the-key-of-the-operator"}
        self.store = f"sqlite:{folder / 'team.db'}"
        self._log_in_operator()
        self.keys = {name: self.run("keys", "add", name, "--store", self.store).strip() for name in ("ann", "bob")}

    def run(self, *words: str) -> str:
        command = [str(PEGBOARD), *words]
        done = subprocess.run(
            command, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _log_in_operator(self) -> None:
        command = [str(PEGBOARD), "login", str(self.config), "notes", "--no-browser"]
        with subprocess.Popen(command, env={**os.environ, **self.env}, stderr=subprocess.PIPE, text=True) as login:
            assert login.stderr is not None
            link = next(found[0] for line in login.stderr if (found := re.search(r"http\S+/auth\?\S+", line)))
            redirect = parse_qs(urlsplit(link).query)["redirect_uri"][0]
            with urlopen(f"{redirect}?{urlencode(log_in(link, redirect))}", timeout=20) as page:
                assert page.status == 200
            assert login.wait(60) == 0

    @contextmanager
    def replicas(self) -> Iterator[list[str]]:
        with ExitStack() as stack:
            ports = [free_port(), free_port()]
            yield [
                stack.enter_context(
                    running(
                        [str(PEGBOARD), "up", str(self.config), "--port", str(port), "--store", self.store],
                        port,
                        **self.env,
                    )
                )
                for port in ports
            ]

    async def call(self, address: str, user: str, era: str, **options: Any) -> str:
        headers = {"Authorization": f"Bearer {self.keys[user]}"}
        async with Client(f"{address}/mcp", headers=headers, version=era, **options) as client:
            return (await client.call("work__notes__whoami")).text.partition(" ")[0]

    async def connect(self, address: str, user: str, era: str) -> str:
        """The first call of a user, who logs in as `<user>-account`."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as browser:
            browser.cookies.set("account", f"{user}-account", domain="127.0.0.1")
            person = Person(SimpleNamespace(keys=self.keys), user, f"{user}-account", Browser(browser))  # type: ignore[arg-type]  # all that it uses
            return await self.call(address, user, era, elicit=person.elicit)

    async def interleave(self, replicas: list[str], seed: int) -> None:
        order = random.Random(seed)

        async def one_call() -> None:
            user = order.choice(("ann", "bob"))
            answer = await self.call(order.choice(replicas), user, order.choice((MODERN, LEGACY)))
            assert answer == f"{user}-account"

        await asyncio.gather(*(one_call() for _ in range(16)))


@pytest.mark.parametrize("share", ["all", "principal"])
def test_two_users_are_never_crossed_and_refreshed_once(issuer: str, locked: str, share: str, tmp_path: Path) -> None:
    team = Team(tmp_path, locked, share)
    before = get(f"{issuer}/counts")

    def refreshes(user: str) -> int:
        name = f"refresh_token {user}-account"
        return int(get(f"{issuer}/counts").get(name, 0)) - int(before.get(name, 0))

    async def connect(replicas: list[str]) -> None:
        answers = await asyncio.gather(
            team.connect(replicas[0], "ann", MODERN), team.connect(replicas[1], "bob", LEGACY)
        )
        assert [*answers] == ["ann-account", "bob-account"]

    with team.replicas() as replicas:
        get(f"{issuer}/seconds/1")
        asyncio.run(connect(replicas))
        connected = time.time()
        get(f"{issuer}/seconds/3600")
        # The tokens of both expire: by the clock, since only that ends them.
        wait_until(lambda: time.time() > connected + 1)
        asyncio.run(team.interleave(replicas, seed=1))
        assert (refreshes("ann"), refreshes("bob")) == (1, 1)
    with team.replicas() as replicas:
        asyncio.run(team.interleave(replicas, seed=2))
        assert (refreshes("ann"), refreshes("bob")) == (1, 1)
        assert get(f"{issuer}/counts").get("failed refresh_token", 0) == before.get("failed refresh_token", 0)
        listed = json.loads(team.run("connections", str(team.config), "--store", team.store, "--json"))
        assert [(entry["server"], entry["principal"]) for entry in listed] == [
            ("work/notes", "key:ann"),
            ("work/notes", "key:bob"),
        ]
        team.run("connections", str(team.config), "--store", team.store, "--remove", "--principal", "key:ann")
        for address in replicas:
            wait_until(lambda at=address: asyncio.run(team.call(at, "ann", MODERN)) != "ann-account")  # type: ignore[misc]  # a default
            assert asyncio.run(team.call(address, "bob", LEGACY)) == "bob-account"
