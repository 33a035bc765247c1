"""The vault: encrypted, each user's own, renewed by one process at a time, and nothing lost with the wrong key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pegboard import Gateway
from pegboard.auth.principal import Principal
from pegboard.client.login import access_tokens
from pegboard.client.login.grants import PendingLogin
from pegboard.config.gateway_config import read_config
from pegboard.errors import Busy, SetupError, Unreachable
from pegboard.gateway.connections import vault as vault_module
from pegboard.gateway.connections.connect_links import MAX_OPEN, BegunLogin, ConnectLinks
from pegboard.gateway.connections.user_connections import UserConnections
from pegboard.gateway.connections.vault import FEED, CredentialOwner, Vault, VaultKeyMismatch, owner_of
from pegboard.gateway.state_folder import VAULT_CHECK
from pegboard.limits import Limits
from pegboard.security.seal import read_keys
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store
from pegboard.stores.store_url import open_store
from tests.gateway.connections.account_site import SECRET, account_site, person
from tests.middleware.valkey import valkey
from tests.waiting import until

ANN = CredentialOwner("ann", "https://issuer.example", "https://server.example/mcp")
BOB = CredentialOwner("bob", "https://issuer.example", "https://server.example/mcp")
TOKEN = b"the-token-of-ann"
OLD, NEW = "the-first-key-of-the-operator", "the-second-key-of-the-operator"


@asynccontextmanager
async def stored(folder: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:{folder / 'vault.db'}", Limits())
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def files_in(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


def vault_of(store: Store, secret: str = SECRET) -> Vault:
    return Vault(store, read_keys(secret))


async def test_what_the_store_holds_is_encrypted(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await vault_of(store).connect(ANN, {"token": TOKEN})
        assert await vault_of(store).read(ANN) == {"token": TOKEN}
    assert not any(TOKEN in content for content in files_in(tmp_path))


async def test_a_record_that_was_copied_to_another_user_does_not_open(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        vault = vault_of(store)
        await vault.connect(ANN, {"token": TOKEN})
        kept = await store.records.get(f"vault {ANN.key}")
        assert kept is not None
        await store.records.put(f"vault {BOB.key}", kept.value)
        with pytest.raises(VaultKeyMismatch):
            await vault.read(BOB)
        with pytest.raises(Unreachable, match="cannot be read"):
            await vault.storage(BOB).load("token")


async def test_the_same_id_of_another_issuer_is_another_user(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        vault = vault_of(store)
        await vault.connect(owner_of(Principal("ann", issuer="https://a.example"), "https://s.example"), {"t": TOKEN})
        for issuer in ("", "https://b.example"):
            assert await vault.read(owner_of(Principal("ann", issuer=issuer), "https://s.example")) is None


async def test_a_vault_with_another_key_says_what_to_do_and_keeps_everything(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await vault_of(store, OLD).check()
        await vault_of(store, OLD).connect(ANN, {"token": TOKEN})
        wrong = vault_of(store, NEW)
        with pytest.raises(VaultKeyMismatch, match=r"another key.*nothing in it was changed.*--rotate"):
            await wrong.check()
        with pytest.raises(VaultKeyMismatch):
            await wrong.change(ANN, lambda values: values.clear())
        with pytest.raises(VaultKeyMismatch):
            await wrong.encrypt_again()
        assert await vault_of(store, OLD).read(ANN) == {"token": TOKEN}


async def test_a_key_is_replaced_without_a_new_login(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await vault_of(store, OLD).check()
        await vault_of(store, OLD).connect(ANN, {"token": TOKEN})
        await vault_of(store, OLD).connect(BOB, {"token": b"of-bob"})
        both = vault_of(store, f"{NEW},{OLD}")
        assert await both.read(ANN) == {"token": TOKEN}
        assert await both.encrypt_again() == 2
        newest = vault_of(store, NEW)
        await newest.check()
        assert (await newest.read(ANN), await newest.read(BOB)) == ({"token": TOKEN}, {"token": b"of-bob"})
        with pytest.raises(VaultKeyMismatch):
            await vault_of(store, OLD).check()


async def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        vault = vault_of(store)
        await vault.connect(ANN, {"token": TOKEN})
        storage = vault.storage(ANN)
        assert await vault.remove(ANN)
        await storage.save("token", b"renewed meanwhile")
        assert await vault.read(ANN) is None
        assert await vault.all() == []
        assert not await vault.remove(ANN)


async def test_all_connections_and_those_of_one_user_are_listed(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        vault = Vault(store, read_keys(SECRET), clock=lambda: 5.0)
        for owner in (BOB, ANN, ANN):
            await vault.connect(owner, {})
        assert [(entry.owner, entry.since) for entry in await vault.all()] == [(ANN, 5.0), (BOB, 5.0)]
        assert [entry.owner for entry in await vault.of("ann")] == [ANN]
        assert await vault.of("ann", "https://other.example") == []


async def test_a_vault_has_room_for_so_many_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault_module, "MAX_IN_SHARD", 1)
    async with stored(tmp_path) as store:
        vault = vault_of(store)
        await vault.connect(ANN, {})
        with pytest.raises(Busy, match="The vault is full"):
            await vault.connect(CredentialOwner("ann", "", "https://other.example/mcp"), {})
        # Connecting again takes no more room.
        await vault.connect(ANN, {"token": TOKEN})
        assert await vault.read(ANN) == {"token": TOKEN}


async def test_one_process_at_a_time_renews_a_token(tmp_path: Path) -> None:
    inside: list[str] = []

    async def renew(vault: Vault, name: str) -> None:
        async with vault.renewing(ANN):
            inside.append(name)
            assert len(inside) == 1
            await asyncio.sleep(0)
            inside.remove(name)

    async with stored(tmp_path) as store:
        vaults = [vault_of(store) for _ in range(4)]
        await asyncio.gather(*(renew(vault, str(number)) for number, vault in enumerate(vaults)))


async def test_a_process_that_died_while_renewing_holds_up_the_others_for_a_limited_time(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await store.records.put(f"vault lock {ANN.key}", b"", ttl=0.05)
        async with vault_of(store).renewing(ANN):
            pass


async def test_a_process_that_missed_changes_takes_all_for_changed() -> None:
    seen: list[CredentialOwner | None] = []
    vault = vault_of(MemoryStore())
    connections = UserConnections("gateway", vault, seen.append)
    await connections.start()
    try:
        await vault.publish(ANN)
        await until(lambda: seen == [ANN])
        for _ in range(3):
            # Only the newest is kept, before the process reads any.
            await vault.feeds.publish(FEED, msgspec.msgpack.encode(BOB), keep=1)
        await until(lambda: seen == [ANN, None, BOB])
    finally:
        await connections.stop()


# -- through a gateway -------------------------------------------------------------------------------------------------


async def test_a_gateway_with_another_key_does_not_start(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts:
        async with accounts.gateway() as gateway, person(accounts, "ann") as ann:
            assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
        config = {**accounts.config(), "vault": {"key": NEW}}
        with pytest.raises(VaultKeyMismatch, match="Set PEGBOARD_SECRET"):
            async with accounts.gateway(config):
                pass
        async with accounts.gateway() as gateway:
            assert await gateway.call("ann") == "ann-account"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vault": {}}, "needs a key: set PEGBOARD_SECRET"),
        ({"auth": None}, "callers are not authenticated; add 'auth'"),
    ],
)
def test_users_credentials_need_a_key_and_users(
    changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEGBOARD_SECRET", raising=False)
    entry = {"url": "https://s.example/mcp", "auth": {"kind": "oauth", "per": "user"}}
    config = {
        "auth": {"keys": True},
        "vault": {"key": SECRET},
        "toolboxes": {"dev": {"description": "d", "mcpServers": {"s": entry}}},
        **changes,
    }
    with pytest.raises(SetupError, match=said):
        Gateway({name: value for name, value in config.items() if value is not None})


def test_users_credentials_need_the_auth_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr(vault_module, "find_spec", lambda name: None if name == "cryptography" else found(name))
    entry = {"url": "https://s.example/mcp", "auth": {"kind": "oauth", "per": "user"}}
    with pytest.raises(SetupError, match=r"pip install 'pegboard\[auth\]'"):
        Gateway(
            {
                "auth": {"keys": True},
                "vault": {"key": SECRET},
                "toolboxes": {"dev": {"description": "d", "mcpServers": {"s": entry}}},
            }
        )


async def test_two_replicas_refresh_a_token_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        account_site(tmp_path) as accounts,
        person(accounts, "ann") as ann,
        accounts.gateway() as one,
        accounts.gateway() as two,
    ):
        assert await one.call("ann", elicit=ann.elicit) == "ann-account"
        assert await two.call("ann") == "ann-account"
        accounts.issuer.refreshing = asyncio.Event()
        monkeypatch.setattr(access_tokens, "time", SimpleNamespace(time=lambda: time.time() + 700))
        calls = [asyncio.create_task(gateway.call("ann")) for gateway in (one, two, one, two)]
        await until(lambda: any(form["grant_type"] == "refresh_token" for form in accounts.issuer.forms))
        accounts.issuer.refreshing.set()
        assert set(await asyncio.gather(*calls)) == {"ann-account"}
        assert accounts.issuer.refreshed["ann-account"] == 1
        assert accounts.issuer.reused == 0


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
async def test_a_clock_that_jumps_costs_a_refresh_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    async with (
        account_site(tmp_path) as accounts,
        person(accounts, "ann") as ann,
        person(accounts, "bob") as bob,
        accounts.gateway() as gateway,
    ):
        assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
        assert await gateway.call("bob", elicit=bob.elicit) == "bob-account"
        monkeypatch.setattr(access_tokens, "time", SimpleNamespace(time=lambda: time.time() + jump))
        for _ in range(3):
            assert await gateway.call("ann") == "ann-account"
            assert await gateway.call("bob") == "bob-account"
        expected = 0 if jump < 0 else 1
        assert (accounts.issuer.refreshed["ann-account"], accounts.issuer.refreshed["bob-account"]) == (expected,) * 2
        assert accounts.issuer.reused == 0


async def test_a_refresh_token_that_was_revoked_leads_to_a_new_login_and_is_not_sent_again(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
        accounts.issuer.seconds = 0
        async with accounts.gateway() as gateway:
            assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
            # The gateway's own token stays valid: it may be renewed at any time.
            tokens = accounts.issuer.refresh_tokens
            for token in [token for token, account in tokens.items() if account == "ann-account"]:
                del tokens[token]
            accounts.issuer.keys.clear()
            accounts.issuer.reused = 0
            for _ in range(3):
                await gateway.call("ann")
            assert accounts.issuer.reused == 1


async def test_the_check_of_the_key_is_made_once(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await asyncio.gather(*(vault_of(store).check() for _ in range(3)))
        kept = await store.records.get(VAULT_CHECK)
        assert kept is not None
        assert kept.version == 1


async def test_a_server_of_each_user_that_is_added_to_a_running_gateway_works(tmp_path: Path) -> None:
    async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
        without = {**accounts.config(), "toolboxes": {}}
        async with accounts.gateway(without) as gateway:
            assert gateway.gateway.connections is None
            await gateway.gateway.reload(gateway.gateway.config, read_config(accounts.config(), {}))
            await gateway.gateway.wait_connected(30)
            assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"


def test_a_gateway_whose_users_cannot_sign_in_says_so(caplog: pytest.LogCaptureFixture) -> None:
    entry = {"url": "https://s.example/mcp", "auth": {"kind": "oauth", "per": "user"}}
    Gateway(
        {
            "auth": {"publicUrl": "https://tools.example", "issuers": [{"issuer": "https://id.example"}]},
            "vault": {"key": SECRET},
            "toolboxes": {"dev": {"description": "d", "mcpServers": {"s": entry}}},
        }
    )
    assert "users cannot sign in to connect it; add 'signIn'" in caplog.text


@pytest.mark.process
async def test_a_vault_in_a_redis_server_works_the_same(tmp_path: Path) -> None:
    with valkey() as server:
        store = open_store(server.url, Limits())
        await store.start()
        try:
            vault = vault_of(store)
            await vault.check()
            await vault.connect(ANN, {"token": TOKEN})
            async with vault.renewing(ANN):
                await vault.storage(ANN).save("token", b"renewed")
            assert await vault_of(store).read(ANN) == {"token": b"renewed"}
            assert [entry.owner for entry in await vault.all()] == [ANN]
            assert await vault.remove(ANN)
            assert await vault.all() == []
        finally:
            await store.close()


async def test_a_user_has_few_links_and_begun_logins_whatever_a_server_challenges(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        links = ConnectLinks(vault_of(store))
        made = [await links.make(ANN, "dev", "mail", f'Bearer scope="s{number}"') for number in range(MAX_OPEN + 3)]
        found = [link for link in made if await links.find(link.id) is not None]
        assert found == made[3:]
        # Those of other users stay.
        of_bob = await links.make(BOB, "dev", "mail")
        begun = [BegunLogin(found[-1], pending(f"{number:043}"), {}) for number in range(MAX_OPEN)]
        for login in begun:
            await links.begin(login)
        assert [link for link in found if await links.find(link.id) is not None] == []
        assert all([await links.find_login(login.pending.state) == login for login in begun])
        assert await links.find(of_bob.id) == of_bob


def pending(state: str) -> PendingLogin:
    url = "https://issuer.example"
    return PendingLogin(
        issuer=url,
        resource=url,
        token_endpoint=url,
        redirect_uri=url,
        client_id="c",
        state=state,
        verifier="v",
        scopes=[],
    )
