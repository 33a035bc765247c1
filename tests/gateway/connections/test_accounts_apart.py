"""Two users with two accounts at one server are never taken for each other, whatever they share."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pegboard import Principal
from pegboard.client.login import access_tokens
from pegboard.errors import InvalidParams
from tests.auth.issuing import TestIssuer, issuing
from tests.gateway.connections.account_site import GATEWAY, AccountSite, Served, account_site, person

MODERN, LEGACY = "2026-07-28", "2025-11-25"


async def interleave(accounts: AccountSite, gateways: list[Served], rounds: int, seed: int) -> None:
    """Calls of both users in both eras through all replicas, many at a time."""
    order = random.Random(seed)

    async def call(number: int) -> None:
        user, gateway, era = order.choice(("ann", "bob")), order.choice(gateways), order.choice((MODERN, LEGACY))
        assert await gateway.call(user, era, mark=f" {number}") == f"{user}-account {number}"

    await asyncio.gather(*(call(number) for number in range(rounds)))


@pytest.mark.parametrize("share", ["all", "principal", "session"])
async def test_two_users_are_never_crossed_over_replicas_and_a_restart(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann, person(accounts, "bob") as bob:
        async with accounts.gateway(share=share) as one, accounts.gateway(share=share) as two:
            # Each connects at one replica, in one era, at the same time.
            first = await asyncio.gather(
                one.call("ann", MODERN, elicit=ann.elicit), two.call("bob", LEGACY, elicit=bob.elicit)
            )
            assert [*first] == ["ann-account", "bob-account"]
            await interleave(accounts, [one, two], 24, seed=1)
        async with accounts.gateway(share=share) as one, accounts.gateway(share=share) as two:
            monkeypatch.setattr(access_tokens, "time", SimpleNamespace(time=lambda: time.time() + 700))
            await interleave(accounts, [one, two], 24, seed=2)
        assert (accounts.issuer.refreshed["ann-account"], accounts.issuer.refreshed["bob-account"]) == (1, 1)
        assert accounts.issuer.reused == 0
        assert (len(ann.opened), len(bob.opened)) == (1, 1)


async def test_a_connection_that_is_removed_is_not_used_any_more(tmp_path: Path) -> None:
    async with (
        account_site(tmp_path) as accounts,
        person(accounts, "ann") as ann,
        person(accounts, "bob") as bob,
        accounts.gateway() as one,
        accounts.gateway() as two,
    ):
        for gateway in (one, two):
            assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
        assert await one.call("bob", elicit=bob.elicit) == "bob-account"
        assert one.gateway.connections is not None
        (entry,) = await one.gateway.connections.vault.of("key:ann")
        said = await one.gateway.connections.remove(Principal(entry.owner.principal), "dev", "accounts")
        assert said == "removed; revoked at its authorization server"
        assert len(accounts.issuer.revoked) == 2
        async with asyncio.timeout(20):
            for gateway in (one, two):
                while "/connect/accounts?link=" not in await gateway.call("ann"):
                    pass
        assert await two.call("bob") == "bob-account"


@pytest.mark.parametrize(
    ("metadata", "down", "said"),
    [
        ({"revocation_endpoint": None}, False, "removed; its authorization server offers no revocation"),
        ({}, True, "removed; the authorization server could not be asked to revoke it"),
    ],
)
async def test_a_connection_is_removed_even_if_its_token_cannot_be_revoked(
    tmp_path: Path, metadata: dict[str, Any], down: bool, said: str
) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann, accounts.gateway() as gateway:
        assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
        accounts.issuer.metadata, accounts.issuer.down_for_all = metadata, down
        assert gateway.gateway.connections is not None
        told = await gateway.gateway.connections.remove(Principal("key:ann"), "dev", "accounts")
        assert told.startswith(said)
        assert await gateway.gateway.connections.vault.all() == []
        again = await gateway.gateway.connections.remove(Principal("key:ann"), "dev", "accounts")
        assert again == "there was no connection"


async def test_a_user_sees_only_the_servers_that_the_rules_show(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts:
        rules = [{"who": "key:ann", "allow": ["*"]}, {"who": "*", "hide": ["dev/accounts"]}]
        async with accounts.gateway({**accounts.config(), "rules": rules}) as gateway:
            connections = gateway.gateway.connections
            assert connections is not None
            ann, bob = Principal("key:ann", kind="key"), Principal("key:bob", kind="key")
            assert [status.server for status in await connections.of(ann)] == ["accounts"]
            assert await connections.of(bob) == []
            with pytest.raises(InvalidParams, match="There is no server dev/accounts"):
                await connections.start_login(bob, "dev", "accounts")
            assert (await connections.start_login(ann, "dev", "accounts")).path.startswith("/connect/accounts?link=")


async def test_the_audit_log_names_the_credential_of_a_call_and_each_connection(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
        config = {**accounts.config(), "middleware": [{"use": "Audit", "options": {"path": str(tmp_path / "audit")}}]}
        async with accounts.gateway(config) as gateway:
            assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
            assert gateway.gateway.connections is not None
            await gateway.gateway.connections.remove(Principal("key:ann"), "dev", "accounts")
    records = await asyncio.to_thread(read_records, tmp_path / "audit")
    assert [record["action"] for record in records if record.get("action", "").startswith("connections.")] == [
        "connections.add",
        "connections.remove",
    ]
    assert "oauth of the caller at accounts" in [record.get("credential") for record in records]
    assert not any(token in str(records) for token in accounts.issuer.issued_tokens)


def read_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.jsonl")) for line in file.read_text().splitlines()]


async def test_a_person_who_signs_in_at_the_issuer_of_their_token_is_the_same_user(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, issuing() as people, issuing() as others:

        def of(issuer: TestIssuer) -> dict[str, Any]:
            known = {"issuer": issuer.url, "audience": GATEWAY, "signIn": {"clientId": "pages"}}
            return {**accounts.config(), "auth": {"issuers": [known]}}

        async with accounts.gateway(of(people)) as gateway, person(accounts, "ann") as ann:
            accounts.keys["ann"] = people.sign(sub="ann", aud=GATEWAY)
            found = re.search(r"http\S+/connect/accounts\S+", await gateway.call("ann"))
            assert found is not None
            await ann.browser.open(found[0])
            away = await ann.browser.follow("Sign in with")
            await ann.browser.open(people.consent(away.headers["location"]), **{"sec-fetch-site": "cross-site"})
            assert "is connected" in (await ann.log_in()).text
            assert await gateway.call("ann") == "ann-account"
        # The same id, stated by another issuer, is another user.
        async with accounts.gateway(of(others)) as gateway:
            accounts.keys["ann"] = others.sign(sub="ann", aud=GATEWAY)
            assert "/connect/accounts?link=" in await gateway.call("ann")
