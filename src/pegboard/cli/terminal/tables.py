"""Tables and long lines: on a terminal they fit its width, elsewhere they are whole."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, TextIO
from unicodedata import combining, east_asian_width

from pegboard.cli.terminal.output import show
from pegboard.logs.printable import printable

_NARROWEST_COLUMN: Final = 6
_WIDEST_COLUMN: Final = 60
"""Where the next column begins at most, unless a terminal limits it; a longer cell moves the rest of its row."""
_NARROWEST: Final = 20
_GAP: Final = "  "


def width_of(stream: TextIO | None) -> int | None:
    """The columns of the terminal that a stream writes to; None if it is not a terminal."""
    return max(shutil.get_terminal_size().columns, _NARROWEST) if stream is not None and stream.isatty() else None


def show_rows(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print a table, each row on one line; on a terminal, the widest cells are cut to fit."""
    for line in render_rows(rows, width_of(sys.stdout), indent):
        show(line)


def show_descriptions(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print a table whose last cells are sentences: on a terminal they continue on further lines, in their column."""
    for line in render_descriptions(rows, width_of(sys.stdout), indent):
        show(line)


def show_wrapped(text: str, indent: str = "") -> None:
    """Print a line of the result; on a terminal, one that is too long continues on further lines, indented."""
    for line in wrap_line(text, width_of(sys.stdout), indent):
        show(line)


def wrap_line(text: str, width: int | None, indent: str = "") -> list[str]:
    """A line, as several ones if it is wider than `width`."""
    shown = indent + printable(text)
    if width is None or _cells(shown) <= width:
        return [shown]
    return textwrap.wrap(shown, width, subsequent_indent=indent + _GAP, break_on_hyphens=False)


def render_rows(rows: Sequence[Sequence[str]], width: int | None, indent: str = "") -> Iterator[str]:
    """The lines of a table, at most `width` columns wide."""
    shown = [[printable(cell) for cell in row] for row in rows]
    natural = [max(map(_cells, column)) for column in zip(*shown, strict=True)]
    if width is None:
        widths = [*(min(column, _WIDEST_COLUMN) for column in natural[:-1]), *natural[-1:]]
    else:
        widths = _shrink(natural, width - len(indent) - len(_GAP) * (len(natural) - 1))
        shown = [[_cut(cell, column) for cell, column in zip(row, widths, strict=True)] for row in shown]
    for row in shown:
        cells = [cell + " " * (column - _cells(cell)) for cell, column in zip(row, widths, strict=True)]
        yield (indent + _GAP.join(cells)).rstrip()


def render_descriptions(rows: Sequence[Sequence[str]], width: int | None, indent: str = "") -> Iterator[str]:
    """The lines of a table whose last column wraps; where too little room is left for it, it is cut instead."""
    names = [[printable(cell) for cell in row[:-1]] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(*names, strict=True)]
    begin = len(indent) + sum(widths) + len(_GAP) * len(widths)
    if width is None or width - begin < _NARROWEST:
        yield from render_rows(rows, width, indent)
        return
    for row, cells in zip(rows, names, strict=True):
        first = indent + "".join(
            cell + " " * (column - _cells(cell)) + _GAP for cell, column in zip(cells, widths, strict=True)
        )
        text = textwrap.wrap(printable(row[-1]), width - begin, break_on_hyphens=False) or [""]
        yield (first + text[0]).rstrip()
        yield from (" " * begin + line for line in text[1:])


def _shrink(natural: list[int], room: int) -> list[int]:
    """The widths of the columns: the widest ones are cut first, so that short ones stay whole."""
    widths = list(natural)
    while sum(widths) > room and max(widths) > _NARROWEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    if _cells(text) <= width:
        return text
    while _cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)
