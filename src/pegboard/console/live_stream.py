"""The stream of events of one open console: new calls, several at a time, and the state of the servers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from pegboard.auth.principal import Principal
from pegboard.call import Json
from pegboard.console.console_subject import ConsoleSubject
from pegboard.errors import StoreDown
from pegboard.protocol.framing import sse
from pegboard.server.exchange.exchanges import STREAM
from pegboard.server.http_types import Sink

SEND_SECONDS: Final = 0.1
"""How long calls are collected before they are sent together."""
STATE_SECONDS: Final = 1.0
CHECK_SECONDS: Final = 5.0
"""How long a page may follow after its person has signed out."""
MAX_SENT: Final = 500
"""How many new calls one event lists."""
MAX_SHOWN: Final = 2000
"""How many past calls a page begins with."""

_encode = msgspec.json.Encoder().encode


class LiveStream:
    """Sends what happens until the page is closed."""

    def __init__(
        self, subject: ConsoleSubject, sink: Sink, principal: Principal, is_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._subject = subject
        self._principal = principal
        self._is_allowed = is_allowed
        # Approvals may have changed since the page was notified.
        self._inbox_changed = True
        self._inboxes = 0
        self._sink = sink
        self._called = asyncio.Event()
        self._state = b""

    async def run(self, after: int) -> None:
        """Begin after this call; with 0, with the calls that are still kept. Ends when the person signs out."""
        history = self._subject.history
        self._sink.start(200, STREAM)
        task = asyncio.current_task()
        if task is not None:
            self._sink.on_gone(task.cancel)
        approvals = self._subject.served.approvals
        leave, leave_approvals = history.watch(self._called.set), approvals.watch(self._note_approvals)
        check_at = time.monotonic() + CHECK_SECONDS
        try:
            while True:
                if time.monotonic() >= check_at:
                    if not await self._is_allowed():
                        return
                    check_at = time.monotonic() + CHECK_SECONDS
                self._called.clear()
                newer = await history.since(after, MAX_SENT) if after else await history.latest(MAX_SHOWN)
                if newer:
                    after = newer[-1].number
                    await self._send("calls", [kept.summary() for kept in newer])
                if len(newer) >= MAX_SENT:
                    self._called.set()
                await self._send_state()
                if self._inbox_changed:
                    self._inbox_changed = False
                    self._inboxes += 1
                    waiting = await approvals.open_for(self._principal)
                    await self._send("inbox", {"number": self._inboxes, "open": len(waiting)})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STATE_SECONDS):
                        await self._called.wait()
                await asyncio.sleep(SEND_SECONDS)
        except (ConnectionError, StoreDown):
            return
        finally:
            leave()
            leave_approvals()
            self._sink.end()

    def _note_approvals(self) -> None:
        self._inbox_changed = True
        self._called.set()

    async def _send_state(self) -> None:
        state = _encode(self._subject.overview())
        if state != self._state:
            self._state = state
            await self._write(sse.event(state, name="state"))
        else:
            await self._write(sse.KEEP_ALIVE)

    async def _send(self, name: str, value: Json) -> None:
        await self._write(sse.event(_encode(value), name=name))

    async def _write(self, chunk: bytes) -> None:
        if not self._sink.write(chunk):
            await self._sink.drain()
