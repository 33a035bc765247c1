"""A header that each user sets for themselves, such as an API key of the server."""

from __future__ import annotations

from collections.abc import Coroutine, Hashable
from typing import Any, Final

from pegboard.client.http.address import Address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.storage import Storage
from pegboard.errors import LoginRequired

VALUE: Final = "header"
"""Where the value is kept in an owner."""
MAX_CHARACTERS: Final = 8192


def is_header_value(text: str) -> bool:
    """Whether a header can carry a text that a person has entered."""
    return 0 < len(text) <= MAX_CHARACTERS and text.isascii() and text.isprintable()


class HeaderCredential:
    """Adds the header to every request; a user who has not set it, or whose value is rejected, has to connect."""

    def __init__(self, name: str, scheme: str, storage: Storage, message: str) -> None:
        self._name = name
        self._scheme = scheme
        self._storage = storage
        self._message = message
        self._line = b""
        self._loaded = False

    def authorizer(self, server: Address, pool: HttpPool) -> HeaderCredential:
        """Itself: it belongs to one user and one server."""
        return self

    def lines(self) -> bytes | Coroutine[Any, Any, bytes]:
        return self._line if self._loaded else self._first_line()

    async def _first_line(self) -> bytes:
        self._line = await self._load()
        self._loaded = True
        return self._line

    def entry(self) -> HeaderCredential:
        return self

    @property
    def context(self) -> Hashable:
        return hash(self._line)

    async def renew(self, status: int, challenge: str) -> bool:
        """Use a value that the user has set meanwhile."""
        if status != 401:
            return False
        newest = await self._load()
        if newest == self._line:
            raise LoginRequired(self._message, status, challenge)
        self._line = newest
        return True

    async def _load(self) -> bytes:
        value = await self._storage.load(VALUE)
        if value is None:
            return b""
        scheme = f"{self._scheme} ".encode() if self._scheme else b""
        return b"%b: %b%b\r\n" % (self._name.encode(), scheme, value)
