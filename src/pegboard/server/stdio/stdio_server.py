"""MCP over stdin and stdout: one message per line.

The protocol takes the process's real stdin and stdout for itself; output of tools, libraries and child processes goes
to stderr, and stdin is empty for them.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Mapping
from typing import BinaryIO, Final, cast

from pegboard.auth.local_user import local_user
from pegboard.call import Handler, Json
from pegboard.errors import InvalidRequest, SetupError
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import has_line_break
from pegboard.server.access import Access
from pegboard.server.exchange.calls_in_flight import announce_wait
from pegboard.server.exchange.conversation import Conversation
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.sessions.session import OnSessionEnd

_CHUNK: Final = 64 * 1024
_CLEANUP_SECONDS: Final = 1.0

_LAST_WORDS_SECONDS: Final = 1.0


class LineWriter(asyncio.BaseProtocol):
    """Writes whole lines to a pipe; a fast writer waits until the reader has caught up."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop, door: StdioServer) -> None:
        self._limits = limits
        self._loop = loop
        self._door = door
        self._transport: asyncio.WriteTransport | None = None
        self._file: BinaryIO | None = None
        self._paused: asyncio.Future[None] | None = None
        self._end: asyncio.Future[None] = loop.create_future()

    @property
    def lost(self) -> bool:
        """Whether the reader is gone for good."""
        return self._end.done()

    @property
    def full(self) -> bool:
        """Whether the reader lags behind."""
        return self._paused is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end.set_result(None)
        self.resume_writing()
        # A peer that no longer reads our responses has hung up.
        self._door.connection_lost(exc)

    def pause_writing(self) -> None:
        self._paused = self._loop.create_future()
        self._door.resume_if_room()

    def resume_writing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set_result(None)
            self._door.resume_if_room()

    def write_to(self, file: BinaryIO) -> None:
        """Write to a file, which the loop cannot watch and which never blocks for long."""
        self._file = file

    def write(self, message: bytes) -> None:
        if has_line_break(message):
            raise ValueError("A message on stdout must be one line")
        if self._transport is not None:
            self._transport.write(message + b"\n")
        elif self._file is not None:
            self._file.write(message + b"\n")

    async def drain(self) -> None:
        if self._paused is not None:
            await asyncio.shield(self._paused)

    async def close(self) -> None:
        """Let the peer read the rest, up to a time limit, and close."""
        if self._file is not None:
            self._file.close()
        if self._transport is None:
            return
        self._transport.close()
        await asyncio.wait({self._end}, timeout=_LAST_WORDS_SECONDS)
        if self._transport is not None:
            self._transport.abort()


class StdioServer(Conversation, asyncio.Protocol):
    """Serves one peer on a byte stream in each direction; `closed` is done once the peer has disconnected."""

    def __init__(
        self,
        handler: Handler,
        info: Mapping[str, Json],
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        on_session_end: OnSessionEnd | None = None,
    ) -> None:
        self.line = LineWriter(limits, loop, self)
        followers = Subscribers(limits.subscribers)
        service = Service(handler, info, limits, followers, "stdio", on_session_end=on_session_end)
        super().__init__(service, self.line, loop, Access(local_user()))
        self._rest = bytearray()
        self._skipping = False
        self._peer_closed = False
        self._reader: asyncio.ReadTransport | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.closed: asyncio.Future[None] = loop.create_future()

    # -- reading -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._reader = cast("asyncio.ReadTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer_closed = True
        self.resume_if_room()

    def eof_received(self) -> bool:
        self._waiting.append(bytes(self._rest))
        self._rest.clear()
        return False

    def data_received(self, data: bytes) -> None:
        cut = data.rfind(b"\n")
        if cut >= 0:
            lines = (bytes(self._rest) + data[:cut] if self._rest else data[:cut]).split(b"\n")
            self._rest.clear()
            # The first part is the rest of a line that was rejected for its length.
            self._waiting.extend(lines[1:] if self._skipping else lines)
            self._skipping = False
        self._rest += data[cut + 1 :]
        if len(self._rest) > self._limits.line_bytes:
            self._rest.clear()
            if not self._skipping:
                self._skipping = True
                self._refuse(None, InvalidRequest(f"A line must have at most {self._limits.line_bytes} bytes"))
        self.resume_if_room()

    def feed(self, file: BinaryIO) -> None:
        """Read a file instead of a pipe: the loop cannot watch it, and all of it is there already."""
        self._feeder = self._loop.create_task(self._feed(file))

    async def _feed(self, file: BinaryIO) -> None:
        with file:
            while chunk := file.read(_CHUNK):
                self.data_received(chunk)
                while self._waiting:
                    self._room = self._loop.create_future()
                    await self._room
        self.eof_received()
        self.connection_lost(None)

    # -- room --------------------------------------------------------------------------------------------------------

    def _hold(self, paused: bool) -> None:
        if not paused and self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._reader is None or self._reader.is_closing():
            return
        if paused:
            self._reader.pause_reading()
        else:
            self._reader.resume_reading()

    def _became_idle(self) -> None:
        if self._peer_closed and not self.closed.done():
            self.closed.set_result(None)

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Reject new calls; let running ones finish, and cancel the rest with a response when the time is up."""
        self._draining = True
        self.following.end()
        announce_wait((task for task, _ in self.calls.values()), 0 if self.line.lost else seconds)
        ended = asyncio.ensure_future(self._wait(0 if self.line.lost else seconds))
        hurry = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({ended, hurry}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurry.cancel()
        for task, exchange in self.calls.values():
            exchange.closing = True
            task.cancel()
        await self._wait(_CLEANUP_SECONDS)

    async def _wait(self, seconds: float) -> None:
        running = [task for task, _ in self.calls.values()]
        if running:
            await asyncio.wait(running, timeout=seconds)


def claim_pipes() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol: move them to new descriptors, and redirect the standard ones."""
    try:
        source, target = os.dup(0), os.dup(1)
    except OSError:
        raise SetupError("stdin or stdout is closed; use --http to serve HTTP") from None
    if sys.stdout is not None:
        sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return source, target


def _can_be_watched(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def open_stdio(
    handler: Handler,
    info: Mapping[str, Json],
    limits: Limits,
    source: int,
    target: int,
    on_session_end: OnSessionEnd | None = None,
) -> StdioServer:
    """Serve the peer on two descriptors."""
    loop = asyncio.get_running_loop()
    door = StdioServer(handler, info, limits, loop, on_session_end)
    if _can_be_watched(target):
        await loop.connect_write_pipe(lambda: door.line, os.fdopen(target, "wb", buffering=0))
    else:
        door.line.write_to(os.fdopen(target, "wb"))
    if _can_be_watched(source):
        await loop.connect_read_pipe(lambda: door, os.fdopen(source, "rb", buffering=0))
    else:
        door.feed(os.fdopen(source, "rb"))
    return door
