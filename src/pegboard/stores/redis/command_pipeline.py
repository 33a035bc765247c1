"""Sends the commands of one process over one connection, batched.

Theory of operation. A round trip costs much more than a command. So there is one round trip at a time, and commands
that arrive meanwhile are sent together in the next. If the connection breaks, it is unknown which commands the server
has executed: they are sent again, marked as repeated, and each must be safe to repeat.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha1
from typing import Final

from msgspec import Struct

from pegboard.background_tasks import end_tasks
from pegboard.backoff import backoff, jitter
from pegboard.errors import StoreDown
from pegboard.stores.redis.redis_connection import Command, RedisServer, Reply

_log = logging.getLogger("pegboard.stores")

_MAX_BATCH: Final = 128
_COMMAND_SECONDS: Final = 5.0
AGAIN: Final = b"again"
"""The last argument of a script that is sent again; it is empty the first time."""


class Script:
    """A Lua script that the server runs as one atomic step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._name = sha1(text.encode(), usedforsecurity=False).hexdigest()

    def followed_by(self, text: str) -> Script:
        """A script that begins with this one."""
        return Script(self.text + text)

    def __call__(self, keys: Command, *arguments: str | bytes | int) -> Command:
        return ("EVALSHA", self._name, len(keys), *keys, *arguments)


class _QueuedCommand(Struct, eq=False):
    command: Command
    weight: int
    until: float
    future: asyncio.Future[Reply]
    script: Script | None
    sent: bool = False

    def words(self) -> Command:
        """The command to send now; the last argument of a script says whether it may have run before."""
        return (*self.command, AGAIN if self.sent else b"") if self.script is not None else self.command


class CommandPipeline:
    """Sends commands in the order in which they were submitted."""

    def __init__(self, server: RedisServer, limit: int) -> None:
        self._server = server
        self._limit = limit
        self._line = server.line()
        self._waiting: list[_QueuedCommand] = []
        self._weight = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._server.check(self._line)
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Wait for pending commands, and disconnect."""
        task, self._task = self._task, None
        if task is not None:
            under_way = [command.future for command in self._waiting if not command.future.done()]
            if under_way:
                await asyncio.wait(under_way, timeout=_COMMAND_SECONDS)
            await end_tasks(task)
        await self._line.disconnect()

    async def run(self, command: Command, script: Script | None = None, weight: int = 0) -> Reply:
        """Send a command and return the reply. The last argument of a script says whether it was sent before."""
        while self._weight and self._weight + weight > self._limit:
            self._room.clear()
            await self._room.wait()
        if self._task is None:
            raise StoreDown("The store is not open")
        loop = asyncio.get_running_loop()
        waiting = _QueuedCommand(command, weight, loop.time() + _COMMAND_SECONDS, loop.create_future(), script)
        self._weight += weight
        self._waiting.append(waiting)
        self._some.set()
        return await waiting.future

    async def _work(self) -> None:
        failed = 0
        while True:
            await self._some.wait()
            trip = self._waiting[:_MAX_BATCH]
            try:
                answers = await self._line.exchange([command.words() for command in trip])
            except self._server.failures as problem:
                failed += 1
                if failed == 1:
                    _log.warning("store %s does not respond: %s", self._server.shown, problem)
                await self._line.disconnect()
                self._drop_expired(trip)
                await asyncio.sleep(jitter(backoff(failed, 0.04, 1.0)))
                continue
            if failed:
                _log.warning("store %s responds again", self._server.shown)
                failed = 0
            await self._resolve(trip, answers)

    def _drop_expired(self, trip: list[_QueuedCommand]) -> None:
        """Fail the commands whose time is over; the others are sent again."""
        now = asyncio.get_running_loop().time()
        for command in trip:
            command.sent = True
        given_up = [command for command in self._waiting if command.until <= now or command.future.done()]
        self._go_on([command for command in self._waiting if command.until > now and not command.future.done()])
        for command in given_up:
            self._end(command, StoreDown("The store does not respond; try again later", retry_after=5))

    async def _resolve(self, trip: list[_QueuedCommand], answers: list[Reply]) -> None:
        missing = [
            command.script.text
            for command, answer in zip(trip, answers, strict=True)
            if command.script is not None and _is_unknown(answer)
        ]
        if missing:
            try:
                await self._line.exchange([("SCRIPT", "LOAD", text) for text in dict.fromkeys(missing)])
            except self._server.failures:
                # The next round trip fails in the same way and is retried.
                pass
        again = [command for command, answer in zip(trip, answers, strict=True) if _is_unknown(answer)]
        self._go_on(again + self._waiting[len(trip) :])
        for command, answer in zip(trip, answers, strict=True):
            if not isinstance(answer, Exception):
                self._end(command, answer)
            elif not _is_unknown(answer):
                _log.error("store %s rejected a command: %s", self._server.shown, answer)
                self._end(command, StoreDown("The store cannot be written; try again later", retry_after=5))

    def _go_on(self, waiting: list[_QueuedCommand]) -> None:
        self._waiting = waiting
        if not waiting:
            self._some.clear()

    def _end(self, command: _QueuedCommand, answer: Reply) -> None:
        self._weight -= command.weight
        self._room.set()
        if command.future.done():
            return
        if isinstance(answer, Exception):
            command.future.set_exception(answer)
        else:
            command.future.set_result(answer)


def _is_unknown(answer: Reply) -> bool:
    """Whether the server does not have the script."""
    # The library cuts the code off the message and puts it into the name of the class.
    return type(answer).__name__ == "NoScriptError"
