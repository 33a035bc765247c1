"""`pegboard check [TARGET …]`: report all mistakes of configurations and boards, without starting anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from pegboard.auth.principal import ANONYMOUS
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.config.gateway_config import FILES, GatewayConfig, ServerConfig, read_config
from pegboard.config.mistakes import WARNING, UnresolvedText, redact
from pegboard.config.secret_sources import SOURCES
from pegboard.errors import DeclarationError, SetupError
from pegboard.loading import FILES as BOARDS
from pegboard.loading import has_board, load_board, names_board
from pegboard.logs.log_lines import set_up_logging
from pegboard.rules.rule import item_of
from pegboard.tools.naming import counted

OK, FOUND = 0, 1

_LONGEST_NAME: Final = 64
# A folder that was cloned may have a configuration that names any command.
_SOURCES: Final = {**SOURCES, "cmd:": lambda _command, _folder: UnresolvedText()}


class Findings(Struct):
    """What is wrong with a target, and what may be."""

    target: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard check",
        description="Report all mistakes of configurations and boards. It connects to nothing, starts no server and runs no command "
        "for a secret; a board is imported. `pegboard lint` also compares the rules with what the servers have.",
        examples=(
            "pegboard check                       # the configuration and the board of this folder",
            "pegboard check .vscode/mcp.json tools.py --json",
        ),
        codes="0 ok, 1 mistakes were found, 2 wrong usage",
    )
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        help="configurations, Python files, modules or folders; default: what this folder has",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    set_up_logging("error", "text")
    with contextlib.redirect_stdout(sys.stderr):
        found = [check_target(target) for target in chosen.targets or _find_targets(Path())]
    if chosen.json:
        show_json(found)
    for one in found:
        for kind, texts in (("mistake", one.problems), ("warning", one.warnings)):
            for text in texts:
                note(f"{kind}  {text}")
        if not chosen.json:
            show(f"{one.target}: {counted(len(one.problems), 'mistake')}, {counted(len(one.warnings), 'warning')}")
    return FOUND if any(one.problems for one in found) else OK


def _find_targets(folder: Path) -> list[str]:
    named = [str(folder / name) for name in FILES if (folder / name).is_file()]
    # Beside a configuration, a main.py may be anything.
    if names_board(folder) or (not named and has_board(folder)):
        named.append(str(folder))
    if not named:
        raise SetupError(
            f"This folder has neither {' nor '.join((*FILES, *BOARDS))} nor a pyproject.toml with [tool.pegboard]: name a file"
        )
    return named


def check_target(target: str) -> Findings:
    """What is wrong with a configuration or a board."""
    found = Findings(target)
    try:
        if target.endswith((".json", ".toml")):
            _check_config(target, found)
        else:
            _check_board(target, found)
    except (SetupError, DeclarationError) as problem:
        head, *listed = (" ".join(text.split()) for text in str(problem).split("\n- "))
        found.warnings += [text.removeprefix(WARNING) for text in listed if text.startswith(WARNING)]
        found.problems += [f"{target}: {text}" for text in listed if not text.startswith(WARNING)] or [head]
    return found


def _check_config(target: str, found: Findings) -> None:
    config = read_config(target, os.environ, sources=_SOURCES)
    found.warnings += config.warnings
    for toolbox in config.toolboxes.values():
        for server in toolbox.servers.values():
            if server.enabled:
                found.problems += [
                    redact(f"{target}: {toolbox.name}/{server.name}: {text}", config.secrets)
                    for text in _check_server(config, server)
                ]


def _check_server(config: GatewayConfig, server: ServerConfig) -> Iterator[str]:
    if server.problem:
        yield server.problem
    elif server.kind == "stdio" and server.command:
        program = server.command[0]
        if (
            "${" not in program
            and shutil.which(program, path=dict(server.env).get("PATH", os.environ.get("PATH"))) is None
        ):
            yield f"the program {program!r} is not on PATH; install it, or write its whole path"
    elif server.kind == "board" and server.board:
        file = Path(config.path).parent / server.board.partition(":")[0]
        if file.suffix == ".py" and file.is_file():
            try:
                compile(file.read_bytes(), str(file), "exec")
            except SyntaxError as error:
                yield f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"


def _check_board(target: str, found: Findings) -> None:
    board = load_board(target)
    for tool in board.tools:
        if len(tool.name) > _LONGEST_NAME:
            found.warnings.append(
                f"{target}: {tool.name}: the name has {len(tool.name)} characters; many clients cut at {_LONGEST_NAME}"
            )
        if not tool.description:
            found.warnings.append(f"{target}: {tool.name}: no description; models choose tools by it: add a docstring")
    called = [item_of(called) for called, _ in board.verdicts(ANONYMOUS)]
    found.problems += [f"{target}: {label}: matches nothing that is served" for label in board._unmatched_rules(called)]
