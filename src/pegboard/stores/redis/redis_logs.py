"""Logs as Redis streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pegboard.limits import Limits
from pegboard.stores.identifiers import digest
from pegboard.stores.redis.command_pipeline import CommandPipeline, Script
from pegboard.stores.redis.hint_subscriber import HintSubscriber
from pegboard.stores.redis.key_names import KeyNames, read_entries
from pegboard.stores.redis.scripts import APPEND, DROP, OPEN, READ, RELEASE, TOUCH
from pegboard.stores.store import LogName, LogPage, Watcher

_LAST_SEQ: Final = 2**53


class RedisLogs:
    """Every change of a log is one script, so that its numbers, limits and sizes stay consistent."""

    def __init__(
        self, limits: Limits, key_names: KeyNames, pipeline: CommandPipeline, subscriber: HintSubscriber
    ) -> None:
        self._key_names = key_names
        self._pipeline = pipeline
        self._subscriber = subscriber
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
            self._subscriber.notify_local(self._channel(log))
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
        return LogPage(read_entries(rows[:limit]), last, len(rows) > limit, bool(ended), about)

    async def drop(self, session: str) -> None:
        self._tell(session, await self._run(DROP, session))

    async def touch(self, session: str) -> None:
        self._tell(session, await self._run(TOUCH, session))

    def watch(self, log: LogName, watcher: Watcher) -> Callable[[], None]:
        return self._subscriber.watch(self._channel(log), watcher)

    def _channel(self, log: LogName) -> str:
        return self._key_names.channel("log", f"{digest(log[0])}:{log[1]}")

    def _tell(self, session: str, removed: Iterable[bytes] = ()) -> None:
        for name in removed:
            self._subscriber.notify_local(self._channel((session, name.decode())))

    async def _run(self, script: Script, session: str, *arguments: str | bytes | int, weight: int = 0) -> Any:
        hidden = digest(session)
        key_names = self._key_names
        return await self._pipeline.run(
            script(
                [key_names.key(f"{{{hidden}}}")],
                key_names.now(),
                key_names.me,
                key_names.channel("log", hidden + ":"),
                *self._times,
                *arguments,
            ),
            script,
            weight,
        )
