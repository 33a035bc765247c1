"""Escapes text from peers before it is printed or logged.

Every text that a peer chose passes through here before it is printed or logged. `printable` is for one line: a log
record, a table cell, an error. `printable_lines` is for text of several lines. `printable_json` is for JSON; its
escapes do not change the value.
"""

from __future__ import annotations

import re
from typing import Final

_UNSEEN: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # zero width, tags, bidi isolates
    "\u2028-\u202e"  # line and paragraph separators, bidi overrides
    "\ud800-\udfff\ue000-\uf8ff\ufffe\uffff\U000f0000-\U0010ffff"  # surrogates, private use
)
# After a symbol one of these selects its emoji or text form; elsewhere it has no meaning.
_SELECTOR: Final = r"(?:^|(?<=[^\W\d_])|(?<=[\s\ufe00-\ufe0f]))[\ufe0e\ufe0f]"
# In a name or a table these look like a space.
_SPACES: Final = "\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_ONE_LINE: Final = re.compile(f"[{_UNSEEN}{_SPACES}]|{_SELECTOR}")
_LINES: Final = re.compile(f"(?![\\n\\t])(?:[{_UNSEEN}]|{_SELECTOR})")


def printable(text: str) -> str:
    """The text on one line, with the escapes of Python literals such as `\\n` and `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return _ONE_LINE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The text with line ends, tabs and spaces kept, and other characters escaped as `printable` does."""
    if text.isascii() and text.isprintable():
        return text
    return _LINES.sub(_escape, text.replace("\r\n", "\n"))


def printable_json(text: str) -> str:
    """A JSON text of the same value; outside of strings, only line ends and tabs need escaping."""
    return _LINES.sub(_escape_in_json, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def _escape_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
