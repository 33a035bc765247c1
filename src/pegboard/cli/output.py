"""Prints for the verbs, with text from peers escaped."""

from __future__ import annotations

import sys

import msgspec

from pegboard.printable import printable, printable_json, printable_lines


def show(line: str = "") -> None:
    """Print one line of the answer."""
    print(printable(line))


def show_text(text: str) -> None:
    """Print a text that a server answered: exactly as it came, unless a terminal shows it."""
    print(printable_lines(text) if sys.stdout.isatty() else text)


def show_json(value: object) -> None:
    """Print a value as JSON."""
    print(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def note(line: str) -> None:
    """Print one line beside the answer, on stderr."""
    print(printable(line), file=sys.stderr, flush=True)


def note_lines(text: str) -> None:
    """Print lines of ours beside the answer; foreign parts of them have been made `printable` already."""
    print(printable_lines(text), file=sys.stderr, flush=True)
