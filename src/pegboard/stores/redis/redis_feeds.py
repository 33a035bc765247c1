"""Feeds as Redis streams."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.hint_subscriber import HintSubscriber
from pegboard.stores.redis.key_names import KeyNames, read_entries
from pegboard.stores.redis.scripts import PUBLISH, READ_FEED
from pegboard.stores.store import FEED_SECONDS, FeedPage, Watcher


class RedisFeeds:
    """A stream for each feed, and a key with its last number, which is kept when entries are trimmed."""

    def __init__(self, key_names: KeyNames, pipeline: CommandPipeline, subscriber: HintSubscriber) -> None:
        self._key_names = key_names
        self._pipeline = pipeline
        self._subscriber = subscriber

    async def publish(self, feed: str, data: bytes, *, keep: int, holder: str | None = None) -> int | None:
        keys, channel = self._key_names, self._channel(feed)
        command = PUBLISH(
            [*self._keys(feed), keys.leases],
            keys.now(),
            data,
            keep,
            int(FEED_SECONDS * 1000),
            channel,
            keys.me,
            secrets.token_bytes(8),
            holder or "",
        )
        number: int = await self._pipeline.run(command, PUBLISH, len(data))
        self._subscriber.notify_local(channel)
        return number or None

    async def read(self, feed: str, after: int, limit: int) -> FeedPage:
        last, lost, rows = await self._pipeline.run(READ_FEED(self._keys(feed), after, limit), READ_FEED)
        entries = read_entries(rows)
        return FeedPage(entries, last, bool(entries) and entries[-1].seq < last, bool(lost))

    async def trim(self, feed: str, upto: int) -> None:
        await self._pipeline.run(("XTRIM", self._keys(feed)[0], "MINID", "=", f"0-{upto + 1}"))

    def watch(self, feed: str, watcher: Watcher) -> Callable[[], None]:
        return self._subscriber.watch(self._channel(feed), watcher)

    def _keys(self, feed: str) -> list[str]:
        stream = self._key_names.key(f"{{feed:{feed}}}")
        return [stream, f"{stream}:last"]

    def _channel(self, feed: str) -> str:
        return self._key_names.channel("feed", feed)
