"""The exchanges: HTTP (JSON or events), a shared line, and responses that are collected as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from pegboard.call import Call, Channel, Handler, Json, Notification, Question, Reply, RequestId, ask_in_result
from pegboard.errors import (
    Busy,
    InsufficientScope,
    InternalFailure,
    InvalidRequest,
    ParseFailure,
    QuestionFailed,
    Refusal,
)
from pegboard.limits import Limits
from pegboard.logs.log_lines import log_failure
from pegboard.protocol import jsonrpc
from pegboard.protocol.framing import sse
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.server.http_types import Accepts, Answer, Headers, Sink

_log = logging.getLogger("pegboard.server")

T_co = TypeVar("T_co", covariant=True)

Ask: TypeAlias = Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Json]]]
"""How a call asks its caller: by ending with its questions (`ask_in_result`), while it runs, or not at all."""


class Exchange(Channel, Protocol[T_co]):
    """The server's side of one request: notifications while the call runs, then exactly one end."""

    def finish(self, method: str, reply: Reply) -> T_co | None: ...

    def refuse(self, refusal: Refusal) -> T_co | None: ...

    def end_cancelled(self) -> T_co | None: ...


class LongRunning(Protocol):
    """A response that may take a while: it is kept alive, and ended when the server shuts down."""

    since: float
    streaming: bool
    closing: bool

    def keep_alive(self) -> None: ...


class MessageLine(Protocol):
    """Takes whole messages, one after the other."""

    def write(self, message: bytes) -> None: ...

    async def drain(self) -> None: ...


STREAM: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class HttpExchange(Struct, eq=False):
    """One request over HTTP: its response is JSON, or an event stream once the call sends something before it.

    A client that does not accept a stream gets only the response; one that accepts nothing else gets it as an event.
    """

    # None: the client has disconnected, or has its response.
    sink: Sink | None
    _codec: RevisionCodec
    _id: RequestId
    _headers: Headers
    _accepts: Accepts
    _ask: Ask = ask_in_result
    streaming: bool = False
    since: float = 0.0
    closing: bool = False

    async def emit(self, notice: Notification) -> None:
        """Send a notification on the call's stream, which the first one opens."""
        sink = self.sink
        if sink is None or not self._accepts.stream:
            return
        message = self._codec.notice(notice)
        if not message:
            return
        begins = not self.streaming
        if begins:
            self._open(sink)
        keeps_up = sink.write(sse.event(message))
        if begins:
            # The client sees at once that the call has begun; later notifications are sent together if they can be.
            sink.flush()
        if keeps_up:
            return
        try:
            await sink.drain()
        except ConnectionError:
            # That ends the stream, not the call: the revision decides whether the call continues without a client.
            self.sink = None

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        return await self._ask(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Do nothing: this stream cannot be resumed."""

    def keep_alive(self) -> None:
        """Send a keep-alive to the client and the proxies in between; opens the stream if necessary."""
        if self.sink is None or not self._accepts.stream:
            return
        if not self.streaming:
            self._open(self.sink)
        self.sink.write(sse.KEEP_ALIVE)

    def leave(self) -> None:
        """The client has disconnected: send nothing more."""
        self.sink = None

    def hand_over(self) -> None:
        """Leave the stream, which is open from now on, to a subscriber."""
        sink, self.sink = self.sink, None
        if sink is not None and not self.streaming:
            self._open(sink)

    def finish(self, method: str, reply: Reply) -> Answer | None:
        """The result, as the whole response or as the last event."""
        body = jsonrpc.answer(self._id, self._codec.result(method, reply))
        if self.streaming or not self._accepts.json:
            return self._end(Answer(200, body, headers=self._headers))
        self.sink = None
        return Answer(200, body, headers=self._headers)

    def answer(self, result: bytes) -> Answer | None:
        """A result that is already encoded."""
        return self._end(Answer(200, jsonrpc.answer(self._id, result), headers=self._headers))

    def refuse(self, refusal: Refusal) -> Answer | None:
        """The error, as the whole response or as the last event."""
        headers = self._headers + refusal.http_headers
        body = jsonrpc.refusal(self._id, refusal, self._codec.code(refusal))
        return self._end(Answer(self._codec.status(refusal), body, headers=headers))

    def add_headers(self, headers: Headers) -> None:
        """Send the response with these headers as well."""
        self._headers += headers

    def omit_header(self, name: bytes) -> None:
        """Send the response without this header, unless it has been sent."""
        self._headers = tuple(header for header in self._headers if header[0] != name)

    def end_cancelled(self) -> Answer | None:
        """End without a response if the client cancelled the call; with an error if the server is shutting down."""
        return self.refuse(shutting_down()) if self.closing else self._end(None)

    def _end(self, answer: Answer | None) -> Answer | None:
        if not self.streaming:
            return self._end_unstreamed(answer)
        sink, self.sink = self.sink, None
        if sink is not None:
            if answer is not None:
                sink.write(sse.event(answer.body))
            sink.end()
        return None

    def _end_unstreamed(self, answer: Answer | None) -> Answer | None:
        """The response of a call that has sent nothing before."""
        sink, self.sink = self.sink, None
        if answer is not None and (self._accepts.json or answer.status != 200 or sink is None):
            return answer
        if answer is None and not self._accepts.stream:
            return Answer(202, headers=self._headers)
        if sink is not None:
            _stream(sink, b"" if answer is None else answer.body, self._headers)
        return None

    def _open(self, sink: Sink) -> None:
        sink.start(200, STREAM + self._headers)
        self.streaming = True


def _stream(sink: Sink, body: bytes, headers: Headers) -> None:
    """Send a whole response as a stream of at most one event, for a client that accepts nothing else."""
    sink.start(200, STREAM + headers)
    if body:
        sink.write(sse.event(body))
    sink.end()


class LineExchange(Struct, eq=False):
    """One request on a line that all requests share, such as stdio."""

    # None: the call has its response, or must not get one.
    _line: MessageLine | None
    _codec: RevisionCodec
    _id: RequestId
    _ask: Ask = ask_in_result
    streaming: bool = False
    since: float = 0.0
    closing: bool = False

    @property
    def ended(self) -> bool:
        """Whether the call has its response, so that its id is free again, though its task may not be done yet."""
        return self._line is None

    def add_headers(self, headers: Headers) -> None:
        """Do nothing: the responses on a line have no headers."""

    async def emit(self, notice: Notification) -> None:
        """Send a notification between the responses of other calls."""
        line, message = self._line, self._codec.notice(notice)
        if line is not None and message:
            line.write(message)
            await line.drain()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        if self._line is None:
            raise QuestionFailed("The client cannot be asked: the call has ended")
        return await self._ask(questions)

    async def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the line is shared."""

    def keep_alive(self) -> None:
        """Do nothing: the owner of the line keeps it alive for all its calls."""

    def hand_over(self) -> None:
        """Leave the id of the request to a subscriber."""
        self._line = None

    def finish(self, method: str, reply: Reply) -> None:
        self._end(jsonrpc.answer(self._id, self._codec.result(method, reply)))

    def refuse(self, refusal: Refusal) -> None:
        self._end(jsonrpc.refusal(self._id, refusal, self._codec.code(refusal)))

    def end_cancelled(self) -> None:
        """A cancelled call gets no response: "servers … MUST NOT send any further messages for it" (stdio)."""
        if self.closing:
            self.refuse(shutting_down())
        self._line = None

    def _end(self, message: bytes) -> None:
        if self._line is not None:
            # The call can still get an error if the line rejects the message.
            self._line.write(message)
            self._line = None


class CollectedLine(Struct, eq=False):
    """Holds the response to one request of a batch."""

    message: bytes | None = None

    def write(self, message: bytes) -> None:
        self.message = message

    async def drain(self) -> None:
        """Return at once: all responses are sent together."""


class CollectedAnswers:
    """The responses to one HTTP request in the order of the requests, and the status and headers of a single one.

    All of them are kept until the last one is there, so their size is limited together.
    """

    def __init__(self, limits: Limits) -> None:
        self._left = limits.result_bytes
        self._lines: list[CollectedLine] = []
        self.status = 200
        self.headers: Headers = ()

    @property
    def messages(self) -> list[bytes]:
        return [line.message for line in self._lines if line.message is not None]

    def line(self) -> CollectedLine:
        """The line for the response to the next request."""
        line = CollectedLine()
        self._lines.append(line)
        return line

    def exchange(self, codec: RevisionCodec, request_id: RequestId, ask: Ask) -> LineExchange:
        return CollectedExchange(self.line(), codec, request_id, ask, answers=self)

    def refuse(self, refusal: Refusal) -> None:
        """Add the response to a message that could not become a call."""
        self.note(refusal)
        self.line().write(jsonrpc.refusal(refusal.request_id, refusal))

    def note(self, refusal: Refusal) -> None:
        """Keep the HTTP status of an error: 200, unless the server failed or could not read the message."""
        if isinstance(refusal, InternalFailure):
            self.status = refusal.status if isinstance(refusal, Busy) else 500
        elif isinstance(refusal, ParseFailure | InvalidRequest | InsufficientScope):
            self.status = refusal.status
        if refusal.http_headers:
            self.headers = refusal.http_headers

    def fit(self, request_id: RequestId, message: bytes) -> bytes:
        """The message, or an error in its place once the messages before it have used up the limit."""
        if self._left <= 0:
            text = "The responses of this batch are too large together: send this request by itself"
            return jsonrpc.refusal(request_id, InternalFailure(text))
        self._left -= len(message)
        return message

    def answer_batch(self, sink: Sink, headers: Headers, accepts: Accepts) -> Answer | None:
        """Answer a batch by an array: as JSON, or as one event for a client that only accepts a stream."""
        messages = self.messages
        if not messages:
            return Answer(202, headers=headers)
        body = b"[%b]" % b",".join(messages)
        if accepts.json:
            return Answer(200, body, headers=headers)
        _stream(sink, body, headers)
        return None


class CollectedExchange(LineExchange, eq=False, kw_only=True):
    """One of several requests that are answered together, as JSON: notifications are dropped."""

    answers: CollectedAnswers

    async def emit(self, notice: Notification) -> None:
        """Do nothing: the JSON holds only responses."""

    def finish(self, method: str, reply: Reply) -> None:
        self._end(self.answers.fit(self._id, jsonrpc.answer(self._id, self._codec.result(method, reply))))

    def refuse(self, refusal: Refusal) -> None:
        self.answers.note(refusal)
        super().refuse(refusal)


async def reject_question(questions: Mapping[str, Question]) -> NoReturn:
    """The `Ask` of a legacy client without a session, which has no way to send its answers."""
    raise QuestionFailed("The client cannot be asked: its endpoint does not support questions, but /mcp does")


async def reject_question_in_batch(questions: Mapping[str, Question]) -> NoReturn:
    """The `Ask` of a request in a batch."""
    raise InvalidRequest("This call asks its caller something, which a batch does not support: send it by itself")


def shutting_down() -> Busy:
    """The error of a call that is rejected or ended because the server shuts down."""
    return Busy("The server is shutting down; try again in a moment", retry_after=1)


async def run_call(
    handler: Handler,
    call: Call,
    exchange: Exchange[T_co],
    finish_stream: Callable[[], Awaitable[T_co | None]] | None = None,
) -> T_co | None:
    """Run a call and send its response, whatever it raises; `finish_stream` sends one that is not sent at once."""
    try:
        response = exchange.finish(call.method, await handler(call))
    except Refusal as refusal:
        response = exchange.refuse(refusal)
    except asyncio.CancelledError:
        response = exchange.end_cancelled()
    except Exception as error:  # noqa: BLE001 — the last place that can still respond
        error_id = log_failure(_log, "%s failed", call.method, error=error)
        response = exchange.refuse(InternalFailure(f"Internal error, error id {error_id}"))
    return await finish_stream() if response is None and finish_stream is not None else response
