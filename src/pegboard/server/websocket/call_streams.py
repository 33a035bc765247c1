"""The streams of one call on a WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn
from uuid import uuid4

import msgspec
from msgspec import Raw

from pegboard.call import EncodedResult, Json, Question, Reply, RequestId
from pegboard.errors import MethodNotFound, QuestionFailed, Refusal, UnknownTool
from pegboard.limits import Limits
from pegboard.protocol import stream_frames
from pegboard.protocol.revision_codec import RevisionCodec
from pegboard.protocol.stream_frames import StreamFailure, StreamMeta
from pegboard.server.exchange.exchanges import LineExchange, shutting_down
from pegboard.server.exchange.session_exchange import SessionLineExchange
from pegboard.server.http_types import MessageSocket
from pegboard.server.websocket.stream_flow import InboundFlow, OutboundFlow, WriteTurns, timestamp

_FAILED: Final = StreamFailure(-32000, "The call failed before the end of the stream")


class CallStreams:
    """All streams of one call: the one by which it began, and those that it has opened."""

    __slots__ = ("_limits", "_opened", "_socket", "_turns", "_window", "about", "id", "inbound", "key")

    def __init__(
        self,
        socket: MessageSocket,
        turns: WriteTurns,
        stream_id: str,
        meta: StreamMeta,
        binary: bool | None,
        limits: Limits,
        weigh: Callable[[int], object],
        heard_since: Callable[[], float],
    ) -> None:
        self.id = stream_id
        self.key = stream_frames.key(stream_id)
        # What the streams that it opens say they belong to.
        self.about: str | int = stream_id
        self._window = None if meta.window is None else min(meta.window, limits.window_bytes)
        self.inbound = InboundFlow(meta, binary, limits.unread_seconds, weigh, heard_since, self._credit, self._window)
        self._socket = socket
        self._turns = turns
        self._limits = limits
        self._opened: list[OutboundFlow] = []

    @property
    def binary(self) -> bool:
        return bool(self.inbound.binary)

    @property
    def meta(self) -> Mapping[str, Json]:
        told: dict[str, Json] = msgspec.to_builtins(self.inbound.meta)
        return told

    @property
    def summary(self) -> Json:
        return self.inbound.summary

    async def read(self) -> Json:
        return await self.inbound.read()

    def begin(self) -> None:
        """The caller may send: it is told how much, if it wants to be told."""
        if self._window is not None:
            self._credit(self._window)

    def _credit(self, size: int) -> None:
        self._socket.write(stream_frames.credit(self.id, timestamp(), size))

    def open(self, meta: Mapping[str, Json]) -> OutboundFlow:
        about: dict[str, Json] = {"correlationId": self.about, "window": self._window}
        told = msgspec.convert({**meta, **about}, StreamMeta)
        guid, limits = uuid4(), self._limits
        opened = OutboundFlow(
            str(guid),
            guid.bytes_le,
            told.binary,
            limits.chunk_bytes if self._window is None else min(limits.chunk_bytes, self._window),
            limits.unread_seconds,
            self._socket,
            self._turns,
            self._window,
        )
        self._opened.append(opened)
        self._socket.write(stream_frames.start(opened.id, timestamp(), told))
        return opened

    def find(self, stream_id: str) -> OutboundFlow | None:
        """The stream of that id, where it is one that the call has opened and not ended."""
        return next((one for one in self._opened if one.id == stream_id and one.socket is not None), None)

    def close(self, failure: StreamFailure | None) -> None:
        """The call has ended, and its streams with it."""
        self.inbound.drop()
        for one in self._opened:
            if failure is None:
                one.finish()
            else:
                one.fail(failure.message, failure.code, failure.data)

    def forget(self) -> None:
        """The call has ended, and nothing is to be said of it any more."""
        self.inbound.drop()
        for one in self._opened:
            one.forget()


class DirectExchange(LineExchange):
    """One call that a JSON-RPC request began whose method is a tool's own name: it has streams, and a plain answer."""

    __slots__ = ("streams",)

    def __init__(
        self, socket: MessageSocket, codec: RevisionCodec, request_id: RequestId, streams: CallStreams
    ) -> None:
        super().__init__(socket, codec, request_id)
        self.streams = streams

    async def ask(self, questions: Mapping[str, Question]) -> NoReturn:
        raise _cannot_ask()

    def finish(self, method: str, reply: Reply) -> None:
        self.streams.close(_failure_of(reply))
        super().finish(method, reply)

    def refuse(self, refusal: Refusal) -> None:
        self.streams.close(_FAILED)
        super().refuse(refusal)

    def end_cancelled(self) -> None:
        if not self.closing:
            self.streams.forget()
        super().end_cancelled()


class StreamExchange(LineExchange):
    """One call that a stream began: it ends with `done`, which sums it up by its result, or with `error`.

    `asker` is how a caller can be asked that has shaken hands; no other can, since it could not send its stream again.
    """

    __slots__ = ("_asker", "streams")

    def __init__(
        self, socket: MessageSocket, codec: RevisionCodec, streams: CallStreams, asker: SessionLineExchange | None
    ) -> None:
        super().__init__(socket, codec, streams.id)
        self.streams = streams
        self._asker = asker

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        if self._asker is None:
            raise _cannot_ask()
        return await self._asker.ask(questions)

    def finish(self, method: str, reply: Reply) -> None:
        failure = _failure_of(reply)
        self.streams.close(failure)
        if failure is not None:
            self._end(stream_frames.error(self.streams.id, timestamp(), failure))
        else:
            result = Raw(self._codec.result(method, reply))
            self._end(stream_frames.done(self.streams.id, timestamp(), result))

    def refuse(self, refusal: Refusal) -> None:
        failure = as_failure(refusal, self.streams.inbound.meta.method)
        self.streams.close(failure)
        self._end(stream_frames.error(self.streams.id, timestamp(), failure))

    def end_cancelled(self) -> None:
        """A cancelled call is not answered; unless it was we who gave up."""
        if self.closing:
            self.refuse(shutting_down())
        self.streams.forget()
        self._line = None


def as_failure(refusal: Refusal, method: str) -> StreamFailure:
    """A refusal as streams tell it; a tool that nobody knows is a method there."""
    if isinstance(refusal, UnknownTool):
        return StreamFailure(MethodNotFound.code, refusal.message, {"method": method})
    return StreamFailure(refusal.code, refusal.message, refusal.data)


def _failure_of(reply: Reply) -> StreamFailure | None:
    """What a result says of a failure, where it is an error for the model."""
    result = reply.result
    if isinstance(result, EncodedResult) or not result.get("isError"):
        return None
    texts = [block["text"] for block in result.get("content", ()) if block.get("type") == "text"]
    return StreamFailure(-32000, "\n".join(texts), {"result": result})


def _cannot_ask() -> QuestionFailed:
    return QuestionFailed("The caller cannot be asked while it streams; a client that began with initialize can")
