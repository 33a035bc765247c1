"""MCP over a pair of pipes: one message a line, both eras, many calls in flight.

The protocol takes the process's real stdin and stdout for itself; whatever a tool, a library or a child process prints
goes to stderr, and whatever reads stdin finds it empty.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
import sys
from collections import deque
from collections.abc import Mapping
from typing import BinaryIO, Final, cast

from msgspec import UNSET

from pegboard.call import Call, Caller, Handler, Json, RequestId
from pegboard.errors import InternalFailure, InvalidRequest, Refusal, SetupError
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import Message
from pegboard.protocol.legacy import read_handshake
from pegboard.protocol.modern import Modern
from pegboard.protocol.params import Params, read_params
from pegboard.protocol.tongue import legacy_tongues
from pegboard.protocol.versions import BATCHES, MODERN, UNASKED_LOG_LEVEL
from pegboard.sessions.session import Session
from pegboard.transports import turns
from pegboard.transports.channels import LineExchange, conduct, shutting_down
from pegboard.transports.following import LISTEN, LineFollowing
from pegboard.transports.incoming import (
    ModernCallers,
    cancelled_id,
    check_method,
    is_modern,
    make_call,
    read_token,
    subject,
)
from pegboard.transports.legacy_exchange import LegacyLineExchange
from pegboard.transports.lines import LineWriter
from pegboard.transports.shortcut import CALL, PlainCall, Shortcut
from pegboard.transports.wishes import AT_ONCE, SUBSCRIBE, read_uri, settle_at_once, subscribing

_log = logging.getLogger("pegboard.stdio")

_CHUNK: Final = 64 * 1024
_LAST_WORDS_SECONDS: Final = 1.0


class LineDoor(asyncio.Protocol):
    """Serves one peer on a byte stream in each direction; `closed` is done once the peer has hung up.

    Lines that came are served while there is room for more calls and the peer takes our answers; until there is room
    again they wait, and nothing more is read.
    """

    def __init__(
        self, handler: Handler, info: Mapping[str, Json], limits: Limits, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._loop = loop
        self._legacy_tongues = legacy_tongues(info)
        self._modern = Modern(info)
        self._callers = ModernCallers("stdio")
        self._shortcut = Shortcut(limits, self._callers)
        self._legacy: Session | None = None
        self._rest = bytearray()
        self._skipping = False
        self._lines: deque[bytes] = deque()
        self._serving = False
        self._paused = False
        self._draining = False
        self._hung_up = False
        self._reader: asyncio.ReadTransport | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.line = LineWriter(limits, loop, self)
        self.calls: dict[RequestId, tuple[asyncio.Task[None], LineExchange]] = {}
        self.following = LineFollowing(handler, self.line, limits.followers)
        self.closed: asyncio.Future[None] = loop.create_future()

    # -- reading -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._reader = cast("asyncio.ReadTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up = True
        self.balance()

    def eof_received(self) -> bool:
        self._lines.append(bytes(self._rest))
        self._rest.clear()
        return False

    def data_received(self, data: bytes) -> None:
        cut = data.rfind(b"\n")
        if cut >= 0:
            lines = (bytes(self._rest) + data[:cut] if self._rest else data[:cut]).split(b"\n")
            self._rest.clear()
            # The first is the tail of a line that was refused for its length.
            self._lines.extend(lines[1:] if self._skipping else lines)
            self._skipping = False
        self._rest += data[cut + 1 :]
        if len(self._rest) > self._limits.line_bytes:
            self._rest.clear()
            if not self._skipping:
                self._skipping = True
                self._refuse(None, InvalidRequest(f"A line of more than {self._limits.line_bytes} bytes is not read"))
        self.balance()

    def feed(self, file: BinaryIO) -> None:
        """Read a file instead of a pipe: the loop cannot watch it, and it is all there already."""
        self._feeder = self._loop.create_task(self._feed(file))

    async def _feed(self, file: BinaryIO) -> None:
        with file:
            while chunk := file.read(_CHUNK):
                self.data_received(chunk)
                while self._lines:
                    self._room = self._loop.create_future()
                    await self._room
        self.eof_received()
        self.connection_lost(None)

    # -- room --------------------------------------------------------------------------------------------------------

    @property
    def _full(self) -> bool:
        if self.line.full or len(self.calls) < self._limits.calls_per_caller:
            return self.line.full
        # Calls that wait for the peer's answers would wait for ever if nothing more were read from it.
        asking = 0 if self._legacy is None else self._legacy.asking
        return len(self.calls) - asking >= self._limits.calls_per_caller or len(self.calls) >= self._limits.calls

    def balance(self) -> None:
        """Something ended or was taken: serve what waits, then read on."""
        if not self._serving:
            self._serve()

    def _serve(self) -> None:
        self._serving = True
        lines = self._lines
        try:
            for _ in range(self._limits.inline_answers):
                if not lines or self._full:
                    break
                self.take(lines.popleft())
        finally:
            self._serving = False
        if lines and not self._full:
            # Others have a right to the loop too.
            self._serving = True
            self._loop.call_soon(self._serve)
        self._pause(bool(lines) or self._full)
        if self._hung_up and not lines and not self.closed.done():
            self.closed.set_result(None)

    def _pause(self, paused: bool) -> None:
        if not paused and self._room is not None and not self._room.done():
            self._room.set_result(None)
        if paused == self._paused or self._reader is None or self._reader.is_closing():
            return
        self._paused = paused
        if paused:
            self._reader.pause_reading()
        else:
            self._reader.resume_reading()

    # -- serving -----------------------------------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """Serve one line; whatever is wrong with it is answered, and the next is read."""
        line = line.strip()
        if not line:
            return
        try:
            plain = self._shortcut.read(line)
            if plain is not None and self._take_plain(plain):
                return
            if jsonrpc.is_batch(line):
                self._take_batch(line)
            else:
                self._take_message(line)
        except Refusal as refusal:
            self._refuse(refusal.request_id, refusal)
        except Exception:  # noqa: BLE001 — a line that we fail at must not end the others
            error_id = secrets.token_hex(4)
            _log.exception("a line could not be served, error id %s", error_id)
            self._refuse(None, InternalFailure(f"Internal error, error id {error_id}"))

    def _take_plain(self, plain: PlainCall) -> bool:
        """Start a plain call; False where it has to be looked at with care."""
        request_id, caller, session = plain.id, plain.caller, self._legacy
        if self._draining or request_id in self.calls or request_id in self.following:
            return False
        if caller is not None:
            exchange = LineExchange(self.line, self._modern, request_id)
        elif session is not None:
            caller = session.caller
            tongue = self._legacy_tongues[caller.version]
            exchange = LegacyLineExchange(self.line, tongue, request_id, session, self._limits, self.balance)
        else:
            return False
        call = Call(
            method=CALL,
            caller=caller,
            channel=exchange,
            id=request_id,
            name=plain.name,
            raw=plain.arguments,
            params=plain.params,
        )
        self._start(call, exchange, request_id)
        return True

    def _take_batch(self, line: bytes) -> None:
        if self._legacy is None or self._legacy.caller.version not in BATCHES:
            raise InvalidRequest("This revision has no batches: send one message a line")
        # Each answer is a message of its own on a shared line: a batch here is its messages one after the other.
        for item in jsonrpc.read_batch(line, self._limits):
            self.take(item)

    def _take_message(self, line: bytes) -> None:
        message = jsonrpc.read(line, self._limits)
        method, request_id = message.method, message.id
        if method is UNSET:
            if self._legacy is not None:
                self._legacy.answer(message)
            return
        if request_id is UNSET:
            self._take_notice(method, message)
            return
        try:
            if self._draining:
                raise shutting_down()
            running = self.calls.get(request_id)
            if (running is not None and not running[1].ended) or request_id in self.following:
                raise InvalidRequest(f"The id {request_id!r} is already in flight: use another one")
            made = self._make_call(line, message, method, request_id)
        except Refusal as refusal:
            refusal.request_id = request_id
            raise
        if made is not None:
            self._start(*made, request_id)

    def _make_call(
        self, line: bytes, message: Message, method: str, request_id: RequestId
    ) -> tuple[Call, LineExchange] | None:
        params = read_params(line, message)
        if not is_modern(params):
            return self._make_legacy_call(message, params, method, request_id)
        caller, token = self._callers.read(params, None)
        check_method(method, MODERN)
        about = subject(method, params)
        if method == LISTEN:
            exchange: LineExchange = self.following.listen(self._modern, request_id)
        else:
            exchange = LineExchange(self.line, self._modern, request_id)
        return make_call(method, request_id, about, message, params, caller, exchange, token), exchange

    def _make_legacy_call(
        self, message: Message, params: Params, method: str, request_id: RequestId
    ) -> tuple[Call, LineExchange] | None:
        session = self._legacy
        if method == "initialize":
            return self._initialize(message, request_id)
        if session is None and method != "ping":
            raise InvalidRequest(
                f"Send initialize first, or give params._meta the {MODERN} envelope (protocolVersion and clientCapabilities)"
            )
        if session is None or method in AT_ONCE:
            if session is not None:
                settle_at_once(session, method, message, params)
            self.line.write(jsonrpc.answer(request_id, b"{}"))
            return None
        caller, token = session.caller, read_token(params)
        check_method(method, caller.version)
        about = read_uri(method, params) if method == SUBSCRIBE else subject(method, params)
        tongue = self._legacy_tongues[caller.version]
        exchange = LegacyLineExchange(self.line, tongue, request_id, session, self._limits, self.balance)
        return make_call(method, request_id, about, message, params, caller, exchange, token), exchange

    def _initialize(self, message: Message, request_id: RequestId) -> tuple[Call, LineExchange]:
        handshake = read_handshake(bytes(message.params))
        caller = Caller(
            version=handshake.version,
            transport="stdio",
            client=handshake.client,
            capabilities=handshake.capabilities,
            log_level=UNASKED_LOG_LEVEL,
        )
        self._legacy = Session(caller)
        self.following.uris = self._legacy.uris
        exchange = LineExchange(self.line, self._legacy_tongues[handshake.version], request_id)
        return Call(method="server/discover", caller=caller, channel=exchange, id=request_id), exchange

    def _start(self, call: Call, exchange: LineExchange, request_id: RequestId) -> None:
        handler = self._handler
        if call.method == SUBSCRIBE and self._legacy is not None:
            handler = subscribing(handler, self._legacy, self._limits)
        task = turns.start(conduct(handler, call, exchange), loop=self._loop)
        if not task.done():
            self.calls[request_id] = task, exchange
            task.add_done_callback(lambda _: self._ended(request_id, task))

    def _ended(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        # The peer may have used the id again as soon as it had the answer.
        running = self.calls.get(request_id)
        if running is not None and running[0] is task:
            del self.calls[request_id]
        self.balance()

    def _take_notice(self, method: str, message: Message) -> None:
        if method == "notifications/cancelled":
            request_id = cancelled_id(message)
            if request_id is None:
                return
            running = self.calls.get(request_id)
            if running is not None:
                running[0].cancel()
            self.following.cancel(request_id)
        elif method == "notifications/initialized" and self._legacy is not None and not self._draining:
            caller = self._legacy.caller
            self.following.begin_legacy(caller, self._legacy_tongues[caller.version])

    def _refuse(self, request_id: RequestId | None, refusal: Refusal) -> None:
        self.line.write(jsonrpc.refusal(request_id, refusal))

    async def drain(self, seconds: float, hurried: asyncio.Event) -> None:
        """Take no new calls; let those that run come to their answers, and end the rest with one when time is up."""
        self._draining = True
        self.following.end()
        ended = asyncio.ensure_future(self._wait(0 if self.line.lost else seconds))
        hurry = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({ended, hurry}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurry.cancel()
        for task, exchange in self.calls.values():
            exchange.closing = True
            task.cancel()
        await self._wait(_LAST_WORDS_SECONDS)

    async def _wait(self, seconds: float) -> None:
        running = [task for task, _ in self.calls.values()]
        if running:
            await asyncio.wait(running, timeout=seconds)


def claim_pipes() -> tuple[int, int]:
    """Take stdin and stdout for the protocol: new descriptors for it, stderr and nothing for everybody else."""
    try:
        source, target = os.dup(0), os.dup(1)
    except OSError:
        raise SetupError("stdin or stdout is closed, so there is nothing to serve; use --http to serve HTTP") from None
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


async def open_door(handler: Handler, info: Mapping[str, Json], limits: Limits, source: int, target: int) -> LineDoor:
    """Serve the peer at the other end of two descriptors."""
    loop = asyncio.get_running_loop()
    door = LineDoor(handler, info, limits, loop)
    if _can_be_watched(target):
        await loop.connect_write_pipe(lambda: door.line, os.fdopen(target, "wb", buffering=0))
    else:
        door.line.write_to(os.fdopen(target, "wb"))
    if _can_be_watched(source):
        await loop.connect_read_pipe(lambda: door, os.fdopen(source, "rb", buffering=0))
    else:
        door.feed(os.fdopen(source, "rb"))
    return door
