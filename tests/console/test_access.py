"""Who may use the console, and for what: scopes, rules, sign-ins that end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pegboard import Auth, Board, Context, Gateway, Principal
from pegboard.config.rule_keys import read_rules
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.console.console_access import ConsoleAccess
from pegboard.console.gateway_subject import GatewaySubject
from pegboard.rules.verdicts import Rules
from tests.auth.serving import Site, bearer, serving
from tests.server.pages.paged_board import Browser, browsing
from tests.server.pages.test_sign_in import add_key


def rights_of(principal: Principal, *rules: Any) -> list[str]:
    return sorted(ConsoleAccess(Rules(read_rules(rules), located=True).verdict).rights(principal))


ANN = Principal("ann")
OPERATOR = Principal("ops", frozenset({"console.operate"}))
ADMIN = Principal("root", frozenset({"console.administer"}))
NURSE = Principal("nurse", roles=frozenset({"nurse"}))
LOCAL = Principal("local:me", kind="local")
EVERYTHING = {"who": "*", "allow": ["*"]}


@pytest.mark.parametrize(
    ("principal", "rules", "rights"),
    [
        (ANN, [], []),
        (OPERATOR, [], ["operate", "read"]),
        (ADMIN, [], ["administer", "operate", "read"]),
        (LOCAL, [], ["administer", "operate", "read"]),
        # What allows all tools does not open the console.
        (ANN, [EVERYTHING], []),
        (OPERATOR, [EVERYTHING], ["operate", "read"]),
        # No rule matches: the scopes decide.
        (OPERATOR, [{"who": "ann", "allow": ["office/*"]}], ["operate", "read"]),
        (LOCAL, [{"who": "ann", "allow": ["office/*"]}], ["administer", "operate", "read"]),
        # A rule that names the console grants and denies.
        (NURSE, [{"who": {"role": "nurse"}, "allow": [{"kind": "console", "match": "read"}]}], ["read"]),
        (NURSE, [{"who": {"role": "nurse"}, "allow": [{"kind": "console"}]}], ["administer", "operate", "read"]),
        (ADMIN, [{"who": "root", "deny": [{"kind": "console"}]}], []),
        (ADMIN, [{"who": "root", "hide": ["*"]}], []),
        (LOCAL, [{"who": "local:me", "deny": [{"kind": "console"}]}], []),
    ],
)
def test_the_rights_of_a_principal(principal: Principal, rules: list[Any], rights: list[str]) -> None:
    assert rights_of(principal, *rules) == rights


def make_board(**options: Any) -> Board:
    board = Board("shop", auth=Auth(keys=True), **options)

    @board.tool
    def whoami(ctx: Context) -> str:
        """Says who calls."""
        return f"{ctx.principal.id} {ctx.principal.kind}"

    return board


@asynccontextmanager
async def serving_for(
    tmp_path: Path, *scopes: str, served: Board | Gateway | None = None
) -> AsyncIterator[tuple[Site, Browser, str]]:
    """A console without a link, and a browser of a person with an API key."""
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, "ann", scopes=scopes)
    served = make_board() if served is None else served
    Console(GatewaySubject(served) if isinstance(served, Gateway) else BoardSubject(served), link=False)
    async with serving(served, store=store) as site, browsing() as browser:
        yield site, browser, key


async def sign_in(site: Site, browser: Browser, key: str) -> httpx.Response:
    await browser.open(f"{site.url}/console/")
    return await browser.submit(key=key)


async def change(site: Site, browser: Browser, what: str, **body: Any) -> httpx.Response:
    me = (await browser.client.get(f"{site.url}/console/api/me")).json()
    return await browser.client.post(
        f"{site.url}/console/api/{what}", json=body, headers={"x-pegboard-csrf": me["csrf"]}
    )


async def test_a_person_with_the_scope_signs_in_and_calls_as_themselves(tmp_path: Path) -> None:
    async with serving_for(tmp_path, "console.read") as (site, browser, key):
        assert b"app.js" in (await sign_in(site, browser, key)).content
        me = (await browser.client.get(f"{site.url}/console/api/me")).json()
        assert (me["principal"], me["rights"], me["signed_in"]) == ("key:ann", ["read"], True)
        called = await change(site, browser, "call", name="whoami", arguments={})
        assert "key:ann key" in called.text
        (row,) = (await browser.client.get(f"{site.url}/console/api/calls")).json()
        assert row["principal"] == "key:ann"


async def test_a_person_without_the_scope_is_told_what_is_missing(tmp_path: Path) -> None:
    async with serving_for(tmp_path, "notes.read") as (site, browser, key):
        refused = await sign_in(site, browser, key)
        assert refused.status_code == 403
        assert "needs the scope console.read" in refused.text
        for path in ("api/calls", "api/me", "events", "app.js"):
            assert (await browser.client.get(f"{site.url}/console/{path}")).status_code == 403
        assert "is signed out" in (await browser.submit(action="")).text


async def test_a_change_needs_its_right(tmp_path: Path) -> None:
    gateway = Gateway({"toolboxes": {}, "auth": {"keys": True}})
    async with serving_for(tmp_path, "console.read", served=gateway) as (site, browser, key):
        await sign_in(site, browser, key)
        stopped = await change(site, browser, "server", toolbox="a", server="b", action="stop")
        assert (stopped.status_code, "console.operate" in stopped.text) == (403, True)
        accepted = await change(site, browser, "accept", names=["a/b/c"])
        assert (accepted.status_code, "console.administer" in accepted.text) == (403, True)


async def test_the_rules_decide_about_calls_from_the_console(tmp_path: Path) -> None:
    rules = [{"who": "key:ann", "allow": [{"kind": "console"}], "deny": ["whoami"]}]
    async with serving_for(tmp_path, served=make_board(rules=rules)) as (site, browser, key):
        await sign_in(site, browser, key)
        called = await change(site, browser, "call", name="whoami", arguments={})
        assert "denied" in called.text
        assert "key:ann key" not in called.text


async def test_a_program_reads_the_console_with_its_token(tmp_path: Path) -> None:
    async with serving_for(tmp_path, "console.read") as (site, browser, key):
        reply = await browser.client.get(f"{site.url}/console/api/overview", headers=bearer(key))
        assert reply.json()["name"] == "shop"


async def test_the_stream_of_a_page_ends_with_the_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.console.live_stream.CHECK_SECONDS", 0.0)
    async with serving_for(tmp_path, "console.read") as (site, browser, key):
        await sign_in(site, browser, key)
        me = (await browser.client.get(f"{site.url}/console/api/me")).json()
        async with browser.client.stream("GET", f"{site.url}/console/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines) == "event: state"
            out = await browser.client.post(f"{site.url}/sign-in/out", data={"csrf": me["csrf"]})
            assert "is signed out" in out.text
            async for _ in lines:
                pass


async def test_the_link_of_the_launch_does_not_exist_where_people_sign_in(tmp_path: Path) -> None:
    async with serving_for(tmp_path, "console.read") as (site, browser, _):
        assert (await browser.open(f"{site.url}/console/?token=")).url.path == "/sign-in"
        assert (await browser.open(f"{site.url}/console/?token=guessed")).url.path == "/sign-in"


def test_the_link_that_is_printed_is_the_public_one_where_people_sign_in() -> None:
    board = Board("shop", auth=Auth(keys=True, public_url="https://tools.example.com/team"))
    console = Console(BoardSubject(board), link=False)
    assert console.link("http://0.0.0.0:7332/mcp") == "https://tools.example.com/team/console/"
