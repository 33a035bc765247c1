"""Prints for the verbs, with text from peers escaped."""

from __future__ import annotations

import shutil
import sys
from typing import Final

import msgspec

from pegboard.logs.printable import printable, printable_json, printable_lines

CLEAR_LINE: Final = "\r\x1b[2K"


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
