"""`pegboard keys add|list|revoke`: the API keys of a server."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pegboard.auth.api_keys import ApiKey, ApiKeys
from pegboard.auth.local_user import local_user
from pegboard.cli.arguments.time_argument import read_duration
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.audited import Audited, audit_of
from pegboard.cli.server_store import add_store_flags, open_server_store, store_of
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.cli.terminal.tables import show_rows
from pegboard.logs.audit_sink import Decision

OK = 0


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard keys",
        description="Add, list and revoke the API keys of a server, which clients send as `Authorization: Bearer pb_…`.",
        examples=("pegboard keys add ann --role lead --expires 30d", "pegboard keys list --config gateway.json --json"),
        epilog='The server must accept keys: `"auth": {"keys": true}` in a configuration, or `Board(auth=Auth(keys=True))`; both use the store of the server. A revoked key stops working within seconds.',
    )
    verbs = parser.add_subparsers(dest="action", required=True, metavar="add|list|revoke")
    add = verbs.add_parser("add", help="add a key, and print it once")
    add.add_argument("name", metavar="NAME", help="the name of the key; its principal is key:NAME")
    add.add_argument("--scope", action="append", default=[], metavar="S", help="a scope of the key; repeat for more")
    add.add_argument("--role", action="append", default=[], metavar="R", help="a role of the key; repeat for more")
    add.add_argument(
        "--expires",
        metavar="TIME",
        help="how long it is valid: 30m (minutes), 12h, 30d or 8w; without it, until revoked",
    )
    listing = verbs.add_parser("list", help="list the keys, without their secrets")
    revoke = verbs.add_parser("revoke", help="revoke a key")
    revoke.add_argument("name", metavar="NAME", help="the name of the key")
    for verb in (add, listing, revoke):
        verb.add_argument("--json", action="store_true", help="print JSON")
        add_store_flags(verb)
    chosen = parser.parse_args(argv)
    address = chosen.store or store_of(chosen.config)
    audit = audit_of(chosen.config, chosen.store)
    match chosen.action:
        case "add":
            seconds = None if chosen.expires is None else read_duration("--expires", chosen.expires)
            return asyncio.run(_add(address, audit, chosen, seconds))
        case "list":
            return asyncio.run(_list(address, as_json=chosen.json))
        case _:
            return asyncio.run(_revoke(address, audit, chosen.name, as_json=chosen.json))


@asynccontextmanager
async def _open(address: str) -> AsyncIterator[ApiKeys]:
    async with open_server_store(address, "keys") as store:
        yield ApiKeys(store.records)


async def _add(address: str, audited: Audited, chosen: argparse.Namespace, seconds: float | None) -> int:
    name, scopes, roles = chosen.name, chosen.scope, chosen.role
    async with audited as audit, _open(address) as keys:
        details = {"scopes": list(scopes), "roles": list(roles), "seconds": seconds}
        await audit.record(Decision("keys.add", principal=local_user().id, name=name, transport="cli", details=details))
        key = await keys.add(name, scopes, roles, None if seconds is None else time.time() + seconds)
    if chosen.json:
        show_json({"name": name, "principal": f"key:{name}", "key": key})
        return OK
    if sys.stdout.isatty():
        note(f"The key {name}; store it now, it cannot be shown again:")
    show(key)
    return OK


async def _list(address: str, *, as_json: bool) -> int:
    async with _open(address) as keys:
        found = await keys.all()
    if as_json:
        show_json([{"principal": f"key:{key.name}", **_public(key)} for key in found])
        return OK
    if not found:
        note("There are no keys; add one with `pegboard keys add NAME` and the same --config or --store")
    now = time.time()
    show_rows([_describe(key, now) for key in found])
    return OK


def _public(key: ApiKey) -> dict[str, object]:
    return {
        "name": key.name,
        "created": key.created,
        "expires": key.expires,
        "scopes": list(key.scopes),
        "roles": list(key.roles),
    }


def _describe(key: ApiKey, now: float) -> tuple[str, ...]:
    ends = ""
    if key.expires is not None:
        ends = f"{'expired' if key.expires <= now else 'expires'} {_day(key.expires)}"
    granted = [f"{what} {' '.join(words)}" for what, words in (("scopes", key.scopes), ("roles", key.roles)) if words]
    return key.name, f"added {_day(key.created)}", ends, ", ".join(granted)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(seconds))


async def _revoke(address: str, audited: Audited, name: str, *, as_json: bool) -> int:
    async with audited as audit, _open(address) as keys:
        await audit.record(Decision("keys.revoke", principal=local_user().id, name=name, transport="cli"))
        await keys.revoke(name)
    if as_json:
        show_json({"name": name, "revoked": True})
    note(f"{name}: revoked")
    return OK
