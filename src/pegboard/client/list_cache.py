"""Caches a server's lists for as long as the server allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.bounded_dict import BoundedDict
from pegboard.call import Json
from pegboard.protocol.revisions import CHANGE_METHODS, RESOURCE_UPDATED

_MAX_PAGES: Final = 256
_MAX_SECONDS: Final = 24 * 3600.0
_SHARED: Final = "anybody"

CACHED: Final = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""The methods that may be cached (Cacheable Results)."""

_ABOUT: Final[Mapping[str, tuple[str, ...]]] = {
    CHANGE_METHODS["tools"]: ("tools/list",),
    CHANGE_METHODS["prompts"]: ("prompts/list",),
    CHANGE_METHODS["resources"]: ("resources/list", "resources/templates/list"),
    RESOURCE_UPDATED: ("resources/read",),
}

_encode = msgspec.json.Encoder(order="sorted").encode


class _CachedPage(Struct, frozen=True):
    until: float
    written: bytes
    context: Hashable


class ListCache:
    """Results by method and params.

    A result that is not `public` is only for the authorization context in which it was obtained: "a different access
    token requires a different cache".
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: BoundedDict[tuple[str, bytes], _CachedPage] = BoundedDict(_MAX_PAGES)

    def find(self, method: str, params: Mapping[str, Json], context: Hashable = None) -> Mapping[str, Json] | None:
        """A copy of a fresh result."""
        key = method, _encode(params)
        page = self._kept.get(key)
        if page is None:
            return None
        if page.until <= self._clock() or page.context not in (_SHARED, context):
            del self._kept[key]
            return None
        result: Mapping[str, Json] = msgspec.json.decode(page.written)
        return result

    def keep(
        self, method: str, params: Mapping[str, Json], result: Mapping[str, Json], context: Hashable = None
    ) -> None:
        """Keep a result for its lifetime; without one it is stale at once."""
        millis = result.get("ttlMs")
        if method not in CACHED or isinstance(millis, bool) or not isinstance(millis, int | float) or millis <= 0:
            return
        until = self._clock() + min(millis / 1000, _MAX_SECONDS)
        whose = _SHARED if result.get("cacheScope") == "public" else context
        self._kept[method, _encode(params)] = _CachedPage(until, _encode(result), whose)

    def clear(self, method: str) -> None:
        """Drop all pages of this list."""
        for key in [key for key in self._kept if key[0] == method]:
            del self._kept[key]

    def drop(self, notice: str, uri: str = "") -> None:
        """A change was reported: its subject "should be considered immediately stale"."""
        methods = _ABOUT.get(notice, ())
        for key in [key for key in self._kept if key[0] in methods]:
            if not uri or msgspec.json.decode(key[1]).get("uri", "").startswith(uri):
                del self._kept[key]
