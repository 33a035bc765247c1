"""What a server says, as a log or a message shows it: on one line, with its letters and without what moves a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 500

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RULE: Final = re.compile(r"([^\w\s])\1{3,}")
# Where in a program it was says less than what happened there.
_FRAME: Final = re.compile(r"\s+at |\s+File \"|Node\.js v\d|Traceback \(most")
_LAST: Final = 3


def plain(text: str, most: int = LONGEST) -> str:
    """The text, cut, with each character that cannot be seen written out, as in `\\n`."""
    kept = text[:most]
    if not kept.isprintable():
        kept = "".join(letter if letter.isprintable() else _spell(letter) for letter in _COLOUR.sub("", kept))
    return kept if len(text) <= most else f"{kept}…"


def last_words(lines: Sequence[str]) -> str:
    """The last of what was written that has a word in it: frames, rules and where in the program it was explain nothing."""
    worded = [line for line in lines if any(map(str.isalnum, line))]
    telling = [line for line in worded if not _FRAME.match(line)] or worded
    return " / ".join(plain(_RULE.sub(r"\1\1\1", line).strip(), LONGEST // 2) for line in telling[-_LAST:])


def _spell(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")
