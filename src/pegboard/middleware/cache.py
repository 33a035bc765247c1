"""Caches the results of read-only tools in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Call, Done, EncodedResult, Handler, Reply
from pegboard.errors import DeclarationError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.idempotency import promised_tools

Key: TypeAlias = tuple[Any, ...]

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# The memory of an entry besides its bytes: the objects of the key and the entry.
_OVERHEAD = 512


class _CachedResult(Struct):
    written: bytes
    wrapped: bool
    expires: float
    size: int


class Cache(Middleware):
    """Caches results for `ttl` seconds: of the named tools, or of those with `readOnlyHint`; not of prompts and resources.

    The key is the tool, its arguments (in any order) and the principal; `shared=True` leaves out the principal, for
    results that are the same for all callers. At most `entries` results and `size` bytes are kept; the least recently
    used are dropped first. Errors are never cached, nor are results that needed an answer from the caller. `hits` and
    `misses` count; `call.state["cache"]` has the outcome for a call. `clock` is for tests.
    """

    order = 112
    kinds = ("tool",)

    def __init__(
        self,
        ttl: float,
        *,
        tools: Collection[str] | None = None,
        shared: bool = False,
        entries: int = 1024,
        size: int = 16 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl > 0 or entries < 1 or size < 1:
            raise DeclarationError(f"ttl={ttl!r}, entries={entries!r}, size={size!r}: each must be greater than 0")
        self.ttl, self.shared, self.entries, self.size = ttl, shared, entries, size
        self.hits = self.misses = 0
        self._covers = promised_tools(tools, "readOnlyHint")
        self._clock = clock
        self._kept: OrderedDict[Key, _CachedResult] = OrderedDict()
        self._bytes = 0

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Return the cached result, or run the call and cache its result."""
        if not self._covers(call) or call.answers is not None or call.ticket is not None:
            # "requests carrying `inputResponses` or `requestState` MUST NOT be cached" (Caching, Cache Key)
            return await proceed(call)
        key = self._key(call)
        entry = self._kept.get(key)
        if entry is not None and entry.expires > self._clock():
            self.hits += 1
            self._kept.move_to_end(key)
            call.state["cache"] = "hit"
            # Decoded again for each caller, which may modify it.
            return Done(_decode(entry.written), entry.wrapped)
        self.misses += 1
        call.state["cache"] = "miss"
        reply = await proceed(call)
        if isinstance(reply, Done) and not call.asked:
            # The user's answer is not part of the key, and a question is not a result.
            self._keep(key, reply)
        return reply

    def clear(self) -> None:
        """Drop all entries."""
        self._kept.clear()
        self._bytes = 0

    def _key(self, call: Call) -> Key:
        # A float can be written in ways that only a Decimal distinguishes, so its spelling is part of the key.
        written: list[str] = []

        def note(text: str) -> float:
            written.append(text)
            return float(text)

        arguments = msgspec.json.Decoder(float_hook=note).decode(call.raw)
        principal = None if self.shared else call.caller.principal.id
        # The tool itself, not its name: a tool that is replaced has no entries.
        return call.tool, _encode_sorted(arguments), tuple(written), principal

    def _keep(self, key: Key, reply: Done) -> None:
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        if result.get("isError"):
            return
        written = _encode(result)
        size = len(written) + len(key[1]) + _OVERHEAD
        self._drop(key)
        if size > self.size:
            return
        self._kept[key] = _CachedResult(written, reply.wrapped, self._clock() + self.ttl, size)
        self._bytes += size
        while self._bytes > self.size or len(self._kept) > self.entries:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        entry = self._kept.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
