"""The calls of the history in a store: all processes append to one feed, and read it.

Theory of operation. An entry of the feed is a batch of calls, masked and encoded. The number of a call consists of the number
of its batch and its place in it, so it grows with every call and is the same in every process. The feed keeps a number of
entries that is chosen by the size of the latest ones, so that it stays near its limit in bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from pegboard.call import Json
from pegboard.stores.store import Feeds, LogEntry, Watcher

FEED: Final = "history"
MAX_BATCH: Final = 100
MAX_BATCH_BYTES: Final = 256 * 1024
_PLACES: Final = 1024
_WINDOW: Final = 64
"""How many batches are read at a time."""


class StoredCall(Struct, omit_defaults=True):
    """One call, as the history keeps it: what a list shows of it, and everything else as JSON text.

    at: when it began, in seconds since 1970.
    ms: how long it took.
    lane: the toolbox and server that it ran on; empty for a board.
    tool_ms: how long the tool itself took; None if there is no middleware around it, or if it was not reached.
    """

    at: float
    ms: float
    method: str
    name: str
    outcome: str
    details: Raw
    lane: str = ""
    repairs: int = 0
    client: str = ""
    principal: str = ""
    version: str = ""
    transport: str = ""
    tool_ms: float | None = None
    number: int = 0

    def summary(self) -> dict[str, Json]:
        """What a list shows of it."""
        return {
            "number": self.number,
            "at": self.at,
            "ms": self.ms,
            "method": self.method,
            "name": self.name,
            "lane": self.lane,
            "outcome": self.outcome,
            "repairs": self.repairs,
            "client": self.client,
            "principal": self.principal,
            "version": self.version,
            "transport": self.transport,
            "tool_ms": self.tool_ms,
        }

    def contains(self, text: str) -> bool:
        """Whether a text, in lower case, is in what is kept of it."""
        return text in f"{self.name} {bytes(self.details).decode('utf-8', 'replace')}".casefold()

    def everything(self) -> dict[str, Json]:
        """All that is kept of it."""
        details: dict[str, Json] = msgspec.json.decode(self.details)
        return {**self.summary(), **details}


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[StoredCall]).decode


def split_batches(calls: Sequence[StoredCall], max_bytes: int = MAX_BATCH_BYTES) -> list[tuple[bytes, int]]:
    """The entries of the feed for these calls, each with its number of calls; one has about `max_bytes`."""
    batches: list[list[StoredCall]] = [[]]
    size = 0
    for call in calls:
        if batches[-1] and (len(batches[-1]) == MAX_BATCH or size + len(call.details) > max_bytes):
            batches.append([])
            size = 0
        batches[-1].append(call)
        size += len(call.details)
    return [(_encode(batch), len(batch)) for batch in batches if batch]


class CallFeed:
    """The calls of all processes that share a store.

    calls: about how many calls are kept.
    max_bytes: about how large they may be together.
    """

    def __init__(self, feeds: Feeds, calls: int, max_bytes: int) -> None:
        self._feeds = feeds
        self._calls, self._max_bytes = calls, max_bytes
        self._batch_bytes = self._batch_calls = 0.0

    async def publish(self, batch: bytes, count: int) -> None:
        """Append a batch; `count` is its number of calls."""
        # The average of the latest ones.
        share = 0.1 if self._batch_calls else 1.0
        self._batch_bytes += share * (len(batch) - self._batch_bytes)
        self._batch_calls += share * (count - self._batch_calls)
        keep = min(self._max_bytes / max(self._batch_bytes, 1.0), self._calls / max(self._batch_calls, 1.0))
        await self._feeds.publish(FEED, batch, keep=max(1, int(keep)))

    async def since(self, number: int, limit: int) -> list[StoredCall]:
        """The calls after this one, the oldest first, at most about `limit`; the oldest that are kept, if it is older."""
        found: list[StoredCall] = []
        # The batch of that call may have more.
        after, wanted = max(0, number // _PLACES - 1), number
        while len(found) < limit:
            page = await self._feeds.read(FEED, after, _WINDOW)
            found += [call for entry in page.entries for call in _read(entry) if page.lost or call.number > wanted]
            if not page.more or not page.entries:
                break
            after, wanted = page.entries[-1].seq, 0
        return found[:limit]

    async def latest(self, limit: int) -> list[StoredCall]:
        """The newest calls, the oldest first."""
        found: list[StoredCall] = []
        async for batch in self.backwards():
            found = [*batch, *found]
            if len(found) >= limit:
                break
        return found[-limit:]

    async def backwards(self) -> AsyncIterator[list[StoredCall]]:
        """All calls in parts, the newest part first; each part begins with its oldest call."""
        end = (await self._feeds.read(FEED, 0, 1)).last
        while end > 0:
            page = await self._feeds.read(FEED, max(0, end - _WINDOW), _WINDOW)
            entries = [entry for entry in page.entries if entry.seq <= end]
            calls = [call for entry in entries for call in _read(entry)]
            if calls:
                yield calls
            if page.lost or not entries:
                return
            end = entries[0].seq - 1

    async def find(self, number: int) -> StoredCall | None:
        """The call with this number, if it is still kept."""
        page = await self._feeds.read(FEED, max(0, number // _PLACES - 1), 1)
        calls = [call for entry in page.entries for call in _read(entry)]
        return next((call for call in calls if call.number == number), None)

    async def last(self) -> int:
        """The number of the newest call."""
        return (await self._feeds.read(FEED, 0, 1)).last * _PLACES + _PLACES - 1

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher after each batch; returns a function that ends the watch."""
        return self._feeds.watch(FEED, watcher)


def _read(entry: LogEntry) -> list[StoredCall]:
    try:
        calls = _decode(entry.data)
    except msgspec.MsgspecError:
        # Written by another version.
        return []
    for place, call in enumerate(calls):
        call.number = entry.seq * _PLACES + place
    return calls
