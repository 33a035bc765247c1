"""What a server writes, for the log: shortened to one printable line, and invalid output only now and then."""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable, Sequence
from typing import Final

from pegboard.bounded_dict import BoundedDict
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

_log = logging.getLogger("pegboard.client")

_MAX_SERVERS: Final = 1000

_counts: BoundedDict[tuple[Hashable, str], int] = BoundedDict(_MAX_SERVERS)


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


def count_garbled(server: Hashable, kind: str) -> int:
    """Count one more of a kind; returns the number so far."""
    number = _counts[server, kind] = _counts.get((server, kind), 0) + 1
    return number


def warn_rarely(server: Hashable, name: str, kind: str, detail: str = "") -> None:
    """Log invalid output of a server: the first, second, fourth … time, so that it cannot fill the log."""
    number = count_garbled(server, kind)
    if not number & (number - 1):
        _log.warning("%s: %s%s (%d so far)", name, kind, detail, number)
