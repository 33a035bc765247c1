"""The keys of an issuer: fetched on demand, again when they change, and never more often than necessary.

Theory of operation. The first token fetches the key set; all tokens that arrive meanwhile wait for the same request. A
token that names an unknown key fetches it again, since keys rotate, but at most every few seconds: anyone can invent
key ids. Keys that are old are fetched again in the background, and used meanwhile. If an issuer cannot be reached, it is
not asked again for a while, and tokens that need its keys are neither accepted nor rejected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from pegboard.auth.issuer import IssuerConnection
from pegboard.auth.request_credentials import unavailable
from pegboard.auth.signatures import BadJwt, fits, load_key
from pegboard.errors import ServerFault

_log = logging.getLogger("pegboard.auth")

ROTATION_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0
FRESH_SECONDS: Final = 900.0
STALE_SECONDS: Final = 3600.0
MAX_KEYS: Final = 100


class IssuerKeys:
    """The keys of one issuer, by id."""

    def __init__(self, issuer: str, jwks_uri: str | None, connection: IssuerConnection) -> None:
        self._issuer = issuer
        self._jwks_uri = jwks_uri
        self._connection = connection
        self._keys: tuple[tuple[Mapping[str, Any], Any], ...] = ()
        self._fetched = -STALE_SECONDS
        self._asked = -STALE_SECONDS
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None

    def find(self, key_id: object, algorithm: str) -> list[Any] | None:
        """The keys that may have signed a token, at once; None if they have to be fetched first."""
        now = time.monotonic()
        if now - self._fetched > FRESH_SECONDS:
            if now - self._fetched > STALE_SECONDS:
                return None
            self._begin(now, RETRY_SECONDS)
        found = self._matching(key_id, algorithm)
        return found or (None if now - self._asked >= ROTATION_SECONDS else [])

    async def fetch(self, key_id: object, algorithm: str) -> list[Any]:
        """The same after fetching the key set, if it is time for that."""
        now = time.monotonic()
        self._begin(now, RETRY_SECONDS if self._failed else ROTATION_SECONDS)
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        if time.monotonic() - self._fetched > STALE_SECONDS:
            raise unavailable("The keys of the issuer cannot be fetched now; try again later")
        return self._matching(key_id, algorithm)

    async def close(self) -> None:
        """Cancel a request that is in progress."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    def _matching(self, key_id: object, algorithm: str) -> list[Any]:
        return [
            key
            for described, key in self._keys
            if fits(described, algorithm) and (key_id is None or described.get("kid") == key_id)
        ]

    def _begin(self, now: float, pause: float) -> None:
        if self._fetching is None and now - self._asked >= pause:
            self._asked = now
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            self._fetching.add_done_callback(self._end)

    def _end(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            found = await self._read()
        except ServerFault as fault:
            if not self._failed:
                _log.error(
                    "the keys of the issuer %s cannot be fetched, so its tokens are not accepted: %s",
                    self._issuer,
                    fault,
                )
            self._failed = True
            return
        if self._failed:
            _log.warning("the keys of the issuer %s can be fetched again", self._issuer)
        self._failed = False
        self._keys = found
        self._fetched = time.monotonic()

    async def _read(self) -> tuple[tuple[Mapping[str, Any], Any], ...]:
        url = self._jwks_uri
        if url is None:
            named = (await self._connection.discover()).get("jwks_uri")
            if not isinstance(named, str):
                raise ServerFault(f"{self._issuer}: its metadata name no jwks_uri")
            url = named
        document = await self._connection.get(url)
        listed = document.get("keys")
        if not isinstance(listed, list):
            raise ServerFault(f"{url}: this is not a key set")
        found = []
        for described in listed[:MAX_KEYS]:
            try:
                found.append((described, load_key(described)))
            except (BadJwt, AttributeError, TypeError):
                # Key sets may contain keys of kinds that we do not know.
                continue
        if not found:
            raise ServerFault(f"{url}: the key set has no key that can be used")
        return tuple(found)
