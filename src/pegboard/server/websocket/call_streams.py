"""The streams of one call on a WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn
from uuid import uuid4

import msgspec
from msgspec import Raw

from pegboard.call import EncodedResult, Json, Question, Reply
from pegboard.errors import MethodNotFound, QuestionFailed, Refusal, UnknownTool
from pegboard.limits import Limits
from pegboard.protocol.content import joined_text
from pegboard.protocol.framing import stream_frames
from pegboard.protocol.framing.stream_frames import StreamFailure, StreamMeta
from pegboard.server.exchange.exchanges import LineExchange
from pegboard.server.http_types import MessageSocket
from pegboard.server.websocket.stream_flow import InboundFlow, OutboundFlow, WriteTurns, timestamp

_FAILED: Final = StreamFailure(-32000, "The call failed before the end of the stream")


class CallStreams:
    """All streams of one call: the one that started it, and those that it has opened."""

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
        # The correlation id of the streams that it opens.
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
        meta: dict[str, Json] = msgspec.to_builtins(self.inbound.meta)
        return meta

    @property
    def summary(self) -> Json:
        return self.inbound.summary

    async def read(self) -> Json:
        return await self.inbound.read()

    def begin(self) -> None:
        """Send the caller its first credit, if it uses flow control."""
        if self._window is not None:
            self._credit(self._window)

    def _credit(self, size: int) -> None:
        self._socket.write(stream_frames.credit(self.id, timestamp(), size))

    def open(self, meta: Mapping[str, Json]) -> OutboundFlow:
        about: dict[str, Json] = {"correlationId": self.about, "window": self._window}
        stream_meta = msgspec.convert({**meta, **about}, StreamMeta)
        guid, limits = uuid4(), self._limits
        opened = OutboundFlow(
            str(guid),
            guid.bytes_le,
            stream_meta.binary,
            limits.chunk_bytes if self._window is None else min(limits.chunk_bytes, self._window),
            limits.unread_seconds,
            self._socket,
            self._turns,
            self._window,
        )
        self._opened.append(opened)
        self._socket.write(stream_frames.start(opened.id, timestamp(), stream_meta))
        return opened

    def find(self, stream_id: str) -> OutboundFlow | None:
        """The stream with that id, if the call has opened it and not ended it."""
        return next((stream for stream in self._opened if stream.id == stream_id and stream.socket is not None), None)

    def close(self, failure: StreamFailure | None) -> None:
        """End the streams of a call that has ended."""
        self.inbound.drop()
        for stream in self._opened:
            if failure is None:
                stream.finish()
            else:
                stream.fail(failure.message, failure.code, failure.data)

    def forget(self) -> None:
        """Drop the streams of a call that has ended, without a message."""
        self.inbound.drop()
        for stream in self._opened:
            stream.forget()


class StreamExchange(LineExchange, eq=False, kw_only=True):
    """One call with streams. If a stream began it, it ends with `done`, which holds the result, or with `error`.

    A `direct` call was begun by a JSON-RPC request whose method is the name of a tool, and ends with its response.
    """

    streams: CallStreams
    direct: bool = False

    def finish(self, method: str, reply: Reply) -> None:
        failure = _failure_of(reply)
        self.streams.close(failure)
        if self.direct:
            super().finish(method, reply)
        elif failure is not None:
            self._end(stream_frames.error(self.streams.id, timestamp(), failure))
        else:
            result = Raw(self._codec.result(method, reply))
            self._end(stream_frames.done(self.streams.id, timestamp(), result))

    def refuse(self, refusal: Refusal) -> None:
        if self.direct:
            self.streams.close(_FAILED)
            super().refuse(refusal)
            return
        failure = as_failure(refusal, self.streams.inbound.meta.method)
        self.streams.close(failure)
        self._end(stream_frames.error(self.streams.id, timestamp(), failure))

    def end_cancelled(self) -> None:
        super().end_cancelled()
        self.streams.forget()


async def reject_streamed_question(questions: Mapping[str, Question]) -> NoReturn:
    """The `Ask` of a caller that could not send its stream again with the answer."""
    raise QuestionFailed("The caller cannot be asked while it streams; a client that sends initialize first can")


def as_failure(refusal: Refusal, method: str) -> StreamFailure:
    """A refusal in the form that streams use; an unknown tool is an unknown method there."""
    if isinstance(refusal, UnknownTool):
        return StreamFailure(MethodNotFound.code, refusal.message, {"method": method})
    return StreamFailure(refusal.code, refusal.message, refusal.data)


def _failure_of(reply: Reply) -> StreamFailure | None:
    """The failure in a result that is an error for the model."""
    result = reply.result
    if isinstance(result, EncodedResult) or not result.get("isError"):
        return None
    return StreamFailure(-32000, joined_text(result.get("content")), {"result": result})
