"""What a running tool may ask and say: progress and chunks to its caller, who that is, whether it still waits."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from threading import get_ident
from typing import Any, TypeVar

from pegboard.call import Call, Caller, Json, Notice, OfTheCall
from pegboard.errors import ToolError

T = TypeVar("T")

# One for all tokens: it is held for a moment, and few tokens are ever watched or cancelled.
_watching = threading.Lock()


class CancellationToken(OfTheCall):
    """Says whether the caller has given up; a tool in a thread looks at it, since a thread cannot be stopped."""

    __slots__ = ("_watchers", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._watchers: tuple[Callable[[], object], ...] = ()

    def cancel(self) -> None:
        with _watching:
            self.cancelled = True
            watchers = self._watchers
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Be called, in whichever thread cancels, at once if that has happened; returns what ends the watch."""
        with _watching:
            self._watchers += (watcher,)
            late = self.cancelled
        if late:
            watcher()

        def end() -> None:
            with _watching:
                self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return end

    def wait(self, seconds: float) -> bool:
        """Sleep in a thread, but no longer than the caller waits; True once it has given up."""
        given_up = threading.Event()
        end = self.watch(given_up.set)
        try:
            return given_up.wait(seconds)
        finally:
            end()


class _Settled:
    """An awaitable that has been waited for already: what a thread gets back."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self._value


_DONE = _Settled(None)


class Context(OfTheCall):
    """One call as its tool sees it.

    The methods are awaited in a coroutine. In a synchronous tool, which runs in a thread, the same calls block until
    they are done and need no await.
    """

    __slots__ = ("_call", "_loop", "_reached", "_thread", "_token")

    def __init__(self, call: Call, token: CancellationToken, loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self._token = token
        self._loop = loop
        self._thread = get_ident()
        self._reached: float | None = None

    @property
    def caller(self) -> Caller:
        """Who calls: client, capabilities, principal, session, revision and transport."""
        return self._call.caller

    @property
    def client(self) -> Mapping[str, Json]:
        """What the client says it is; self-reported, for display only."""
        return self._call.caller.client

    @property
    def request_id(self) -> str | int | None:
        return self._call.id

    @property
    def cancelled(self) -> bool:
        """Whether the caller has given up on this call."""
        return self._token.cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Tell the caller how far the work is; nothing is sent to one that did not ask for it."""
        if get_ident() == self._thread:
            return self._tell(done, total, message)
        return self._here_or_there(self._progress(done, total, message))

    async def _progress(self, done: float, total: float | None, message: str | None) -> None:
        await self._tell(done, total, message)

    def _tell(self, done: float, total: float | None, message: str | None) -> Awaitable[None]:
        call, reached = self._call, self._reached
        # "The progress value MUST increase with each notification" (Progress): one that does not is left out.
        if call.token is None or (reached is not None and done <= reached):
            return _DONE
        self._reached = done
        params: dict[str, Json] = {"progressToken": call.token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return call.channel.emit(Notice("notifications/progress", params))

    def _here_or_there(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await on the loop; from another thread, have the loop do it and wait."""
        if get_ident() == self._thread:
            return work
        return _Settled(asyncio.run_coroutine_threadsafe(work, self._loop).result())


class ToolConnector(OfTheCall):
    """Hands a tool's output to its caller piece by piece, before the result; like Context, it blocks in a thread.

    On HTTP and stdio a piece of text becomes a progress notice, for callers that asked for progress; what the tool
    returns is still the whole result. These transports have no binary streams, which need `/ws`: there, bytes that
    are no text are refused.
    """

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def closed(self) -> bool:
        """Whether nobody reads any more."""
        return self.context.cancelled

    def write(self, chunk: str | bytes) -> Awaitable[None]:
        """Send one piece; waits only while the caller reads too slowly, and sends nothing once it has left."""
        if isinstance(chunk, bytes):
            try:
                chunk = chunk.decode("utf-8")
            except UnicodeDecodeError as problem:
                raise ToolError("This connection carries text only, and the tool streams bytes") from problem
        return self.context._here_or_there(self._write(chunk))

    async def _write(self, text: str) -> None:
        if not self.closed:
            await tell_step(self.context, text)


def tell_step(context: Context, message: str) -> Awaitable[None]:
    """Tell the caller that the work has come one step further than it last heard, and what the step was."""
    reached = context._reached
    return context.progress(1 if reached is None else math.floor(reached) + 1, None, message)
