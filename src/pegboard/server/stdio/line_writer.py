"""Writes whole lines to a pipe or a file."""

from __future__ import annotations

import asyncio
from typing import BinaryIO, Final, Protocol, cast

from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import has_line_break

_LAST_WORDS_SECONDS: Final = 1.0


class LineReader(Protocol):
    """Who reads the other direction: it reads on as far as what it causes to be written is taken."""

    def resume_if_room(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class LineWriter(asyncio.BaseProtocol):
    """Writes whole lines to a pipe; one who writes much waits until the reader has caught up."""

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
        """Whether nobody will ever read what is written."""
        return self._end.done()

    @property
    def full(self) -> bool:
        """Whether the reader is behind."""
        return self._paused is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end.set_result(None)
        self.resume_writing()
        # Nobody reads our answers any more: that is hanging up too.
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
        """Write to a file, which the loop cannot watch and which never makes us wait."""
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
        """Let the peer read what it has not read yet, within a bound, and hang up."""
        if self._file is not None:
            self._file.close()
        if self._transport is None:
            return
        self._transport.close()
        await asyncio.wait({self._end}, timeout=_LAST_WORDS_SECONDS)
        if self._transport is not None:
            self._transport.abort()
