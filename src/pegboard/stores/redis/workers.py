"""Heartbeats and inboxes of the processes that share a Redis server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from pegboard.backoff import backoff, jitter
from pegboard.limits import Limits
from pegboard.stores.redis.command_pipeline import CommandPipeline
from pegboard.stores.redis.key_names import KeyNames
from pegboard.stores.redis.redis_connection import RedisConnection, RedisServer, Reply
from pegboard.stores.redis.scripts import BEAT, LIVING, SEND
from pegboard.stores.store import Delivery, Receiver

_log = logging.getLogger("pegboard.stores")

_MAX_BATCH: Final = 100
_WAIT_SECONDS: Final = 5.0


class RedisWorkers:
    """Heartbeats in a sorted set, an inbox as a stream that its owner waits for on a connection of its own."""

    def __init__(self, limits: Limits, key_names: KeyNames, server: RedisServer, pipeline: CommandPipeline) -> None:
        self.me = key_names.me
        self._limits = limits
        self._key_names = key_names
        self._server = server
        self._pipeline = pipeline
        self._lease = int(limits.worker_seconds * 1000)
        self._workers = key_names.key("{workers}")
        self._receiver: Receiver | None = None
        self._heard = b"0"
        self._fetching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        task, self._fetching = self._fetching, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def beat(self) -> None:
        keys = [self._workers, self._inbox(self.me)]
        await self._pipeline.run(BEAT(keys, self._key_names.now(), self.me, self._lease), BEAT)

    async def leave(self) -> None:
        await self._pipeline.run(("ZREM", self._workers, self.me))
        await self._pipeline.run(("DEL", self._inbox(self.me)))

    async def alive(self, worker: str) -> bool:
        return worker in await self.living()

    async def living(self) -> Sequence[str]:
        names = await self._pipeline.run(LIVING([self._workers], self._key_names.now()), LIVING)
        return sorted(name.decode() for name in names)

    async def send(self, worker: str, message: bytes) -> Delivery:
        command = SEND(
            [self._workers, self._inbox(worker)],
            self._key_names.now(),
            worker,
            message,
            self._limits.worker_messages,
            self._lease,
            secrets.token_bytes(8),
        )
        delivery: Delivery = (await self._pipeline.run(command, SEND, len(message))).decode()
        return delivery

    def receive(self, receiver: Receiver) -> Callable[[], None]:
        self._receiver = receiver
        task = asyncio.get_running_loop().create_task(self._fetch(receiver, self._fetching))
        self._fetching = task

        def end() -> None:
            if self._receiver is receiver:
                self._receiver = None
                task.cancel()

        return end

    def _inbox(self, worker: str) -> str:
        return f"{self._workers}:{worker}"

    async def _fetch(self, receiver: Receiver, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            before.cancel()
            await asyncio.wait([before])
        line = self._server.line(patient=True)
        failed = 0
        try:
            while True:
                try:
                    for message in await self._wait(line):
                        _take(receiver, message)
                    failed = 0
                except (*self._server.failures, self._server.refusal) as problem:
                    failed += 1
                    if failed == 1:
                        _log.warning("the inbox of this process cannot be read: %s", problem)
                    await line.disconnect()
                    await asyncio.sleep(jitter(backoff(failed, 0.04, 1.0)))
        finally:
            await line.disconnect()

    async def _wait(self, line: RedisConnection) -> list[bytes]:
        """What has come, once something has or a while is over; what was taken before is forgotten."""
        inbox, milliseconds = self._inbox(self.me), int(_WAIT_SECONDS * 1000)
        answers: list[Reply] = await line.exchange(
            [
                ("XTRIM", inbox, "MINID", "=", _after(self._heard)),
                ("XREAD", "COUNT", _MAX_BATCH, "BLOCK", milliseconds, "STREAMS", inbox, self._heard),
            ],
            within=3 * _WAIT_SECONDS,
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        if not answers[1]:
            return []
        [[_, rows]] = answers[1]
        self._heard = rows[-1][0]
        return [fields[1] for _, fields in rows]


def _take(receiver: Receiver, message: bytes) -> None:
    try:
        receiver(message)
    except Exception:  # noqa: BLE001 — one message that cannot be taken must not stop the next
        _log.exception("a message of another process could not be taken")


def _after(number: bytes) -> bytes:
    """The first id after one of a stream."""
    time, _, place = number.partition(b"-")
    return b"%b-%d" % (time, int(place or 0) + 1)
