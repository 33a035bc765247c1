"""Prints for the verbs, with text from peers escaped."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from pegboard.logs.printable import printable, printable_json, printable_lines

CLEAR_LINE: Final = "\r\x1b[2K"

_NARROWEST: Final = 20


def show(line: str = "") -> None:
    """Print one line of the result."""
    print(printable(line))


def show_text(text: str) -> None:
    """Print text from a server: unchanged, except on a terminal."""
    print(printable_lines(text) if sys.stdout.isatty() else text)


def show_json(value: object) -> None:
    """Print a value as JSON."""
    print(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def show_json_line(line: bytes) -> None:
    """Print a JSON text that has no line breaks."""
    print(printable_json(line.decode("utf-8", "replace").rstrip("\n")))


def note(line: str) -> None:
    """Print one line of information on stderr."""
    print(printable(line), file=sys.stderr, flush=True)


def note_lines(text: str) -> None:
    """Print lines of information on stderr; foreign parts of them must already be `printable`."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def ask_for(prompt: str) -> None:
    """Print a prompt on stderr; the answer is typed behind it."""
    print(printable(prompt), end="", file=sys.stderr, flush=True)


def redraw(line: str) -> None:
    """Replace the line on the terminal that the last call wrote; it is cut to the width of the terminal."""
    shown = printable(line)[: shutil.get_terminal_size().columns - 1]
    print(f"{CLEAR_LINE}{shown}", end="", file=sys.stderr, flush=True)


def show_rows(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print a table, each row on one line; on a terminal, the last column is cut to its width."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)][:-1]
    room = None
    if sys.stdout.isatty():
        taken = len(indent) + sum(widths) + 2 * len(widths)
        room = max(shutil.get_terminal_size().columns - taken - 1, _NARROWEST)
    for row in shown:
        last = row[-1] if room is None or len(row[-1]) <= room else row[-1][: room - 1] + "…"
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print((indent + "  ".join([*cells, last])).rstrip())
