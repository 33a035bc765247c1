"""Shortens the output of a server to one printable line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pegboard.logs.printable import printable

MAX_LENGTH: Final = 500

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RULE: Final = re.compile(r"([^\w\s])\1{3,}")
# Stack frames explain less than the error itself.
_FRAME: Final = re.compile(r"\s+at |\s+File \"|Node\.js v\d|Traceback \(most")
# What npm adds to every error.
_BOILERPLATE: Final = re.compile(
    r"npm (?:error|ERR!) (?:\w+ )?(?:Note that you can also|tarball, folder|A complete log of)|npm (?:error|ERR!)(?: \w+)?\s{0,80}$"
    r"|npm (?:notice|warn) "
)
_MAX_LINES: Final = 3


def shorten_output(text: str, most: int = MAX_LENGTH) -> str:
    """The text, shortened, on one printable line, without colours."""
    kept = printable(_COLOUR.sub("", text[:most]))
    return kept if len(text) <= most else f"{kept}…"


def last_output(lines: Sequence[str]) -> str:
    """The last lines that explain something: without stack frames, boilerplate, and lines that only contain symbols."""
    worded = [line for line in lines if any(map(str.isalnum, line))]
    telling = [line for line in worded if not (_FRAME.match(line) or _BOILERPLATE.match(line))] or worded
    return " / ".join(
        shorten_output(_RULE.sub(r"\1\1\1", line).strip(), MAX_LENGTH // 2) for line in telling[-_MAX_LINES:]
    )
