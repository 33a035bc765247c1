"""`pegboard run TARGET[:board]`: serve a board."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pegboard import __version__
from pegboard.board import Board
from pegboard.cli.arguments.console_flags import add_console, add_console_flags, announce_approvals, announce_console
from pegboard.cli.arguments.serving_flags import add_flags, read_options
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.connect_commands import connect_lines, store_flag
from pegboard.loading import files_of, load_board
from pegboard.logs.log_lines import announce_lines, set_up_logging
from pegboard.server.serve import choose_transport, run
from pegboard.server.serving_options import ServingOptions
from pegboard.server.stdio.stdio_server import claim_pipes
from pegboard.tools.naming import counted


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard run",
        usage="pegboard run [options] TARGET[:BOARD]",
        description="Serve a board: over stdio if a client started the process, else over HTTP.",
        examples=(
            "pegboard run examples/hello.py --port 8000",
            "pegboard run shop.server:board --workers 4 --store sqlite:store.db",
        ),
        epilog="Every flag has an environment variable: PEGBOARD_PORT=8000 is --port 8000.",
    )
    parser.add_argument(
        "target",
        metavar="TARGET[:BOARD]",
        help="a Python file, a module (package.module) or a folder whose pyproject.toml names a board in [tool.pegboard], or that has a board.py; "
        "and the name of the board if it has several",
    )
    parser.add_argument("--reload", action="store_true", help="load the board again when one of its files is edited")
    add_flags(parser)
    add_console_flags(parser)
    chosen = parser.parse_args(argv)
    options = read_options(chosen)
    set_up_logging(options["log_level"], options["log_format"])
    if chosen.reload:
        serve_reloading(chosen.target, chosen, options)
        return 0
    began = time.monotonic()
    choose_transport(options)
    # What the file prints while it is imported must not reach the client.
    pipes = claim_pipes() if options["transport"] == "stdio" else None
    board = load_board(chosen.target)
    console = add_console(board, chosen, options)

    def ready(url: str) -> None:
        first = [*announce_console(console, chosen, url), *announce_approvals(board)]
        announce(board, url, began, first, options["store"])

    run(board, options, ready, pipes)
    return 0


def serve_reloading(target: str, chosen: argparse.Namespace, options: ServingOptions) -> None:
    """Serve a board, and load it again when one of its files is edited."""
    # Loaded for this alone: a server on stdio starts in a fraction of a second.
    from pegboard.server.reload_worker import LoadedApp, run_reloading

    token = secrets.token_urlsafe(24)

    def load() -> LoadedApp:
        began = time.monotonic()
        board = load_board(target)
        console = add_console(board, chosen, options, token)

        def ready(url: str) -> None:
            first = [*announce_console(console, chosen, url), *announce_approvals(board)]
            announce(board, url, began, first, options["store"])

        return LoadedApp(board, ready)

    run_reloading(load, options, files_of(target))


def announce(board: Board, url: str, began: float, more: Sequence[str] = (), store: str = "") -> None:
    """The first lines for a new user: what is served, where, and how to connect."""
    count = counted(len(board.tools), "tool")
    lines = [f"pegboard {__version__}   {board.name}: {count}, ready in {time.monotonic() - began:.1f} s"]
    # The address first: where the log is JSON, the token of a console does not belong there.
    lines += [f"  MCP      {url}", *more]
    first = next(iter(board.tools), None)
    if first is None:
        lines.append("  no tools yet: add one with @board.tool")
    if url.startswith("http") and first is not None:
        sample = f"{command()} call {url} {first.name} {_sample(first.input_schema)}".rstrip()
        lines += connect_lines(board, url, sample, f"{command()} keys add NAME {store_flag(store)}")
    announce_lines(lines, essential=2)


def command() -> str:
    """How to run this program from the shell."""
    own = Path(sys.argv[0])
    if shutil.which("pegboard") is not None or own.name != "pegboard":
        return "pegboard"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def _sample(schema: object) -> str:
    """Example arguments for a tool, made from its schema."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", []) if isinstance(schema, dict) else []
    return " ".join(f"{name}={_value(properties.get(name, {}), index)}" for index, name in enumerate(required))


def _value(schema: object, index: int) -> str:
    if not isinstance(schema, dict):
        return "x"
    for source in (schema.get("examples"), schema.get("enum")):
        if source:
            text = str(source[0])
            return f"'{text}'" if " " in text else text
    return {
        "number": str(index + 2),
        "integer": str(index + 2),
        "boolean": "true",
        "array": "'[]'",
        "object": "'{}'",
    }.get(str(schema.get("type")), "hello")
