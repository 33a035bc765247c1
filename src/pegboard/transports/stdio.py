"""MCP over a pair of pipes: one message a line, both eras, many calls in flight.

The protocol takes the process's real stdin and stdout for itself; whatever a tool, a library or a child process prints
goes to stderr, and whatever reads stdin finds it empty.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Callable, Mapping
from io import RawIOBase
from typing import cast


from msgspec import UNSET

from pegboard.call import Call, Caller, Handler, Json, RequestId
from pegboard.errors import InvalidRequest, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import read_handshake
from pegboard.protocol.params import read_params
from pegboard.protocol.tongue import tongues
from pegboard.protocol.versions import BATCHES, MODERN
from pegboard.transports import turns
from pegboard.transports.channels import LineExchange, conduct
from pegboard.transports.incoming import (
    ModernCallers,
    cancelled_id,
    check_method,
    is_modern,
    make_call,
    read_token,
    subject,
)

_log = logging.getLogger("pegboard.stdio")


class LineDoor(asyncio.Protocol):
    """Serves one peer on a byte stream in each direction; `closed` is done once the peer has hung up."""

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._loop = loop
        self._tongues = tongues(info)
        self._callers = ModernCallers("stdio")
        self._legacy: Caller | None = None
        self._rest = bytearray()
        self._skipping = False
        self._paused = False
        self._reader: asyncio.ReadTransport | None = None
        self.line = LineWriter(limits, loop, self.balance)
        self.calls: dict[RequestId, asyncio.Task[None]] = {}
        self.closed: asyncio.Future[None] = loop.create_future()

    # -- reading -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._reader = cast("asyncio.ReadTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def eof_received(self) -> bool:
        if self._rest.strip():
            self.take(bytes(self._rest))
        return False

    def data_received(self, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if cut:
            lines = (bytes(self._rest) + data[:cut] if self._rest else data[:cut]).split(b"\n")
            self._rest.clear()
            # The first is the tail of a line that was refused for its length.
            for line in lines[1:] if self._skipping else lines:
                self.take(line)
            self._skipping = False
        self._rest += data[cut:]
        if len(self._rest) > self._limits.line_bytes:
            self._rest.clear()
            if not self._skipping:
                self._skipping = True
                self._refuse(None, InvalidRequest(f"A line of more than {self._limits.line_bytes} bytes is not read"))

    def take(self, line: bytes) -> None:
        """Serve one line; whatever is wrong with it is answered, and the next is read."""
        line = line.strip()
        if not line:
            return
        try:
            if jsonrpc.is_batch(line):
                self._take_batch(line)
            else:
                self._take_message(line)
        except Refusal as refusal:
            self._refuse(refusal.request_id, refusal)

    # -- serving -----------------------------------------------------------------------------------------------------

    def _take_batch(self, line: bytes) -> None:
        if self._legacy is None or self._legacy.version not in BATCHES:
            raise InvalidRequest("This revision has no batches: send one message a line")
        # Each answer is a message of its own on a shared line: a batch here is its messages one after the other.
        for item in jsonrpc.read_batch(line, self._limits):
            self.take(item)

    def _take_message(self, line: bytes) -> None:
        message = jsonrpc.read(line, self._limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            return
        if request_id is UNSET:
            self._take_notice(method, message)
            return
        try:
            if request_id in self.calls:
                raise InvalidRequest(f"The id {request_id!r} is already in flight: use another one")
            call = self._make_call(line, message, method, request_id)
        except Refusal as refusal:
            refusal.request_id = request_id
            raise
        if call is not None:
            self._start(call, request_id)

    def _make_call(self, line: bytes, message: Message, method: str, request_id: RequestId) -> Call | None:
        params = read_params(line, message)
        if is_modern(params):
            caller, token = self._callers.read(params, None)
        elif method == "initialize":
            return self._initialize(message, request_id)
        else:
            if method == "ping":
                self.line.write(jsonrpc.answer(request_id, b"{}"))
                return None
            if self._legacy is None:
                raise InvalidRequest(
                    f"Send initialize first, or give params._meta the {MODERN} envelope (protocolVersion and clientCapabilities)"
                )
            caller, token = self._legacy, read_token(params)
        check_method(method, caller.version)
        about = subject(method, params)
        exchange = LineExchange(self.line, self._tongues[caller.version], request_id)
        return make_call(method, request_id, about, message, params, caller, exchange, token)

    def _initialize(self, message: Message, request_id: RequestId) -> Call:
        handshake = read_handshake(bytes(message.params))
        self._legacy = Caller(
            version=handshake.version,
            transport="stdio",
            client=handshake.client,
            capabilities=handshake.capabilities,
        )
        exchange = LineExchange(self.line, self._tongues[handshake.version], request_id)
        return Call(method="server/discover", caller=self._legacy, channel=exchange, id=request_id)

    def _start(self, call: Call, request_id: RequestId) -> None:
        exchange = call.channel
        assert isinstance(exchange, LineExchange)
        task = turns.start(self._loop, conduct(self._handler, call, exchange))
        if not task.done():
            self.calls[request_id] = task
            task.add_done_callback(lambda _: self._ended(request_id))
            self.balance()

    def _ended(self, request_id: RequestId) -> None:
        del self.calls[request_id]
        self.balance()

    def balance(self) -> None:
        """Read on only while there is room for more calls and the peer takes our answers."""
        full = self.line.full or len(self.calls) >= self._limits.calls_per_caller
        if full != self._paused and self._reader is not None and not self._reader.is_closing():
            self._paused = full
            if full:
                self._reader.pause_reading()
            else:
                self._reader.resume_reading()

    def _take_notice(self, method: str, message: Message) -> None:
        if method == "notifications/cancelled":
            request_id = cancelled_id(message)
            task = None if request_id is None else self.calls.get(request_id)
            if task is not None:
                task.cancel()

    def _refuse(self, request_id: RequestId | None, refusal: Refusal) -> None:
        self.line.write(jsonrpc.refusal(request_id, refusal))

    async def drain(self, seconds: float) -> None:
        """Let the calls that run come to their answers, then cancel the rest."""
        if self.calls:
            await asyncio.wait(list(self.calls.values()), timeout=seconds)
        for task in list(self.calls.values()):
            task.cancel()
        if self.calls:
            await asyncio.wait(list(self.calls.values()), timeout=1.0)


class LineWriter(asyncio.BaseProtocol):
    """Writes whole lines to a pipe; one who writes much waits until the reader has caught up."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._limits = limits
        self._loop = loop
        self._changed = changed
        self._transport: asyncio.WriteTransport | None = None
        self._file: RawIOBase | None = None
        self._paused: asyncio.Future[None] | None = None

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
        self.resume_writing()

    def pause_writing(self) -> None:
        self._paused = self._loop.create_future()
        self._changed()

    def resume_writing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set_result(None)
            self._changed()

    def write_to(self, file: RawIOBase) -> None:
        """Write to a file, which the loop cannot watch and which never makes us wait."""
        self._file = file

    def write(self, message: bytes) -> None:
        if self._transport is not None:
            self._transport.write(message + b"\n")
        elif self._file is not None:
            self._file.write(message + b"\n")

    async def drain(self) -> None:
        if self._paused is not None:
            await asyncio.shield(self._paused)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def claim_pipes() -> tuple[int, int]:
    """Take stdin and stdout for the protocol: new descriptors for it, stderr and nothing for everybody else."""
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, target


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


async def open_door(handler: Handler, info: Mapping[str, Json], limits: Limits, source: int, target: int) -> LineDoor:
    """Serve the peer at the other end of two descriptors."""
    loop = asyncio.get_running_loop()
    door = LineDoor(handler, info, limits, loop)
    sink = os.fdopen(target, "wb", buffering=0)
    if _is_file(target):
        door.line.write_to(sink)
    else:
        await loop.connect_write_pipe(lambda: door.line, sink)
    if _is_file(source):
        # The loop cannot watch a file; it is all there already.
        with os.fdopen(source, "rb") as file:
            while chunk := file.read(64 * 1024):
                door.data_received(chunk)
                await door.line.drain()
        door.eof_received()
        door.connection_lost(None)
    else:
        await loop.connect_read_pipe(lambda: door, os.fdopen(source, "rb", buffering=0))
    return door
