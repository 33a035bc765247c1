"""The store of a single process, in memory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, KeysView, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile
from typing import Generic, TypeVar

from msgspec import Struct

from pegboard.limits import Limits
from pegboard.stores.store import FeedPage, LogEntry, LogName, LogPage, StoredRecord, Watcher

_log = logging.getLogger("pegboard.stores")

Clock = Callable[[], float]
TopicT = TypeVar("TopicT", bound=Hashable)


class Watchers(Generic[TopicT]):
    """The watchers of this process, by topic."""

    def __init__(self) -> None:
        self._watchers: dict[TopicT, tuple[Watcher, ...]] = {}

    @property
    def topics(self) -> KeysView[TopicT]:
        """The topics that have a watcher."""
        return self._watchers.keys()

    def notify(self, topic: TopicT) -> None:
        """Call the watchers of a topic."""
        for watcher in self._watchers.get(topic, ()):
            try:
                watcher()
            except Exception:  # noqa: BLE001 — a failing watcher must neither stop the others nor the writer
                _log.exception("a watcher failed")

    def watch(self, topic: TopicT, watcher: Watcher) -> Callable[[], None]:
        """Call the watcher at each notification; returns a function that ends the watch."""
        # Each watch has its own object, also if two have the same watcher.
        own = partial(watcher)
        self._watchers[topic] = (*self._watchers.get(topic, ()), own)

        def end() -> None:
            left = tuple(kept for kept in self._watchers.get(topic, ()) if kept is not own)
            if left:
                self._watchers[topic] = left
            else:
                self._watchers.pop(topic, None)

        return end


class _Group(Struct, eq=False):
    """The logs of one session, the oldest first, and those of them that have ended, the earliest first."""

    logs: dict[str, _Log]
    ended: dict[str, _Log]
    size: int = 0


class _Log(Struct, eq=False):
    """The entries by number, in order; `kept` holds the numbers that must not be trimmed."""

    name: LogName
    about: bytes
    group: _Group
    entries: dict[int, bytes]
    kept: set[int]
    last: int = 0
    size: int = 0
    ended: float | None = None

    def oldest(self) -> int | None:
        """The entry to trim next."""
        end = self.last if self.ended is not None else 0
        return next((seq for seq in self.entries if seq != end and seq not in self.kept), None)


class MemoryLogs:
    """Logs in dictionaries, with limits per log, per session and in total."""

    def __init__(self, limits: Limits, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._logs: dict[LogName, _Log] = {}
        self._groups: dict[str, _Group] = {}
        # The logs that ended earliest come first.
        self._ended: OrderedDict[LogName, _Log] = OrderedDict()
        # The logs that may have entries to trim. A log without any is removed until it grows.
        self._spare: dict[LogName, _Log] = {}
        self._size = 0
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._watchers = Watchers[LogName]()

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        self._expire()
        session, name = log
        group = self._groups.get(session)
        if group is not None:
            if name in group.logs:
                return False
            if len(group.logs) >= self._limits.session_streams:
                if not group.ended:
                    return False
                self._remove(next(iter(group.ended.values())))
        group = self._groups.setdefault(session, _Group({}, {}))
        group.logs[name] = self._logs[log] = _Log(log, about, group, {}, set())
        return True

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        found = self._logs.get(log)
        if found is None or seq != found.last + 1 or found.ended is not None:
            return False
        found.last = seq
        found.entries[seq] = data
        self._spare[log] = found
        self._weigh(found, len(data))
        if keep:
            found.kept.add(seq)
        if end:
            self._expire()
            found.kept.clear()
            found.ended = self._clock()
            self._ended[log] = found.group.ended[log[1]] = found
            self._expire_later()
        self._trim(found)
        self._watchers.notify(log)
        return True

    async def release(self, log: LogName, seq: int) -> None:
        found = self._logs.get(log)
        if found is not None:
            found.kept.discard(seq)
            self._spare.setdefault(log, found)

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        self._expire()
        found = self._logs.get(log)
        if found is None:
            return None
        # Most readers are near the end, so search from there.
        newer = list(takewhile(lambda seq: seq > after, reversed(found.entries)))[::-1]
        entries = tuple(LogEntry(seq, found.entries[seq]) for seq in newer[:limit])
        return LogPage(entries, found.last, len(newer) > limit, found.ended is not None, found.about)

    async def drop(self, session: str) -> None:
        group = self._groups.get(session)
        if group is not None:
            for log in tuple(group.logs.values()):
                self._remove(log)

    async def touch(self, session: str) -> None:
        """Nothing to do: sessions and their logs end together in this store."""

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        return self._watchers.watch(log, watcher)

    def _weigh(self, log: _Log, more: int) -> None:
        log.size += more
        log.group.size += more
        self._size += more

    # -- limits ------------------------------------------------------------------------------------------------------

    def _trim(self, log: _Log) -> None:
        limits = self._limits
        while (len(log.entries) > limits.stream_events or log.size > limits.stream_bytes) and self._cut(log):
            pass
        group = log.group
        while len(group.ended) > limits.ended_streams:
            self._remove(next(iter(group.ended.values())))
        if group.size > limits.session_bytes:
            self._trim_session(group)
        if self._size > limits.stored_bytes:
            self._trim_all()

    def _trim_session(self, group: _Group) -> None:
        limit = self._limits.session_bytes
        for log in group.logs.values():
            while group.size > limit and self._cut(log):
                pass
        # Keep the newest ended log: its client is about to read it.
        while group.size > limit and len(group.ended) > 1:
            self._remove(next(iter(group.ended.values())))

    def _trim_all(self) -> None:
        limit = self._limits.stored_bytes
        while self._size > limit and len(self._ended) > 1:
            self._remove(next(iter(self._ended.values())))
        while self._size > limit and self._spare:
            log = next(iter(self._spare.values()))
            if not self._cut(log):
                del self._spare[log.name]

    def _cut(self, log: _Log) -> bool:
        seq = log.oldest()
        if seq is None:
            return False
        self._weigh(log, -len(log.entries.pop(seq)))
        return True

    def _expire(self) -> None:
        oldest = self._clock() - self._limits.ended_seconds
        while self._ended:
            log = next(iter(self._ended.values()))
            if log.ended is None or log.ended >= oldest:
                break
            self._remove(log)

    def _expire_later(self) -> None:
        """Also expire logs if the store is not used any more; the event loop may be a new one, as in tests."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop:
            self._timer = loop, loop.call_later(self._limits.ended_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._expire()
        if self._ended:
            self._expire_later()

    def _remove(self, log: _Log) -> None:
        session, name = log.name
        self._weigh(log, -log.size)
        self._ended.pop(log.name, None)
        self._spare.pop(log.name, None)
        group = log.group
        del self._logs[log.name], group.logs[name]
        group.ended.pop(name, None)
        if not group.logs:
            del self._groups[session]
        self._watchers.notify(log.name)


class _MemoryRecord(Struct, eq=False):
    value: bytes
    version: int
    until: float | None


class MemoryRecords:
    """Records in a dictionary; expired ones are deleted when others are written."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _MemoryRecord] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: str) -> StoredRecord | None:
        found = self._find(key)
        return None if found is None else StoredRecord(found.value, found.version)

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        found = self._find(key)
        version = 0 if found is None else found.version
        if if_version is not None and if_version != version:
            return None
        self._write(key, _MemoryRecord(value, version + 1, None), ttl)
        return version + 1

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        found = self._find(key)
        if found is None:
            self._write(key, _MemoryRecord(b"%d" % amount, 1, None), ttl)
            return amount
        total = int(found.value) + amount
        found.value = b"%d" % total
        found.version += 1
        return total

    async def delete(self, key: str) -> bool:
        there = self._find(key) is not None
        self._kept.pop(key, None)
        return there

    def _find(self, key: str) -> _MemoryRecord | None:
        found = self._kept.get(key)
        if found is not None and found.until is not None and found.until <= self._clock():
            del self._kept[key]
            return None
        return found

    def _write(self, key: str, record: _MemoryRecord, ttl: float | None) -> None:
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            self._find(heappop(self._due)[1])
        self._kept[key] = record
        if ttl is not None:
            record.until = now + ttl
            heappush(self._due, (record.until, key))
            if len(self._due) > 2 * len(self._kept) + 64:
                # Most entries belong to values that were overwritten or deleted.
                self._due = [(kept.until, name) for name, kept in self._kept.items() if kept.until is not None]
                heapify(self._due)


class MemoryLeases:
    """Leases in a dictionary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held_until: dict[str, float] = {}

    async def renew(self, holder: str, seconds: float) -> None:
        self._held_until[holder] = self._clock() + seconds

    async def release(self, holder: str) -> None:
        self._held_until.pop(holder, None)

    async def holders(self) -> Sequence[str]:
        return sorted(filter(self.is_held, self._held_until))

    def is_held(self, holder: str) -> bool:
        return self._held_until.get(holder, 0.0) > self._clock()


class _Feed(Struct, eq=False):
    entries: deque[LogEntry]
    last: int = 0


class MemoryFeeds:
    """Feeds in queues."""

    def __init__(self, leases: MemoryLeases) -> None:
        self._leases = leases
        self._feeds: dict[str, _Feed] = {}
        self._watchers = Watchers[str]()

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        if holder is not None and not self._leases.is_held(holder):
            return None
        found = self._feeds.setdefault(feed, _Feed(deque()))
        found.last += 1
        found.entries.append(LogEntry(found.last, data))
        while len(found.entries) > keep:
            found.entries.popleft()
        self._watchers.notify(feed)
        return found.last

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        found = self._feeds.get(feed) or _Feed(deque())
        forgotten = found.last - len(found.entries)
        lost = not forgotten <= after <= found.last
        skipped = 0 if lost else after - forgotten
        entries = tuple(islice(found.entries, skipped, skipped + limit))
        return FeedPage(entries, found.last, skipped + len(entries) < len(found.entries), lost)

    async def trim(self, feed: str, upto: int) -> None:
        found = self._feeds.get(feed)
        while found is not None and found.entries and found.entries[0].seq <= upto:
            found.entries.popleft()

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        return self._watchers.watch(feed, watcher)


class MemoryStore:
    """Everything in dictionaries, for one process."""

    def __init__(self, limits: Limits | None = None, clock: Clock = time.monotonic) -> None:
        self.logs = MemoryLogs(limits or Limits(), clock)
        self.records = MemoryRecords(clock)
        self.leases = MemoryLeases(clock)
        self.feeds = MemoryFeeds(self.leases)

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""
