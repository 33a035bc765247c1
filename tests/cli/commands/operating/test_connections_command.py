"""`pegboard connections`: who is connected to what, and what an operator can do about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pegboard.cli.commands.operating.connections_command import main
from pegboard.errors import SetupError
from pegboard.gateway.connections.vault import CredentialOwner, Vault
from pegboard.limits import Limits
from pegboard.security.seal import read_keys
from pegboard.stores.store_url import open_store
from tests.gateway.connections.account_site import account_site, person

OLD, NEW = "the-first-key-of-the-operator", "the-second-key-of-the-operator"
URL = "https://tickets.example/mcp"


def written(folder: Path, **changes: Any) -> str:
    entry = {"url": URL, "auth": {"kind": "oauth", "per": "user"}}
    config = {
        "auth": {"keys": True},
        "vault": {"key": OLD},
        "toolboxes": {"dev": {"description": "d", "mcpServers": {"tickets": entry}}},
        **changes,
    }
    file = folder / "pegboard.json"
    file.write_text(json.dumps(config))
    return str(file)


def filled(folder: Path, *owners: CredentialOwner) -> str:
    address = f"sqlite:{folder / 'vault.db'}"

    async def fill() -> None:
        store = open_store(address, Limits())
        await store.start()
        vault = Vault(store, read_keys(OLD), clock=lambda: 0.0)
        await vault.check()
        for owner in owners:
            await vault.connect(owner, {"header": b"the-key-of-a-user"})
        await store.close()

    asyncio.run(fill())
    return address


ANN = CredentialOwner("ann", "https://issuer.example", URL)
BOB = CredentialOwner("bob", "", "https://gone.example/mcp")


def test_connections_are_listed_without_their_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, store = written(tmp_path), filled(tmp_path, ANN, BOB)
    assert main([config, "--store", store]) == 0
    printed = capsys.readouterr().out
    assert printed.split()[:7] == [
        "dev/tickets",
        "ann",
        "of",
        "https://issuer.example",
        "since",
        "1970-01-01",
        "00:00Z",
    ]
    assert "https://gone.example/mcp  bob  " in printed
    assert "the-key" not in printed


def test_connections_of_the_configuration_here_are_listed_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PEGBOARD_CONFIG", raising=False)
    written(tmp_path)
    store = filled(tmp_path, ANN, BOB)
    assert main(["--store", store, "--json", "--principal", "ann"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry == {
        "server": "dev/tickets",
        "url": URL,
        "principal": "ann",
        "issuer": "https://issuer.example",
        "since": 0.0,
    }


def test_a_connection_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, store = written(tmp_path), filled(tmp_path, ANN, BOB)
    assert main([config, "--store", store, "--remove", "--server", "tickets"]) == 0
    assert "dev/tickets: ann: removed" in capsys.readouterr().err
    assert main([config, "--store", store, "--remove", "--server", "tickets"]) == 2
    assert main([config, "--store", store]) == 0
    assert "bob" in capsys.readouterr().out


def test_everything_is_not_removed_by_mistake(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([written(tmp_path), "--remove"])


def test_the_key_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(tmp_path, ANN)
    with pytest.raises(SetupError, match="another key"):
        main([written(tmp_path, vault={"key": NEW}), "--store", store])
    assert main([written(tmp_path, vault={"key": f"{NEW},{OLD}"}), "--store", store, "--rotate"]) == 0
    assert "1 connections are encrypted with the first key" in capsys.readouterr().err
    assert main([written(tmp_path, vault={"key": NEW}), "--store", store]) == 0
    assert "ann" in capsys.readouterr().out


def test_a_vault_whose_key_is_lost_is_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, store = written(tmp_path, vault={"key": NEW}), filled(tmp_path, ANN, BOB)
    assert main([config, "--store", store, "--reset"]) == 0
    assert "2 connections are removed" in capsys.readouterr().err
    assert main([config, "--store", store]) == 0
    assert "There are no connections" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--store", "memory"], "outlives this command")],
)
def test_a_store_that_holds_nothing_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        main([written(tmp_path), *arguments])


def test_a_configuration_without_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEGBOARD_SECRET", raising=False)
    with pytest.raises(SetupError, match="set PEGBOARD_SECRET"):
        main([written(tmp_path, vault={}), "--store", filled(tmp_path)])


def test_a_token_is_revoked_at_its_authorization_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def connect_and_remove() -> set[str]:
        async with account_site(tmp_path) as accounts, person(accounts, "ann") as ann:
            async with accounts.gateway() as gateway:
                assert await gateway.call("ann", elicit=ann.elicit) == "ann-account"
            file = tmp_path / "pegboard.json"
            await asyncio.to_thread(file.write_text, json.dumps(accounts.config()))
            arguments = [str(file), "--store", accounts.store, "--remove", "--principal", "key:ann"]
            assert await asyncio.to_thread(main, arguments) == 0
            return accounts.issuer.revoked

    assert len(asyncio.run(connect_and_remove())) == 2
    assert "removed; revoked at its authorization server" in capsys.readouterr().err
