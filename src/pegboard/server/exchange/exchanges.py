"""Writes the notifications and the one response of a call, for HTTP, lines and batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from pegboard.call import Call, Channel, Handler, Json, Notification, Question, Reply, RequestId, ask_in_result
from pegboard.errors import Busy, InternalFailure, InvalidRequest, Refusal
from pegboard.logs import log_failure
from pegboard.protocol import jsonrpc, sse
from pegboard.protocol.revision_codec import RevisionCodec
from pegboard.server.http.content_negotiation import Accepts
from pegboard.server.http_types import Answer, Headers, Sink

_log = logging.getLogger("pegboard.server")

T_co = TypeVar("T_co", covariant=True)


class Exchange(Channel, Protocol[T_co]):
    """One request's side of a door: notices while the call runs, then exactly one end."""

    def finish(self, method: str, reply: Reply) -> T_co | None: ...

    def refuse(self, refusal: Refusal) -> T_co | None: ...

    def end_cancelled(self) -> T_co | None: ...


class LongRunning(Protocol):
    """What may take a while: it can be kept alive meanwhile, and told that we end."""

    since: float
    streaming: bool
    closing: bool

    def keep_alive(self) -> None: ...


class MessageLine(Protocol):
    """Somewhere to write whole messages, one after the other."""

    def write(self, message: bytes) -> None: ...

    async def drain(self) -> None: ...


STREAM: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class HttpExchange(Struct, eq=False):
    """One request over HTTP: answered by JSON, or by a stream from the moment it has something to say before.

    A client that takes no stream is told nothing before the answer; one that takes only a stream gets the answer there.
    """

    # None: the client is gone, or has its answer.
    _sink: Sink | None
    _codec: RevisionCodec
    _id: RequestId
    _headers: Headers
    _accepts: Accepts
    streaming: bool = False
    since: float = 0.0
    closing: bool = False

    async def emit(self, notice: Notification) -> None:
        """Send a notice on the call's stream, which its first notice opens."""
        sink = self._sink
        if sink is None or not self._accepts.stream:
            return
        said = self._codec.notice(notice)
        if not said:
            return
        said = sse.event(said)
        if not self.streaming:
            self._open(sink)
        if sink.write(said):
            return
        try:
            await sink.drain()
        except ConnectionError:
            # That ends the stream, not the call: whether it goes on without a listener is for its revision to say.
            self._sink = None

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing is done: a stream of this revision cannot be come back to."""

    def keep_alive(self) -> None:
        """Show a waiting client, and the proxies between, that the call lives."""
        if self._sink is None or not self._accepts.stream:
            return
        if not self.streaming:
            self._open(self._sink)
        self._sink.write(sse.KEEP_ALIVE)

    def leave(self) -> None:
        """The client is gone: nothing more is sent."""
        self._sink = None

    def finish(self, method: str, reply: Reply) -> Answer | None:
        """The result, as a whole answer or as the last event."""
        body = jsonrpc.answer(self._id, self._codec.result(method, reply))
        if self.streaming or not self._accepts.json:
            return self._end(200, body)
        self._sink = None
        return Answer(200, body, headers=self._headers)

    def answer(self, result: bytes) -> Answer | None:
        """A result that is written already."""
        return self._end(200, jsonrpc.answer(self._id, result))

    def refuse(self, refusal: Refusal) -> Answer | None:
        """The error, likewise."""
        return self._end(
            self._codec.status(refusal),
            jsonrpc.refusal(self._id, refusal, self._codec.code(refusal)),
            refusal.retry_after,
        )

    def end_cancelled(self) -> Answer | None:
        """End without an answer, since the client has cancelled the call; unless it was we who gave up."""
        if self.closing:
            return self.refuse(shutting_down())
        sink, self._sink = self._sink, None
        if not self.streaming and not self._accepts.stream:
            return Answer(202, headers=self._headers)
        if sink is not None:
            if not self.streaming:
                self._open(sink)
            sink.end()
        return None

    def _end(self, status: int, body: bytes, retry_after: int | None = None) -> Answer | None:
        sink, self._sink = self._sink, None
        if self.streaming:
            if sink is not None:
                sink.write(sse.event(body))
                sink.end()
            return None
        headers = self._headers
        if retry_after is not None:
            headers = (*headers, (b"retry-after", b"%d" % retry_after))
        if status == 200 and not self._accepts.json and sink is not None:
            stream(sink, body, headers)
            return None
        return Answer(status, body, headers=headers)

    def _open(self, sink: Sink) -> None:
        sink.start(200, STREAM + self._headers)
        self.streaming = True


def stream(sink: Sink, body: bytes, headers: Headers) -> None:
    """A whole answer as a stream of one event, for a client that takes nothing else."""
    sink.start(200, STREAM + headers)
    sink.write(sse.event(body))
    sink.end()


def answer_batch(messages: Sequence[bytes], sink: Sink, headers: Headers, accepts: Accepts) -> Answer | None:
    """Answer a batch by an array: as JSON, or as one event for a client that only accepts a stream."""
    if not messages:
        return Answer(202, headers=headers)
    body = b"[%b]" % b",".join(messages)
    if accepts.json:
        return Answer(200, body, headers=headers)
    stream(sink, body, headers)
    return None


class LineExchange:
    """One request on a line that all share, such as stdio."""

    __slots__ = ("_codec", "_id", "_line", "closing", "since", "streaming")

    def __init__(self, line: MessageLine, codec: RevisionCodec, request_id: RequestId) -> None:
        # None: the call has its answer, or is not to have one.
        self._line: MessageLine | None = line
        self._codec = codec
        self._id = request_id
        self.since = 0.0
        self.streaming = False
        self.closing = False

    @property
    def ended(self) -> bool:
        """Whether the call has its answer, so that its id is free again, though its task may not be done yet."""
        return self._line is None

    async def emit(self, notice: Notification) -> None:
        """Send a notice between the answers of other calls."""
        line, said = self._line, self._codec.notice(notice)
        if line is not None and said:
            line.write(said)
            await line.drain()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing is done: the line is shared."""

    def keep_alive(self) -> None:
        """Nothing is sent: whoever has the line sees to that, for all its calls at once."""

    def finish(self, method: str, reply: Reply) -> None:
        self._end(jsonrpc.answer(self._id, self._codec.result(method, reply)))

    def refuse(self, refusal: Refusal) -> None:
        self._end(jsonrpc.refusal(self._id, refusal, self._codec.code(refusal)))

    def end_cancelled(self) -> None:
        """A cancelled call is not answered: "servers … MUST NOT send any further messages for it" (stdio)."""
        if self.closing:
            self.refuse(shutting_down())
        self._line = None

    def _end(self, message: bytes) -> None:
        if self._line is not None:
            # Still answerable if the line refuses the message.
            self._line.write(message)
            self._line = None


class BatchRoom:
    """The bytes that the answers of one batch may have together: all of them are kept until the last one is there."""

    __slots__ = ("_left",)

    def __init__(self, limit: int) -> None:
        self._left = limit

    def fit(self, request_id: RequestId, answer: bytes) -> bytes:
        """The answer, or a refusal in its place once the answers before it have taken all the room."""
        if self._left <= 0:
            told = "The answers of this batch are too large together: send this request by itself"
            return jsonrpc.refusal(request_id, InternalFailure(told))
        self._left -= len(answer)
        return answer


class BatchExchange:
    """One request of a batch: its answer joins the others, what it would say before has nowhere to go."""

    __slots__ = ("_codec", "_id", "_room", "closing", "since", "streaming")

    def __init__(self, codec: RevisionCodec, request_id: RequestId, room: BatchRoom) -> None:
        self._codec = codec
        self._id = request_id
        self._room = room
        self.streaming = False
        self.since = 0.0
        self.closing = False

    async def emit(self, notice: Notification) -> None:
        """Nothing is sent: a batch is answered by one array."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        raise InvalidRequest("This call asks its caller something, which a batch has no room for: send it by itself")

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    def keep_alive(self) -> None:
        """Nothing is sent, likewise."""

    def finish(self, method: str, reply: Reply) -> bytes:
        return self._room.fit(self._id, jsonrpc.answer(self._id, self._codec.result(method, reply)))

    def refuse(self, refusal: Refusal) -> bytes:
        return jsonrpc.refusal(self._id, refusal, self._codec.code(refusal))

    def end_cancelled(self) -> bytes | None:
        """A cancelled call has no answer in the array; unless it was we who gave up."""
        return self.refuse(shutting_down()) if self.closing else None


def shutting_down() -> Busy:
    """What a call is told that we do not take, or do not finish, because we end."""
    return Busy("The server is shutting down; try again in a moment", retry_after=1)


async def run_call(handler: Handler, call: Call, exchange: Exchange[T_co]) -> T_co | None:
    """Walk a call to its one answer, whatever happens on the way."""
    try:
        return exchange.finish(call.method, await handler(call))
    except Refusal as refusal:
        return exchange.refuse(refusal)
    except asyncio.CancelledError:
        return exchange.end_cancelled()
    except Exception as error:  # noqa: BLE001 — the last place that can still answer
        error_id = log_failure(_log, "%s failed", call.method, error=error)
        return exchange.refuse(InternalFailure(f"Internal error, error id {error_id}"))
