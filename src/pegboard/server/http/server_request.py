"""A request that our server has read."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pegboard.server.http_types import Head

# Memory of the Python objects in addition to the bytes received: for a request, and for each header line (two bytes objects
# and a dict entry). tests/server/test_account.py checks both.
REQUEST_COST: Final = 400
LINE_COST: Final = 112

NO_HEAD: Final = Head(b"", b"", b"", {})


class ServerRequest(Struct, gc=False):
    """A whole request; `keep` if its connection stays open, `chunks` if the response may be chunked (HTTP/1.1).

    `plain` if both hold, it arrived in one piece and its response has a body. `size` is the size of its head, -1 if
    other requests share the head.
    """

    head: Head
    body: bytes
    keep: bool
    chunks: bool
    plain: bool = False
    size: int = -1

    @property
    def weight(self) -> int:
        """The bytes of memory that it takes."""
        head = 0 if self.size < 0 else self.size + LINE_COST * len(self.head.headers)
        return REQUEST_COST + head + len(self.body)
