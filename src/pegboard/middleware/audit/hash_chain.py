"""The lines of a chain: each carries a tag of itself and of the line before it.

Theory of operation. The digest of a line is a BLAKE2b with a key derived from the secret (RFC 7693: a MAC in one pass), over
the tag of the line before and the text of this one; without a secret it is a plain hash. The first half is the tag, which ends the line.
The second half is written to the head of the chain, in place of that of the line before. So a line can only be added,
changed or removed by a holder of the key, and the end of a chain can only be moved back by a holder of the key or of an old
copy of the head: the tags in the lines do not reveal the value that the head needs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from pegboard.security.seal import read_keys

START: Final = b"0" * 32
"""What comes before the first line of a chain."""
OPEN: Final = "audit.open"
"""The action of the first line of each file, and of the first line of each process."""

_TAG_BYTES: Final = 16
_BEFORE_TAG: Final = b',"hash":"'
_AFTER_TAG: Final = b'"}\n'
_ENDING: Final = len(_BEFORE_TAG) + 2 * _TAG_BYTES + len(_AFTER_TAG)


class ChainKey:
    """Computes the digests of lines; `id` names the key, and is empty for a plain hash."""

    def __init__(self, secret: bytes | None) -> None:
        self._key, self.id = b"", ""
        if secret is not None:
            self._key = hmac.digest(secret, b"pegboard audit chain", "sha256")
            self.id = hashlib.sha256(self._key).hexdigest()[:8]

    def link(self, previous: bytes, text: bytes) -> tuple[bytes, bytes, bytes]:
        """The line of an unfinished JSON object, its tag, and its proof for the head."""
        whole = blake2b(previous + text, digest_size=2 * _TAG_BYTES, key=self._key).digest()
        tag = whole[:_TAG_BYTES].hex().encode()
        return b'%b,"hash":"%b"}\n' % (text, tag), tag, whole[_TAG_BYTES:]


def read_chain_keys(secret: str | None) -> list[ChainKey]:
    """The keys of PEGBOARD_SECRET, the one for new lines first; a plain hash without a secret."""
    return [ChainKey(key) for key in read_keys(secret)] if secret else [ChainKey(None)]


def split_line(line: bytes) -> tuple[bytes, bytes] | None:
    """The text of a line that its tag is about, and the tag; None if it has none."""
    text, ending = line[:-_ENDING], line[-_ENDING:]
    if not ending.startswith(_BEFORE_TAG) or not ending.endswith(_AFTER_TAG):
        return None
    return text, ending[len(_BEFORE_TAG) : -len(_AFTER_TAG)]


class ChainLine(Struct, gc=False):
    """What the chain itself needs of a line; those with the action `audit.open` have the fields after `action`.

    number: counts the lines of the chain.
    hash: its tag.
    file: the number of the file that it begins, or continues.
    previous: the tag of the line before.
    key: the id of the key; empty for a plain hash.
    head: what was wrong with the head when the chain was opened.
    first: the number of the oldest line that is kept; older files were removed on purpose.
    others: the ends of the other chains of the folder at that time: number and tag of the last line of each.
    """

    number: int
    hash: str = ""
    at: str = ""
    action: str = ""
    file: int = 0
    previous: str = ""
    key: str = ""
    head: str = ""
    first: int = 1
    others: dict[str, tuple[int, str]] = {}


def find_key(keys: Sequence[ChainKey], key_id: str) -> ChainKey | None:
    """The key with this id."""
    return next((key for key in keys if key.id == key_id), None)
