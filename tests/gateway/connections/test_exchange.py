"""A caller's token is exchanged for one of the server, and headers say who calls: always this caller, and no other."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Gateway
from pegboard.call import Call, Done, Handler, Reply
from pegboard.config.gateway_config import read_config
from pegboard.errors import SetupError
from tests.auth.issuing import TestIssuer
from tests.auth.serving import Site, serving
from tests.client.fakes import faking
from tests.gateway.connections.account_site import GATEWAY, AccountIssuer, AccountSite, account_site

MODERN, LEGACY = "2026-07-28", "2025-11-25"
EXCHANGE = {"kind": "exchange", "clientId": "team-tools", "clientSecret": "the-secret-of-the-gateway"}
BASIC = "Basic " + base64.b64encode(b"team-tools:the-secret-of-the-gateway").decode()


def configured(issuer: TestIssuer, url: str, **entry: Any) -> dict[str, Any]:
    return {
        "auth": {"keys": True, "issuers": [{"issuer": issuer.url, "audience": GATEWAY}]},
        "toolboxes": {"dev": {"description": "d", "mcpServers": {"accounts": {"url": url, **entry}}}},
    }


@asynccontextmanager
async def exchanging(
    accounts: AccountSite, issuer: TestIssuer, auth: dict[str, Any]
) -> AsyncIterator[tuple[Gateway, Site]]:
    gateway = Gateway(configured(issuer, accounts.url, auth={"issuer": accounts.issuer.url, **auth}))
    async with serving(gateway, store=accounts.store) as site:
        await gateway.wait_connected(30)
        yield gateway, site


async def whoami(site: Site, token: str, version: str = MODERN) -> str:
    async with Client(f"{site.url}/mcp", headers={"Authorization": f"Bearer {token}"}, version=version) as client:
        return (await client.call("dev__accounts__whoami")).text


async def test_callers_are_known_by_their_own_accounts(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts:
        issuer = accounts.issuer
        async with exchanging(accounts, issuer, EXCHANGE) as (_, site):
            tokens = {name: issuer.sign(sub=name, aud=GATEWAY) for name in ("ann", "bob")}
            calls = [(name, era) for name in tokens for era in (MODERN, LEGACY)] * 3
            answers = await asyncio.gather(*(whoami(site, tokens[name], era) for name, era in calls))
            assert [*answers] == [f"{name}-account" for name, _ in calls]
        exchanged = [form for form in issuer.forms if "subject_token" in form]
        # Once for each token; the server never sees it.
        assert sorted(form["subject_token"] for form in exchanged) == sorted(tokens.values())
        assert exchanged[0]["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
        assert exchanged[0]["resource"] == accounts.url


async def test_two_tokens_of_one_caller_are_exchanged_each_for_itself(tmp_path: Path) -> None:
    """One with few scopes must not get the access of one with more."""
    async with account_site(tmp_path) as accounts:
        issuer = accounts.issuer
        async with exchanging(accounts, issuer, EXCHANGE) as (_, site):
            few, more = (issuer.sign(sub="ann", aud=GATEWAY, scope=scope) for scope in ("read", "read write"))
            for token in (few, more, few):
                assert await whoami(site, token) == "ann-account"
        assert [form["subject_token"] for form in issuer.forms if "subject_token" in form] == [few, more]


async def test_a_refused_exchange_is_a_result_that_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with account_site(tmp_path) as accounts:
        issuer = accounts.issuer
        issuer.unknown.add("eve")
        async with exchanging(accounts, issuer, EXCHANGE) as (_, site):
            token = issuer.sign(sub="eve", aud=GATEWAY)
            text = await whoami(site, token)
            assert "refused to exchange the caller's token" in text
            assert token not in text
            assert await whoami(site, issuer.sign(sub="ann", aud=GATEWAY)) == "ann-account"
        assert token not in caplog.text
        assert "the-secret-of-the-gateway" not in caplog.text


async def test_a_server_cannot_choose_who_gets_the_tokens_of_its_callers(tmp_path: Path) -> None:
    """A token of a caller is valid at the gateway, whoever holds it."""
    async with account_site(tmp_path) as accounts:
        known = {**EXCHANGE, "issuer": "https://id.example.com"}
        gateway = Gateway(configured(accounts.issuer, accounts.url, auth=known))
        async with serving(gateway, store=accounts.store) as site:
            token = accounts.issuer.sign(sub="ann", aud=GATEWAY)
            reply = await site.call("dev__accounts__whoami", token)
            assert "ann-account" not in str(reply.json)
        assert accounts.issuer.forms == []


async def test_a_caller_with_an_api_key_has_nothing_to_exchange(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, exchanging(accounts, accounts.issuer, EXCHANGE) as (_, site):
        reply = await site.call("dev__accounts__whoami", accounts.keys["ann"])
        assert "this caller has none" in reply.json["error"]["message"]


async def test_an_identity_assertion_is_exchanged_for_a_token_of_the_server(tmp_path: Path) -> None:
    provider = AccountIssuer()
    async with account_site(tmp_path) as accounts, faking(provider.answer) as fake:
        provider.url = f"http://127.0.0.1:{fake.port}"
        known = {"issuer": provider.url, "clientId": "at-the-provider", "clientSecret": "another-secret"}
        async with exchanging(accounts, provider, {**EXCHANGE, "identityProvider": known}) as (_, site):
            token = provider.sign(sub="ann", aud=GATEWAY)
            assert await whoami(site, token) == "ann-account"
        (asked,) = provider.forms
        assert asked["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"
        assert (asked["audience"], asked["resource"]) == (accounts.issuer.url, accounts.url)
        assert asked["subject_token"] == token
        (assertion,) = (form for form in accounts.issuer.forms if "assertion" in form)
        assert assertion["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        # The server's authorization server gets the assertion, and never the caller's token.
        assert all(token not in form.values() for form in accounts.issuer.forms)


async def test_a_provider_that_issues_something_else_is_rejected(tmp_path: Path) -> None:
    provider = AccountIssuer()
    provider.issued = "urn:ietf:params:oauth:token-type:access_token"
    async with account_site(tmp_path) as accounts, faking(provider.answer) as fake:
        provider.url = f"http://127.0.0.1:{fake.port}"
        known = {"issuer": provider.url, "clientId": "at-the-provider"}
        async with exchanging(accounts, provider, {**EXCHANGE, "identityProvider": known}) as (_, site):
            assert "refused" in await whoami(site, provider.sign(sub="ann", aud=GATEWAY))
        assert not any("assertion" in form for form in accounts.issuer.forms)


# -- headers that refer to the caller ------------------------------------------------------------------------------------


def header_board() -> Board:
    board = Board("headers")

    @board.tool
    async def whoami() -> str:
        return ""

    async def show_headers(call: Call, next_handler: Handler) -> Reply:
        sent = call.headers or {}
        text = b" ".join((sent.get(b"x-user", b"-"), sent.get(b"x-department", b"-"))).decode()
        return Done({"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}})

    board.use(show_headers)
    return board


HEADERS = {"X-User": "${principal.id}", "X-Department": "of ${principal.claims.org.department}"}


@pytest.mark.parametrize("share", ["all", "principal"])
async def test_headers_say_who_calls(tmp_path: Path, share: str) -> None:
    async with account_site(tmp_path) as accounts, serving(header_board()) as server:
        issuer = accounts.issuer
        config = configured(issuer, f"{server.url}/mcp", headers=HEADERS, share=share)
        gateway = Gateway(config)
        async with serving(gateway, store=accounts.store) as site:
            await gateway.wait_connected(30)
            for department in ("sales", "legal"):
                # The claims of a caller may change with its next token.
                for name in ("ann", "bob"):
                    token = issuer.sign(sub=name, aud=GATEWAY, org={"department": department})
                    for era in (MODERN, LEGACY):
                        assert await whoami(site, token, era) == f"{name} of {department}"


@pytest.mark.parametrize("department", [None, "", "two\r\nX-User: bob", "Vertrieb Süd", ["a"]])
async def test_a_caller_without_a_claim_that_a_header_can_carry_is_refused(tmp_path: Path, department: Any) -> None:
    async with account_site(tmp_path) as accounts, serving(header_board()) as server:
        gateway = Gateway(configured(accounts.issuer, f"{server.url}/mcp", headers=HEADERS))
        async with serving(gateway, store=accounts.store) as site:
            await gateway.wait_connected(30)
            token = accounts.issuer.sign(sub="ann", aud=GATEWAY, org={"department": department})
            reply = await site.call("dev__accounts__whoami", token)
            assert "principal.claims.org.department" in reply.json["error"]["message"]


def test_headers_about_callers_need_authentication() -> None:
    entry = {"url": "https://s.example/mcp", "headers": HEADERS}
    with pytest.raises(SetupError, match="callers are not authenticated"):
        Gateway({"toolboxes": {"dev": {"description": "d", "mcpServers": {"s": entry}}}})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"headers": {"X-User": "${principal.name}"}}, r"expected \$\{principal.id\} or \$\{principal.claims.NAME\}"),
        ({"auth": {"kind": "exchange"}}, "an exchange needs a 'clientId'"),
        ({"auth": {"kind": "exchange", "clientId": "x"}}, "an exchange needs the 'issuer'"),
        ({"auth": {"kind": "client_credentials", "per": "user"}}, "per.*is for oauth"),
        ({"auth": {"kind": "header", "header": "X Key"}}, "is not a valid header name"),
        ({"auth": {"kind": "exchange", "clientId": "x", "identityProvider": {}}}, "has no 'issuer'"),
    ],
)
def test_a_mistake_in_the_configuration_is_reported_with_its_key(entry: dict[str, Any], said: str) -> None:
    config = {
        "auth": {"keys": True},
        "toolboxes": {"dev": {"description": "d", "mcpServers": {"s": {"url": "https://s.example/mcp", **entry}}}},
    }
    with pytest.raises(SetupError, match=said):
        read_config(config, {})


def test_share_all_is_reported_where_requests_act_for_their_caller() -> None:
    entry = {"url": "https://s.example/mcp", "share": "all", "auth": {"kind": "oauth", "per": "user"}}
    config = read_config({"toolboxes": {"dev": {"description": "d", "mcpServers": {"s": entry}}}}, {})
    assert config.toolboxes["dev"].servers["s"].share == "principal"
    assert any("all is not used" in warning for warning in config.warnings)
