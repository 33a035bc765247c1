"""The Redis store: each change of its logs, records, feeds and leases is one command or script of the server."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from pegboard.limits import Limits
from pegboard.stores.redis.command_pipeline import CommandPipeline, Script
from pegboard.stores.redis.hint_subscriber import HintSubscriber
from pegboard.stores.redis.redis_connection import RedisServer
from pegboard.stores.redis.scripts import (
    ADD,
    APPEND,
    DELETE,
    DROP,
    GET,
    HOLDERS,
    OPEN,
    PUBLISH,
    PUT,
    READ,
    READ_FEED,
    RELEASE,
    RENEW,
    TOUCH,
)
from pegboard.stores.store import (
    FEED_SECONDS,
    FeedPage,
    LogEntry,
    LogName,
    LogPage,
    StoredRecord,
    Watcher,
    digest,
    new_worker,
)

_LAST_SEQ: Final = 2**53


class _Shared(Struct, frozen=True):
    """What all parts of one store share: its name as a sender, its keys, its connections, and the clock of tests."""

    me: str
    prefix: str
    clock: Callable[[], float] | None
    pipeline: CommandPipeline
    subscriber: HintSubscriber

    def key(self, name: str) -> str:
        """The name of a key or channel."""
        return f"{self.prefix}:{name}"

    def run(
        self, script: Script, keys: Sequence[str], *arguments: str | bytes | int, weight: int = 0
    ) -> Awaitable[Any]:
        """Run a script; its first argument is the time, or empty: the server then uses its own clock."""
        now = "" if self.clock is None else str(round(self.clock() * 1000))
        return self.pipeline.run(script(keys, now, *arguments), script, weight)


class RedisLogs:
    """Logs as streams. Every change is one script, so that numbers, limits and sizes stay consistent."""

    def __init__(self, limits: Limits, shared: _Shared) -> None:
        self._shared = shared
        self._streams = limits.session_streams
        self._bounds = limits.stream_events, limits.stream_bytes, limits.ended_streams, limits.session_bytes
        life = 2 * limits.session_seconds + limits.ended_seconds
        self._times = int(limits.ended_seconds * 1000), int(life * 1000)

    async def open(self, log: LogName, about: bytes = b"") -> bool:
        opened, *removed = await self._run(OPEN, log[0], log[1], about, self._streams)
        self._tell(log[0], *removed)
        return bool(opened)

    async def append(self, log: LogName, seq: int, data: bytes, *, keep: bool = False, end: bool = False) -> bool:
        if not 0 < seq < _LAST_SEQ:
            return False
        mark = "end" if end else "keep" if keep else ""
        added, *removed = await self._run(APPEND, log[0], log[1], seq, data, mark, *self._bounds, weight=len(data))
        if added:
            self._shared.subscriber.notify_local(self._channel(log))
            self._tell(log[0], *removed)
        return bool(added)

    async def release(self, log: LogName, seq: int) -> None:
        await self._run(RELEASE, log[0], log[1], seq)

    async def read(self, log: LogName, after: int, limit: int) -> LogPage | None:
        after = min(max(after, 0), _LAST_SEQ)
        found = await self._run(READ, log[0], log[1], after, limit + 1)
        if found is None:
            return None
        last, ended, about, rows = found
        return LogPage(_read_entries(rows[:limit]), last, len(rows) > limit, bool(ended), about)

    async def drop(self, session: str) -> None:
        self._tell(session, await self._run(DROP, session))

    async def touch(self, session: str) -> None:
        self._tell(session, await self._run(TOUCH, session))

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        return self._shared.subscriber.watch(self._channel(log), watcher)

    def _channel(self, log: LogName) -> str:
        return self._shared.key(f"log:{digest(log[0])}:{log[1]}")

    def _tell(self, session: str, removed: Iterable[bytes] = ()) -> None:
        for name in removed:
            self._shared.subscriber.notify_local(self._channel((session, name.decode())))

    def _run(self, script: Script, session: str, *arguments: str | bytes | int, weight: int = 0) -> Awaitable[Any]:
        shared, keys = self._shared, [self._shared.key(f"{{{digest(session)}}}")]
        return shared.run(
            script, keys, shared.me, self._channel((session, "")), *self._times, *arguments, weight=weight
        )


class RedisRecords:
    """Values as hashes under digests of their keys; the server deletes expired ones."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    async def get(self, key: str) -> StoredRecord | None:
        found = await self._run(GET, key)
        return None if found is None else StoredRecord(*found)

    async def put(
        self, key: str, value: bytes, *, ttl: float | None = None, if_version: int | None = None
    ) -> int | None:
        asked = "" if if_version is None else if_version
        version: int = await self._run(PUT, key, value, _ttl(ttl), asked, secrets.token_bytes(8), weight=len(value))
        return version or None

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        return int(await self._run(ADD, key, amount, _ttl(ttl), secrets.token_bytes(8)))

    async def delete(self, key: str) -> bool:
        return bool(await self._run(DELETE, key))

    def _run(self, script: Script, key: str, *arguments: str | bytes | int, weight: int = 0) -> Awaitable[Any]:
        return self._shared.run(script, [self._shared.key(f"record:{digest(key)}")], *arguments, weight=weight)


class RedisFeeds:
    """A stream for each feed, and a key with its last number, which is kept when entries are trimmed."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        shared, channel = self._shared, self._channel(feed)
        keys, life, by = [*self._keys(feed), shared.key("leases")], int(FEED_SECONDS * 1000), secrets.token_bytes(8)
        number: int = await shared.run(
            PUBLISH, keys, data, keep, life, channel, shared.me, by, holder or "", weight=len(data)
        )
        shared.subscriber.notify_local(channel)
        return number or None

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        last, lost, rows = await self._shared.run(READ_FEED, self._keys(feed), after, limit)
        entries = _read_entries(rows)
        return FeedPage(entries, last, bool(entries) and entries[-1].seq < last, bool(lost))

    async def trim(self, feed: str, upto: int) -> None:
        await self._shared.pipeline.run(("XTRIM", self._keys(feed)[0], "MINID", "=", f"0-{upto + 1}"))

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        return self._shared.subscriber.watch(self._channel(feed), watcher)

    def _keys(self, feed: str) -> list[str]:
        stream = self._shared.key(f"{{feed:{feed}}}")
        return [stream, f"{stream}:last"]

    def _channel(self, feed: str) -> str:
        return self._shared.key(f"feed:{feed}")


class RedisLeases:
    """A sorted set of names, by the time until which each is held."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._key = shared.key("leases")

    async def renew(self, holder: str, seconds: float) -> None:
        await self._shared.run(RENEW, [self._key], holder, int(seconds * 1000))

    async def release(self, holder: str) -> None:
        await self._shared.pipeline.run(("ZREM", self._key, holder))

    async def holders(self) -> Sequence[str]:
        return sorted(name.decode() for name in await self._shared.run(HOLDERS, [self._key]))


class RedisStore:
    """Two connections: one for commands, and one for hints from the first watch on.

    The server limits how much is kept in all (`maxmemory`, with the policy `noeviction`).
    """

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
        *,
        prefix: str = "pegboard",
    ) -> None:
        limits, server, me = limits or Limits(), RedisServer(url), new_worker()
        self._pipeline = CommandPipeline(server, limits.unwritten_bytes)
        self._subscriber = HintSubscriber(me, server)
        self._shared = shared = _Shared(me, prefix, clock, self._pipeline, self._subscriber)
        self.logs = RedisLogs(limits, shared)
        self.records = RedisRecords(shared)
        self.feeds = RedisFeeds(shared)
        self.leases = RedisLeases(shared)

    async def start(self) -> None:
        await self._pipeline.start()
        self._subscriber.start()

    async def close(self) -> None:
        await self._subscriber.close()
        await self._pipeline.close()


def _ttl(seconds: float | None) -> str | int:
    return "" if seconds is None else max(1, round(seconds * 1000))


def _read_entries(rows: Sequence[Any]) -> tuple[LogEntry, ...]:
    """The entries of a stream, from the server's reply: [id, [field, value, …]]."""
    return tuple(LogEntry(int(number.rpartition(b"-")[2]), fields[1]) for number, fields in rows)
