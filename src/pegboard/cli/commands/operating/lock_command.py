"""`pegboard lock CONFIG`: pin tool definitions; review and accept changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from pegboard.auth.local_user import local_user
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.audited import audit_of
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.config.gateway_config import GatewayConfig, find_config, read_config
from pegboard.config.mistakes import redact
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.lock.lock_file import Lock, Place, Report, Server, accept, compare, read_lock, write_lock
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.logs.audit_sink import Decision
from pegboard.logs.log_lines import set_up_logging
from pegboard.logs.printable import printable

OK, DIFFERENT, CANNOT_CONNECT = 0, 1, 3

_SECONDS = 120.0
_KINDS = {"tools": "tool", "prompts": "prompt", "templates": "template", "servers": "instructions of"}


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard lock",
        description="Read the definitions of all tools, prompts and templates from the servers of a configuration, "
        "and pin them in a lock file beside it. If there is a lock file, show the differences.",
        examples=("pegboard lock gateway.json", "pegboard lock gateway.json --diff"),
        codes="0 up to date, 1 definitions differ, 2 wrong usage or set-up, 3 a server cannot be reached",
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="the configuration file of the gateway; default: that of this folder",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--diff", action="store_true", help="show the differences, and write nothing")
    which.add_argument(
        "--accept",
        nargs="*",
        metavar="NAME",
        help="accept differences: of toolbox/server/tool, toolbox/server or toolbox; without a name, all",
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    chosen = parser.parse_args(argv)
    # Problems of a server are reported below, once.
    set_up_logging("error", "text")
    path = chosen.config or str(find_config(os.environ))
    config = read_config(path, os.environ)
    before = read_lock(config.lock_path)
    with contextlib.redirect_stdout(sys.stderr):
        found, unreached = asyncio.run(catalogs(config))
    for (toolbox, server), problem in unreached.items():
        message = redact(problem, config.secrets)
        note(f"pegboard lock: {toolbox}/{server} cannot be reached, its pins are unchanged: {message}")
    unknown = {*unreached, *_disabled(config)}
    report = compare(before or Lock(), found, unknown)
    if chosen.json:
        show_json(report.as_json())
    else:
        # At first everything is new, and only findings are worth a line.
        for line in _print_report(report if before is not None or chosen.diff else replace(report, added=())):
            show(line)
    changing = chosen.accept is not None or (before is None and not chosen.diff)
    if changing:
        lock = accept(before or Lock(), found, unknown, chosen.accept or ())
        if before is None or lock != before:
            asyncio.run(_record(config, chosen.accept))
            write_lock(lock, config.lock_path)
        note(f"{_count(len(lock.pins))} pinned in {_short_path(config.lock_path)}")
    elif report:
        note(f"accept all with `pegboard lock {path} --accept`, or name what to accept")
        return DIFFERENT
    elif not unreached:
        note(f"all definitions match {_short_path(config.lock_path)}")
    return CANNOT_CONNECT if unreached else OK


async def _record(config: GatewayConfig, names: Sequence[str] | None) -> None:
    async with audit_of(config) as audit:
        details = {"names": list(names or ["*"]), "lock": config.lock_path}
        await audit.record(
            Decision(
                "lock.create" if names is None else "lock.accept",
                principal=local_user().id,
                name=config.name,
                transport="cli",
                details=details,
            )
        )


async def catalogs(config: GatewayConfig) -> tuple[Mapping[Server, ServerCatalog], Mapping[Server, str]]:
    """The definitions of each server of a configuration, and the errors of those that could not be reached."""
    gateway = Gateway(replace(config, lock="off", middleware=()))
    found: dict[Server, ServerCatalog] = {}
    unreached: dict[Server, str] = {}
    try:
        await gateway.start()
        waits = [asyncio.ensure_future(downstream.wait_connected()) for downstream in gateway.downstreams]
        if waits:
            await asyncio.wait(waits, timeout=_SECONDS)
        for wait in waits:
            wait.cancel()
        for downstream in gateway.downstreams:
            key = downstream.toolbox, downstream.name
            if downstream.catalog is not None:
                found[key] = downstream.catalog
            else:
                unreached[key] = downstream.problem or f"no response within {_SECONDS:.0f} s"
    finally:
        await gateway.stop()
    return found, unreached


def _disabled(config: GatewayConfig) -> Iterator[Server]:
    """The servers that are disabled now, and may be enabled again."""
    for toolbox in config.toolboxes.values():
        yield from ((toolbox.name, server.name) for server in toolbox.servers.values() if not server.enabled)


def _print_report(report: Report) -> Iterator[str]:
    flags: defaultdict[Place, list[str]] = defaultdict(list)
    for place, finding in report.flagged:
        flags[place].append(f"  ! {finding}")
    for changed in report.changed:
        yield f"changed   {_name(changed.place)}"
        yield from (f"  {line}" for line in changed.words)
        yield from flags.pop(changed.place, ())
    for old, new in report.renamed:
        yield f"renamed   {_name(old)} → {printable(new[1])}"
        yield from flags.pop(new, ())
    for place in report.added:
        yield f"new       {_name(place)}"
        yield from flags.pop(place, ())
    for place in report.vanished:
        yield f"removed   {_name(place)}"
    for place, findings in flags.items():
        yield f"flagged   {_name(place)}"
        yield from findings


def _name(place: Place) -> str:
    return f"{_KINDS[place[0]]} {printable(place[1])}"


def _count(number: int) -> str:
    return "1 definition" if number == 1 else f"{number} definitions"


def _short_path(path: str) -> str:
    """A path, relative to the current folder if that is shorter."""
    with contextlib.suppress(ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
