"""Writes whole lines to a pipe or a file."""

from __future__ import annotations

import asyncio
from typing import BinaryIO, Final, Protocol, cast

from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import has_line_break

_LAST_WORDS_SECONDS: Final = 1.0


class LineReader(Protocol):
    """The reader of the other direction: it pauses until its responses have been read."""

    def resume_if_room(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class LineWriter(asyncio.BaseProtocol):
    """Writes whole lines to a pipe; a fast writer waits until the reader has caught up."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop, door: LineReader) -> None:
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
