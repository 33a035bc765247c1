"""`pegboard lint TARGET --as PRINCIPAL`: check rules, and show what a principal sees and which rule decided."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from pegboard.auth.principal import ANONYMOUS, Principal
from pegboard.board import Board
from pegboard.call_target import CalledTool
from pegboard.cli.arguments.target_argument import find_target
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.cli.terminal.progress_bar import waiting
from pegboard.cli.terminal.tables import show_descriptions
from pegboard.config.gateway_config import GatewayConfig, read_config
from pegboard.config.mistakes import redact
from pegboard.errors import SetupError
from pegboard.gateway.gateway import Gateway
from pegboard.loading import load_board
from pegboard.logs.log_lines import set_up_logging
from pegboard.rules.rule import item_of
from pegboard.rules.verdicts import Verdict
from pegboard.tools.naming import counted

OK, FOUND, CANNOT_CONNECT = 0, 1, 3

_SECONDS = 120.0


class _Checked(Struct):
    """What was found: each item with its verdict, the rules without effect, and what could not be checked."""

    items: Sequence[tuple[str, str, Verdict]] = ()
    unmatched: Sequence[str] = ()
    problems: list[str] = []
    unreached: list[str] = []


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard lint",
        description="Check the rules of a gateway's configuration, or of the board in a Python file, against what is served. "
        "With --as, show what a principal sees, and which rule decided.",
        examples=("pegboard lint gateway.json --as key:ann", "pegboard lint board.py --as alice --role lead --json"),
        codes="0 ok, 1 problems were found, 2 wrong usage or set-up, 3 a server cannot be reached",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="a configuration, or a board: a Python file, a module or a folder; default: what this folder has",
    )
    parser.add_argument(
        "--as",
        dest="principal",
        metavar="PRINCIPAL",
        help="the id of the principal, key:NAME for an API key; '' is anonymous; its roles and scopes are those of --role and --scope",
    )
    parser.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="a scope that it has; repeatable")
    parser.add_argument("--role", action="append", default=[], metavar="ROLE", help="a role that it has; repeatable")
    parser.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a claim that it has, as JSON or text; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    if chosen.principal is None and (chosen.scope or chosen.role or chosen.claim):
        parser.error("--scope, --role and --claim describe the principal of --as; add --as PRINCIPAL")
    target = chosen.target or find_target()
    # Problems of a server are reported below, once.
    set_up_logging("error", "text")
    principal = _principal(chosen)
    with contextlib.redirect_stdout(sys.stderr):
        checked = asyncio.run(_check(target, principal))
    if chosen.json:
        show_json(_as_json(checked, chosen.principal is not None))
    elif chosen.principal is not None:
        _print(checked, principal)
    else:
        problems = len(checked.problems) + len(checked.unmatched)
        show(f"{target}: {counted(problems, 'problem')}, {counted(len(checked.items), 'item')} checked")
    for problem in checked.problems:
        note(f"pegboard lint: {problem}")
    for label in checked.unmatched:
        note(f"pegboard lint: {label}: matches nothing that is served")
    for server in checked.unreached:
        note(f"pegboard lint: {server}")
    if checked.unreached:
        return CANNOT_CONNECT
    return FOUND if checked.problems or checked.unmatched else OK


def _principal(chosen: argparse.Namespace) -> Principal:
    if not chosen.principal:
        return ANONYMOUS
    claims: dict[str, object] = {}
    for text in chosen.claim:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SetupError(f"--claim {text!r}: use NAME=VALUE")
        try:
            claims[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            claims[name] = value
    return Principal(chosen.principal, frozenset(chosen.scope), frozenset(chosen.role), claims)


async def _check(target: str, principal: Principal) -> _Checked:
    if not target.endswith((".json", ".toml")):
        board = load_board(target)
        if isinstance(board, Board):
            return _read(board, principal)
        raise SetupError(f"{target}: lint the configuration of a gateway, not a Python file that makes one")
    config = read_config(target, os.environ)
    gateway = Gateway(config)
    try:
        await gateway.start()
        async with waiting(f"connecting to {counted(len(gateway.downstreams), 'server')}"):
            await gateway.wait_connected(_SECONDS, lazy=True)
        checked = _read(gateway.endpoints[0].board, principal)
        checked.problems += [*config.warnings, *_unbound_secrets(config)]
        for downstream in gateway.downstreams:
            if downstream.catalog is None:
                problem = redact(downstream.problem or f"no response within {_SECONDS:.0f} s", config.secrets)
                checked.unreached.append(
                    f"{downstream.toolbox}/{downstream.name} cannot be reached, its items are not checked: {problem}"
                )
    finally:
        await gateway.stop()
    if checked.unreached:
        # The rules may match something there.
        checked.unmatched = ()
    return checked


def _unbound_secrets(config: GatewayConfig) -> Iterator[str]:
    """Servers that choose the authorization server which gets the gateway's secret."""
    for box in config.toolboxes.values():
        for server in box.servers.values():
            auth = server.auth
            if auth is not None and auth.client_secret and not auth.issuer:
                yield (
                    f"{box.name}/{server.name}: auth has a clientSecret and no 'issuer': the secret goes to the authorization "
                    "server that the server names; add the 'issuer' that it is for"
                )


def _read(board: Board, principal: Principal) -> _Checked:
    judged = list(board.verdicts(principal))
    items = [(called.item or "tool", _path(called), verdict) for called, verdict in judged]
    return _Checked(items, board._unmatched_rules(item_of(called) for called, _ in judged), [], [])


def _path(called: CalledTool) -> str:
    name = called.own_name or called.name
    return f"{called.toolbox}/{called.server}/{name}" if called.toolbox else name


def _print(checked: _Checked, principal: Principal) -> None:
    rows = []
    for kind, path, verdict in checked.items:
        scopes = f"; allowed with the scope {' '.join(verdict.scopes)}" if verdict.scopes else ""
        approval = verdict.approval
        asks = f"; {approval.wanted} ({approval.rule})" if approval is not None else ""
        rows.append((verdict.effect, kind, path, f"{verdict.rule}{scopes}{asks}"))
    show_descriptions(rows)
    seen = sum(verdict.listed for _, _, verdict in checked.items)
    who = repr(principal.id) if principal else "an anonymous caller"
    note(f"{who} sees {seen} of {counted(len(checked.items), 'item')}")
    if principal and ":" not in principal.id:
        note(f"if {principal.id!r} is the name of an API key, its id is 'key:{principal.id}': --as key:{principal.id}")


def _as_json(checked: _Checked, judged: bool) -> Mapping[str, object]:
    items: Iterable[object] = [
        {"kind": kind, "item": path, "verdict": verdict.effect, "listed": verdict.listed, "rule": verdict.rule}
        | ({"scopes": list(verdict.scopes)} if verdict.scopes else {})
        | ({} if verdict.approval is None else {"approval": verdict.approval})
        for kind, path, verdict in checked.items
    ]
    return {
        **({"items": items} if judged else {}),
        "unmatched": list(checked.unmatched),
        "problems": checked.problems,
        "unreached": checked.unreached,
    }
