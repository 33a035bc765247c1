"""`pegboard run TARGET[:board]`: serve a board."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pegboard import __version__
from pegboard.board import Board
from pegboard.cli.console_flags import add_console, add_console_flags, announce_approvals, announce_console
from pegboard.cli.serving_flags import add_flags, read_options
from pegboard.console.board_subject import BoardSubject
from pegboard.loading import load_board
from pegboard.logs.log_lines import announce_lines, set_up_logging
from pegboard.server.serve import choose_transport, run
from pegboard.server.stdio.stdio_server import claim_pipes
from pegboard.tools.naming import counted


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="pegboard run",
        description="Serve a board: over stdio if a client started the process, else over HTTP.",
        epilog="Every flag has an environment variable: PEGBOARD_PORT=8000 is --port 8000.",
    )
    parser.add_argument(
        "target",
        metavar="TARGET[:BOARD]",
        help="a Python file, a module (package.module) or a folder whose pyproject.toml names a board in [tool.pegboard]; "
        "and the name of the board if it has several",
    )
    add_flags(parser)
    add_console_flags(parser)
    chosen = parser.parse_args(argv)
    options = read_options(chosen)
    set_up_logging(options["log_level"], options["log_format"])
    began = time.monotonic()
    choose_transport(options)
    # What the file prints while it is imported must not reach the client.
    pipes = claim_pipes() if options["transport"] == "stdio" else None
    board = load_board(chosen.target)
    console = add_console(board, lambda history: BoardSubject(board, history), chosen, options)

    def ready(url: str) -> None:
        announce(board, url, began, [*announce_console(console, chosen, url), *announce_approvals(board)])

    run(board, options, ready, pipes)
    return 0


def announce(board: Board, url: str, began: float, more: Sequence[str] = ()) -> None:
    """The first lines for a new user: what is served, where, and how to connect."""
    count = counted(len(board.tools), "tool")
    lines = [f"pegboard {__version__}   {board.name}: {count}, ready in {time.monotonic() - began:.1f} s"]
    # The address first: where the log is JSON, the token of a console does not belong there.
    lines += [f"  MCP      {url}", *more]
    first = next(iter(board.tools), None)
    if first is None:
        lines.append("  no tools yet: add one with @board.tool")
    if url.startswith("http") and first is not None:
        lines.append(f"  try      {command()} call {url} {first.name} {_sample(first.input_schema)}".rstrip())
        lines.append(f"  add to   claude mcp add --transport http {board.name} {url}")
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
