"""`pegboard connections CONFIG`: list and remove the connections of users to servers; change the key of the vault."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from pegboard.auth.local_user import local_user
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.audited import audit_of
from pegboard.cli.server_store import add_store_flag, open_server_store, store_of
from pegboard.cli.terminal.output import note, show
from pegboard.cli.terminal.tables import show_rows
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, find_config, read_config
from pegboard.gateway.connections.user_connections import Server, UserConnections
from pegboard.gateway.connections.vault import StoredConnection, Vault, vault_key_missing
from pegboard.logs.audit_sink import AuditSink, Decision
from pegboard.security.seal import read_keys

OK, USAGE = 0, 2


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard connections",
        description="List the connections that users have made to servers of a configuration, without their secrets; "
        "remove some of them; encrypt them with a new key.",
        examples=("pegboard connections gateway.json --json",),
        epilog="The key is that of the gateway: PEGBOARD_SECRET, or vault.key in the configuration. To replace it, set it to NEW,OLD, run this with --rotate, and remove OLD.",
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="the configuration file of the gateway; default: that of this folder",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--principal", metavar="ID", help="only those of this principal")
    parser.add_argument("--server", metavar="SERVER", help="only those to this server, or TOOLBOX/SERVER")
    parser.add_argument(
        "--remove", action="store_true", help="remove them, and revoke their tokens where that is possible"
    )
    parser.add_argument("--rotate", action="store_true", help="encrypt everything with the first key")
    parser.add_argument("--reset", action="store_true", help="remove all of them, without the key: it is lost")
    add_store_flag(parser)
    chosen = parser.parse_args(argv)
    if chosen.remove and not (chosen.principal or chosen.server):
        parser.error("--remove needs --principal, --server or both, so that not everything is removed by mistake")
    # As `pegboard up CONFIG` chooses it.
    path = chosen.config or str(find_config(os.environ))
    address = chosen.store or os.environ.get("PEGBOARD_STORE") or store_of(path)
    return asyncio.run(_run(read_config(path, os.environ), address, chosen))


async def _run(config: GatewayConfig, address: str, chosen: argparse.Namespace) -> int:
    async with audit_of(config) as audit, _open(config, address, audit) as connections:
        if chosen.reset:
            await audit.record(Decision("vault.reset", principal=local_user().id, transport="cli"))
            count = await connections.vault.reset()
            note(f"{count} connections are removed; their users have to connect again")
            return OK
        await connections.vault.check()
        if chosen.rotate:
            await audit.record(Decision("vault.rotate", principal=local_user().id, transport="cli"))
            count = await connections.vault.encrypt_again()
            note(f"{count} connections are encrypted with the first key; earlier keys are no longer needed")
            return OK
        found = [
            entry
            for entry in await connections.vault.all()
            if chosen.principal in (None, entry.owner.principal) and _is_at(connections, entry, chosen.server)
        ]
        if chosen.remove:
            return await _remove(connections, found)
        if chosen.json:
            show(msgspec.json.encode([_fields(connections, entry) for entry in found]).decode())
            return OK
    if not found:
        note("There are no connections")
    show_rows([_row(_fields(connections, entry), entry.since) for entry in found])
    return OK


def _row(fields: Mapping[str, str | float], since: float) -> tuple[str, ...]:
    issuer = f"of {fields['issuer']}" if fields["issuer"] else ""
    began = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(since))
    return str(fields["server"] or fields["url"]), str(fields["principal"]), issuer, f"since {began}"


async def _remove(connections: UserConnections, found: Sequence[StoredConnection]) -> int:
    if not found:
        note("There are no such connections")
        return USAGE
    for entry in found:
        configured = connections.find_config(entry.owner)
        said = await connections.remove_owner(
            entry.owner, None if configured is None else configured[1], by=local_user().id, transport="cli"
        )
        note(f"{_name(configured) or entry.owner.server}: {entry.owner.principal}: {said}")
    return OK


def _fields(connections: UserConnections, entry: StoredConnection) -> dict[str, str | float]:
    owner = entry.owner
    return {
        "server": _name(connections.find_config(owner)),
        "url": owner.server,
        "principal": owner.principal,
        "issuer": owner.issuer,
        "since": entry.since,
    }


def _is_at(connections: UserConnections, entry: StoredConnection, wanted: str | None) -> bool:
    name = _name(connections.find_config(entry.owner))
    return wanted is None or wanted in (name, name.partition("/")[2], entry.owner.server)


def _name(configured: tuple[Server, ServerConfig] | None) -> str:
    """The name of a server; empty if the configuration does not have it any more."""
    return "" if configured is None else "/".join(configured[0])


@asynccontextmanager
async def _open(config: GatewayConfig, address: str, audit: AuditSink) -> AsyncIterator[UserConnections]:
    secret = config.vault_key or os.environ.get("PEGBOARD_SECRET") or ""
    if not secret:
        raise vault_key_missing(config.path)
    async with open_server_store(address, "connections") as store:
        vault = Vault(store, read_keys(secret))
        connections = UserConnections(config.name, vault, lambda _: None, lambda: audit)
        connections.configure(
            {
                (toolbox.name, server.name): server
                for toolbox in config.toolboxes.values()
                for server in toolbox.servers.values()
                if server.of_each_user
            }
        )
        try:
            yield connections
        finally:
            await connections.stop()
