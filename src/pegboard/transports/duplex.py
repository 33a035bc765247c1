"""The streams of one call on a WebSocket: what its caller sends, what it sends back, and how it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.call import Json, Kept, Question, Reply, RequestId
from pegboard.errors import AskFailed, MethodNotFound, Refusal, StreamFault, ToolError, UnknownTool
from pegboard.limits import Limits
from pegboard.protocol import frames
from pegboard.protocol.frames import Failure, Meta
from pegboard.protocol.tongue import Tongue
from pegboard.transports.channels import LineExchange, shutting_down
from pegboard.transports.door import Socket
from pegboard.transports.legacy_exchange import LegacyLineExchange

_BURST: Final = 16
_FAILED: Final = Failure(-32000, "The call failed before the end of the stream")


def stamp() -> str:
    """Now, as the messages of streams tell it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Inflow(Struct, eq=False):
    """What a caller sends on its stream, checked, and kept until the call reads it.

    `binary` is None where the first chunk is to show it. `weigh` is told of each byte that is kept or let go; `heard_since`
    says from when on the caller could be heard, for silence is not its own while nothing is read from it.
    """

    meta: Meta
    binary: bool | None
    seconds: float
    weigh: Callable[[int], object]
    heard_since: Callable[[], float]
    summary: Json = None
    held: int = 0
    ended: bool = False
    _next: int = 0
    _bytes: int = 0
    _chunks: deque[tuple[Any, int]] = msgspec.field(default_factory=deque)
    _error: ToolError | None = None
    _reader: asyncio.Future[None] | None = None

    def take(self, index: int, chunk: Any, size: int, *, binary: bool) -> None:
        """The next chunk has come."""
        if self.binary is None:
            self.binary = binary
        if self.ended:
            raise StreamFault("Binary data sent after done" if binary else "Text chunk sent after done")
        if binary is not self.binary:
            expected, got = ("binary", "text") if self.binary else ("text", "binary")
            raise StreamFault(f"Chunk was expected to be {expected}, got {got}")
        if index != self._next:
            raise StreamFault(f"Chunk {index} came where {self._next} was expected", {"expected": self._next})
        self._next += 1
        self._bytes += size
        total = self.meta.total_size
        if binary and total is not None and self._bytes > total:
            raise StreamFault(f"More than the {total} bytes came that were announced", {"totalSize": total})
        self._chunks.append((chunk, size))
        self.held += size
        self.weigh(size)
        self._wake()

    def finish(self, summary: Json) -> None:
        """All has come."""
        if self.ended:
            raise StreamFault("The stream had already ended")
        total = self.meta.total_size
        if self.binary and total is not None and self._bytes != total:
            raise StreamFault(f"{self._bytes} bytes came where {total} were announced", {"totalSize": total})
        self.summary = summary
        self.ended = True
        self._wake()

    def fail(self, failure: Failure) -> None:
        """The caller cannot go on."""
        self.ended = True
        self._error = ToolError(f"The caller's stream ended with an error: {failure.message[:500]}")
        self._wake()

    def drop(self) -> None:
        """Nobody will read what is left."""
        self.ended = True
        self._chunks.clear()
        self.weigh(-self.held)
        self.held = 0

    async def read(self) -> Any:
        """The next chunk, UNSET at the end."""
        if self._reader is not None:
            raise RuntimeError("two at once read the same stream")
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.ended:
                return UNSET
            await self._wait()
        chunk, size = self._chunks.popleft()
        self.held -= size
        self.weigh(-size)
        return chunk

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        begun, self._reader = loop.time(), loop.create_future()
        try:
            async with asyncio.timeout(self.seconds):
                await self._reader
        except TimeoutError:
            if self._chunks or self.ended or self.heard_since() > begun:
                return
            raise StreamFault("Stream timeout", {"timeout": self.seconds}) from None
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Outgoing(Struct, eq=False):
    """A stream to the caller."""

    id: str
    key: bytes
    binary: bool
    limit: int
    # None: it has ended.
    socket: Socket | None
    _next: int = 0

    async def write(self, chunk: Any) -> None:
        """Send a chunk; many bytes go in several, so that no message is larger than its reader may be ready for."""
        if not self.binary:
            await self._send(chunk)
            return
        view = memoryview(chunk)
        if view.nbytes <= self.limit:
            await self._send(view)
            return
        view = view.cast("B")
        for start in range(0, len(view), self.limit):
            await self._send(view[start : start + self.limit])

    async def _send(self, chunk: Any) -> None:
        socket = self.socket
        if socket is None:
            return
        index = self._next
        self._next += 1
        if not self._next % _BURST:
            # A reader that is fast enough would keep the loop from everybody else, and from telling that it has left.
            await asyncio.sleep(0)
        if self.binary:
            socket.write_bytes(frames.header(self.key, index) + chunk)
        else:
            socket.write(frames.chunk(self.id, stamp(), index, chunk))
        if socket.full:
            await socket.drain()

    def finish(self, summary: Json = None) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            socket.write(frames.done(self.id, stamp(), summary))

    def fail(self, message: str, code: int = -32000, data: Json = None) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            socket.write(frames.error(self.id, stamp(), Failure(code, message, data)))


class Streams:
    """All streams of one call: the one by which it began, and those that it has opened."""

    __slots__ = ("_limits", "_opened", "_socket", "about", "id", "inflow", "key")

    def __init__(
        self,
        socket: Socket,
        stream_id: str,
        meta: Meta,
        binary: bool | None,
        limits: Limits,
        weigh: Callable[[int], object],
        heard_since: Callable[[], float],
    ) -> None:
        self.id = stream_id
        self.key = frames.key(stream_id)
        # What the streams that it opens say they belong to.
        self.about: str | int = stream_id
        self.inflow = Inflow(meta, binary, limits.unread_seconds, weigh, heard_since)
        self._socket = socket
        self._limits = limits
        self._opened: list[Outgoing] = []

    @property
    def binary(self) -> bool:
        return bool(self.inflow.binary)

    @property
    def meta(self) -> Mapping[str, Json]:
        told: dict[str, Json] = msgspec.to_builtins(self.inflow.meta)
        return told

    @property
    def summary(self) -> Json:
        return self.inflow.summary

    async def read(self) -> Json:
        return await self.inflow.read()

    def open(self, meta: Mapping[str, Json]) -> Outgoing:
        told = msgspec.convert({**meta, "correlationId": self.about}, Meta)
        guid = uuid4()
        opened = Outgoing(str(guid), guid.bytes_le, told.binary, self._limits.chunk_bytes, self._socket)
        self._opened.append(opened)
        self._socket.write(frames.start(opened.id, stamp(), told))
        return opened

    def owns(self, stream_id: str) -> bool:
        """Whether a stream of that id is one that the call has opened and not ended."""
        return any(one.id == stream_id and one.socket is not None for one in self._opened)

    def close(self, failure: Failure | None) -> None:
        """The call has ended, and its streams with it."""
        self.inflow.drop()
        for one in self._opened:
            if failure is None:
                one.finish()
            else:
                one.fail(failure.message, failure.code, failure.data)

    def forget(self) -> None:
        """The call has ended, and nothing is to be said of it any more."""
        self.inflow.drop()
        for one in self._opened:
            one.socket = None


class DirectExchange(LineExchange):
    """One call that a JSON-RPC request began whose method is a tool's own name: it has streams, and a plain answer."""

    __slots__ = ("streams",)

    def __init__(self, socket: Socket, tongue: Tongue, request_id: RequestId, streams: Streams) -> None:
        super().__init__(socket, tongue, request_id)
        self.streams = streams

    async def ask(self, asks: Mapping[str, Question]) -> NoReturn:
        raise _nobody_to_ask()

    def finish(self, method: str, reply: Reply) -> None:
        self.streams.close(_failure_of(reply))
        super().finish(method, reply)

    def refuse(self, refusal: Refusal) -> None:
        self.streams.close(_FAILED)
        super().refuse(refusal)

    def withdraw(self) -> None:
        if not self.closing:
            self.streams.forget()
        super().withdraw()


class StreamExchange(LineExchange):
    """One call that a stream began: it ends with `done`, which sums it up by its result, or with `error`.

    `asker` is how a caller can be asked that has shaken hands; no other can, since it could not send its stream again.
    """

    __slots__ = ("_asker", "streams")

    def __init__(self, socket: Socket, tongue: Tongue, streams: Streams, asker: LegacyLineExchange | None) -> None:
        super().__init__(socket, tongue, streams.id)
        self.streams = streams
        self._asker = asker

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        if self._asker is None:
            raise _nobody_to_ask()
        return await self._asker.ask(asks)

    def finish(self, method: str, reply: Reply) -> None:
        failure = _failure_of(reply)
        self.streams.close(failure)
        if failure is not None:
            self._end(frames.error(self.streams.id, stamp(), failure))
        else:
            result = Raw(self._tongue.result(method, reply))
            self._end(frames.done(self.streams.id, stamp(), result))

    def refuse(self, refusal: Refusal) -> None:
        failure = as_failure(refusal, self.streams.inflow.meta.method)
        self.streams.close(failure)
        self._end(frames.error(self.streams.id, stamp(), failure))

    def withdraw(self) -> None:
        """A cancelled call is not answered; unless it was we who gave up."""
        if self.closing:
            self.refuse(shutting_down())
        self.streams.forget()
        self._line = None


def as_failure(refusal: Refusal, method: str) -> Failure:
    """A refusal as streams tell it; a tool that nobody knows is a method there."""
    if isinstance(refusal, UnknownTool):
        return Failure(MethodNotFound.code, refusal.message, {"method": method})
    return Failure(refusal.code, refusal.message, refusal.data)


def _failure_of(reply: Reply) -> Failure | None:
    """What a result says of a failure, where it is an error for the model."""
    result = reply.result
    if isinstance(result, Kept) or not result.get("isError"):
        return None
    texts = [block["text"] for block in result.get("content", ()) if block.get("type") == "text"]
    return Failure(-32000, "\n".join(texts), {"result": result})


def _nobody_to_ask() -> AskFailed:
    return AskFailed("The caller cannot be asked while it streams; a client that began with initialize can")
