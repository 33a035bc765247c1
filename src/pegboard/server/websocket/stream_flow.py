"""One stream on a WebSocket, with flow control."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.call import Json
from pegboard.errors import StreamError, ToolError
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.framing import stream_frames
from pegboard.protocol.framing.stream_frames import StreamFailure, StreamMeta
from pegboard.server.http_types import MessageSocket

_BURST: Final = 16
# The memory of a chunk in addition to its bytes; otherwise the number of empty chunks would be unlimited.
_CHUNK_COST: Final = 128


def timestamp() -> str:
    """The current time, in the format of stream messages."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class UnreadBytes:
    """The bytes that tools have not read yet, on all sockets of an endpoint."""

    __slots__ = ("_limits", "held")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @property
    def allowed(self) -> int:
        """How many unread bytes one socket may hold."""
        limits = self._limits
        return limits.unread_bytes if self.held <= limits.all_unread_bytes else limits.window_bytes


class InboundFlow(Struct, eq=False):
    """The chunks that a caller sends on its stream, checked, and kept until the call reads them.

    `binary` is None if the first chunk decides. `weigh` is called with the bytes that are kept (positive) or freed
    (negative). `heard_since` returns since when the socket has been read: a caller is not silent while it is not read.
    A caller with a `window` sends that much, and then as much as `credit` grants.
    """

    meta: StreamMeta
    binary: bool | None
    seconds: float
    weigh: Callable[[int], object]
    heard_since: Callable[[], float]
    credit: Callable[[int], object]
    window: int | None = None
    summary: Json = None
    held: int = 0
    ended: bool = False
    _next: int = 0
    _bytes: int = 0
    _sent: int = 0
    _granted: int = 0
    _freed: int = 0
    _chunks: deque[tuple[Any, int]] = msgspec.field(default_factory=deque)
    _error: ToolError | None = None
    _reader: asyncio.Future[None] | None = None

    @property
    def unread(self) -> int:
        """The number of bytes that the call has not read."""
        return self.held - len(self._chunks) * _CHUNK_COST

    def take(self, index: int, chunk: Any, size: int, *, binary: bool) -> None:
        """Add the next chunk."""
        if self.binary is None:
            self.binary = binary
        if self.ended:
            raise StreamError("Binary data sent after done" if binary else "Text chunk sent after done")
        if binary is not self.binary:
            expected, got = ("binary", "text") if self.binary else ("text", "binary")
            raise StreamError(f"Chunk was expected to be {expected}, got {got}")
        if index != self._next:
            raise StreamError(f"Received chunk {index}, expected {self._next}", {"expected": self._next})
        if self.window is not None and self._sent >= self._granted + self.window:
            raise StreamError("Received more data than was granted", {"window": self.window})
        self._next += 1
        self._sent += size
        self._bytes += size
        total = self.meta.total_size
        if binary and total is not None and self._bytes > total:
            raise StreamError(f"Received more than the {total} announced bytes", {"totalSize": total})
        self._chunks.append((chunk, size))
        self.held += size + _CHUNK_COST
        self.weigh(size + _CHUNK_COST)
        self._wake()

    def finish(self, summary: Json) -> None:
        """The stream is complete."""
        if self.ended:
            raise StreamError("The stream has already ended")
        total = self.meta.total_size
        if self.binary and total is not None and self._bytes != total:
            raise StreamError(f"Received {self._bytes} bytes, but {total} were announced", {"totalSize": total})
        self.summary = summary
        self.ended = True
        self._wake()

    def fail(self, failure: StreamFailure) -> None:
        """The caller has ended the stream with an error."""
        self.ended = True
        self._error = ToolError(f"The caller's stream ended with an error: {failure.message[:500]}")
        self._wake()

    def drop(self) -> None:
        """Drop the chunks that will not be read."""
        self.ended = True
        self._chunks.clear()
        self.weigh(-self.held)
        self.held = 0

    async def read(self) -> Any:
        """The next chunk, or UNSET at the end."""
        if self._reader is not None:
            raise RuntimeError("the stream is already being read by another task")
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.ended:
                return UNSET
            await self._wait()
        chunk, size = self._chunks.popleft()
        self.held -= size + _CHUNK_COST
        self.weigh(-size - _CHUNK_COST)
        if self.window is not None:
            self._free(self.window, size)
        return jsonrpc.decode_json(chunk) if isinstance(chunk, Raw) else chunk

    def _free(self, window: int, size: int) -> None:
        self._freed += size
        # Not for each chunk; a caller that has sent all it may always gets at least half of it back.
        if self._freed * 2 >= window and not self.ended:
            self._granted += self._freed
            self.credit(self._freed)
            self._freed = 0

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        begun, self._reader = loop.time(), loop.create_future()
        try:
            async with asyncio.timeout(self.seconds):
                await self._reader
        except TimeoutError:
            if self._chunks or self.ended or self.heard_since() > begun:
                return
            raise StreamError("Stream timeout", {"timeout": self.seconds}) from None
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class WriteTurns(asyncio.Lock):
    """The turn to write; a released lock looks free although others wait for it, hence the count."""

    waiting = 0


class OutboundFlow(Struct, eq=False):
    """A stream to the caller.

    The streams of a socket hold `turns` while they wait for its peer to catch up, so that they write one after the
    other, a chunk each. A caller with a `credit` is sent no more than that until it grants more.
    """

    id: str
    key: bytes
    binary: bool
    limit: int
    seconds: float
    # None: it has ended.
    socket: MessageSocket | None
    turns: WriteTurns
    credit: int | None = None
    _next: int = 0
    _granted: asyncio.Event | None = None

    async def write(self, chunk: Any) -> None:
        """Send a chunk; splits large ones, so that no message exceeds the limit of its reader."""
        if not self.binary:
            await self._send(stream_frames.encode(chunk))
            return
        view = memoryview(chunk)
        if view.nbytes <= self.limit:
            await self._send(view)
            return
        view = view.cast("B")
        for start in range(0, len(view), self.limit):
            await self._send(view[start : start + self.limit])

    def grant(self, size: int) -> None:
        """The caller grants that many more bytes."""
        if self.credit is not None:
            self.credit += size
            self._wake()

    def finish(self, summary: Json = None) -> None:
        socket = self.forget()
        if socket is not None:
            socket.write(stream_frames.done(self.id, timestamp(), summary))

    def fail(self, message: str, code: int = -32000, data: Json = None) -> None:
        socket = self.forget()
        if socket is not None:
            socket.write(stream_frames.error(self.id, timestamp(), StreamFailure(code, message, data)))

    def forget(self) -> MessageSocket | None:
        """Send nothing more; returns the socket unless the stream had ended."""
        socket, self.socket = self.socket, None
        self._wake()
        return socket

    async def _send(self, chunk: memoryview | bytes) -> None:
        if self.credit is not None and self.credit <= 0:
            await self._wait_for_credit()
        socket, turns = self.socket, self.turns
        if socket is None:
            return
        if not self._next % _BURST:
            # A fast reader would otherwise keep the loop busy, so that other work and its own disconnect have to wait.
            await asyncio.sleep(0)
        if socket.full or turns.waiting:
            turns.waiting += 1
            try:
                # Take the turn before waiting: of many streams that wait for room, only one may use it.
                async with turns:
                    await socket.drain()
                    self._put(chunk)
            finally:
                turns.waiting -= 1
        else:
            self._put(chunk)

    def _put(self, chunk: memoryview | bytes) -> None:
        socket = self.socket
        if socket is None:
            return
        index = self._next
        self._next += 1
        if self.credit is not None:
            self.credit -= len(chunk)
        if self.binary:
            socket.write_bytes(stream_frames.header(self.key, index) + chunk)
        else:
            socket.write(stream_frames.chunk(self.id, timestamp(), index, Raw(chunk)))

    async def _wait_for_credit(self) -> None:
        if self._granted is None:
            self._granted = asyncio.Event()
        while self.credit is not None and self.credit <= 0 and self.socket is not None:
            self._granted.clear()
            try:
                async with asyncio.timeout(self.seconds):
                    await self._granted.wait()
            except TimeoutError:
                raise StreamError("Stream timeout", {"timeout": self.seconds, "stream": self.id}) from None

    def _wake(self) -> None:
        if self._granted is not None:
            self._granted.set()
