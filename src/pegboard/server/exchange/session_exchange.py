"""The response of a legacy call: JSON, or a resumable stream with questions.

Theory of operation. No stream is opened until the call sends a notification or question; most calls never do, and their
response is plain JSON that does not touch the store. From then on every message is appended to the stream's log and
then sent on the connection, if there is one; a client that lost its connection misses nothing, and the call does not
notice. These steps run one at a time under a lock, since a store may take a moment. `finish` and the like cannot wait
for it: once a stream is open, they leave the response to `settle`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from pegboard.call import Json, Notification, Question, Reply, RequestId
from pegboard.errors import InvalidRequest, QuestionFailed, Refusal, StoreDown
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc, sse
from pegboard.protocol.legacy_codec import LegacyCodec
from pegboard.server.exchange.exchanges import STREAM, LineExchange, MessageLine, shutting_down, stream
from pegboard.server.http.content_negotiation import Accepts
from pegboard.server.http_types import Answer, Headers, Sink
from pegboard.sessions.resumable_streams import SessionStream, event_id
from pegboard.sessions.session import Session

_log = logging.getLogger("pegboard.server")

RETRY_MS: Final = 1000


class SessionExchange(Struct, eq=False):
    """One request of a session over HTTP.

    A client that takes no stream is told nothing before the answer; one that takes only a stream gets the answer there.
    """

    # None: the client is gone, has its answer, or is to come back for it.
    _sink: Sink | None
    _codec: LegacyCodec
    _id: RequestId
    _headers: Headers
    _accepts: Accepts
    _session: Session
    _limits: Limits
    streaming: bool = False
    closing: bool = False
    since: float = 0.0
    _done: bool = False
    _clogged: bool = False
    _sent: int = 0
    _answer: Answer | None = None
    _stream: SessionStream | None = None
    # Made when the call first speaks.
    _turn: asyncio.Lock | None = None
    _detached: asyncio.Future[None] | None = None
    _asked: dict[str, int] | None = None
    _opening: asyncio.Task[None] | None = None

    # -- what the call says ------------------------------------------------------------------------------------------

    async def emit(self, notice: Notification) -> None:
        """Send a notice on the call's stream, which its first notice opens."""
        if self._done or (self._stream is None and not self._reachable):
            return
        said = self._codec.notice(notice)
        if not said:
            return
        await self._append_and_send(said)
        if self._clogged and self._sink is not None:
            await self._catch_up(self._sink)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """Send requests to the client on the call's stream, and wait for its answers, which come by POST."""
        if not self._accepts.stream:
            raise InvalidRequest("This call asks its caller something, so Accept must allow text/event-stream")
        return await self._session.questions.put(questions, self, self._limits)

    async def send_question(self, request_id: str, question: Question) -> None:
        seq = await self._append_and_send(self._codec.question(request_id, question), keep=True)
        if not seq:
            raise QuestionFailed("The client cannot be asked: it has left, or has too many streams open")
        if self._asked is None:
            self._asked = {}
        self._asked[request_id] = seq

    async def question_answered(self, request_id: str) -> None:
        seq = None if self._asked is None else self._asked.pop(request_id, None)
        if seq is not None and self._stream is not None:
            await self._stream.release(seq)

    async def cancel_question(self, request_id: str, reason: str) -> None:
        await self.question_answered(request_id)
        params = {"requestId": request_id, "reason": reason}
        await self._append_and_send(self._codec.notice(Notification("notifications/cancelled", params)))

    async def close_stream(self, retry_ms: int) -> None:
        """End the connection, not the call: a client that knows how comes back for the rest after that time."""
        if self._done or not self._codec.primes:
            return
        async with self._take_turn():
            opened = self._stream or await self._open(retry_ms)
            if opened is not None:
                await self._session.streams.hand_off(opened.id, retry_ms)

    def keep_alive(self) -> None:
        """Show a waiting client, and the proxies between, that the call lives; from now on it can be come back to."""
        if self._done or not self._reachable or self._sink is None:
            return
        if self.streaming:
            self._sink.write(sse.KEEP_ALIVE)
        else:
            self._opening = asyncio.ensure_future(self._open_quietly())

    # -- its connection ----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The client is gone: nothing more is sent."""
        self._sink = None
        if self._detached is not None and not self._detached.done():
            self._detached.set_result(None)
        if self._stream is not None:
            self._session.streams.release(self._stream.id, self)

    def detach_connection(self, retry_ms: int | None) -> None:
        """The stream goes on elsewhere, or later."""
        sink = self._sink
        self.leave()
        if sink is not None:
            if retry_ms is not None:
                sink.write(sse.retry(retry_ms))
            sink.end()

    @property
    def _reachable(self) -> bool:
        return self._sink is not None and self._accepts.stream

    def _take_turn(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    async def _append_and_send(self, data: bytes, *, keep: bool = False) -> int:
        """Put a message into the log and on the connection, its number; 0 where it can go nowhere."""
        if self._done:
            return 0
        async with self._take_turn():
            opened = self._stream or await self._open(RETRY_MS)
            if opened is None:
                return 0
            seq = await opened.append(data, keep=keep)
            if not seq:
                # Somebody has ended the stream, so nobody will ever see what this call does.
                self._session.cancel(self._id)
            elif self._sink is not None:
                await self._send(opened, seq, data)
            return seq

    async def _send(self, opened: SessionStream, seq: int, data: bytes) -> None:
        """Write an event that is in the log, and what an interruption has kept from being written before it."""
        missed = () if seq == self._sent + 1 else await opened.read(self._sent)
        sink, self._sent = self._sink, seq
        if sink is None:
            return
        for entry in missed:
            if entry.seq < seq and entry.data:
                sink.write(sse.event(entry.data, event_id(opened.id, entry.seq)))
        if data:
            self._clogged = not sink.write(sse.event(data, event_id(opened.id, seq)))

    async def _open(self, retry_ms: int) -> SessionStream | None:
        if not self._reachable:
            return None
        opened = self._stream = await self._session.streams.open(self, self._id)
        if opened is not None and self._sink is not None:
            self._sink.start(200, STREAM + self._headers)
            self.streaming = True
            if self._codec.primes:
                self._sink.write(sse.prime(event_id(opened.id, 0), retry_ms))
        return opened

    async def _open_quietly(self) -> None:
        async with self._take_turn():
            if self._done or self._stream is not None:
                return
            try:
                await self._open(RETRY_MS)
            except StoreDown:
                _log.warning("the stream of a call could not be opened")
                return
            if self.streaming and self._sink is not None:
                self._sink.write(sse.KEEP_ALIVE)

    async def _catch_up(self, sink: Sink) -> None:
        """Wait until the client has read enough, unless it leaves or another connection takes over."""
        if self._detached is None:
            self._detached = asyncio.get_running_loop().create_future()
        drained = asyncio.ensure_future(sink.drain())
        try:
            await asyncio.wait({drained, self._detached}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()
        if drained.done() and not drained.cancelled() and drained.exception() is not None and self._sink is sink:
            # That ends the connection, not the stream.
            self.leave()

    # -- its answer --------------------------------------------------------------------------------------------------

    def finish(self, method: str, reply: Reply) -> Answer | None:
        """The result, as a whole answer or as the last event."""
        body = jsonrpc.answer(self._id, self._codec.result(method, reply))
        if self._turn is None and self._accepts.json:
            self._done = True
            self._sink = None
            return Answer(200, body, headers=self._headers)
        return self._end(Answer(200, body, headers=self._headers))

    def answer(self, result: bytes) -> Answer | None:
        """A result that is written already."""
        return self._end(Answer(200, jsonrpc.answer(self._id, result), headers=self._headers))

    def refuse(self, refusal: Refusal) -> Answer | None:
        """The error, likewise."""
        headers = self._headers
        if refusal.retry_after is not None:
            headers = (*headers, (b"retry-after", b"%d" % refusal.retry_after))
        body = jsonrpc.refusal(self._id, refusal, self._codec.code(refusal))
        return self._end(Answer(self._codec.status(refusal), body, headers=headers))

    def end_cancelled(self) -> Answer | None:
        """End without an answer, since the client has cancelled the call; unless it was we who gave up."""
        return self.refuse(shutting_down()) if self.closing else self._end(None)

    async def finish_stream(self) -> Answer | None:
        """What is left to do where the answer could not leave at once: to put it into the stream of the call."""
        if self._turn is None:
            return None
        async with self._turn:
            stream, answer = self._stream, self._answer
            if stream is None:
                return self._plain_answer(answer)
            await self._send_end(stream, b"" if answer is None else answer.body)
            sink, self._sink = self._sink, None
            if sink is not None:
                sink.end()
            self._session.streams.release(stream.id, self)
            return None

    async def _send_end(self, stream: SessionStream, body: bytes) -> None:
        try:
            seq = await stream.append(body, end=True)
            if seq:
                await self._send(stream, seq, body)
        except StoreDown:
            # Better an answer that cannot be come back for than none.
            _log.warning("the answer of a call could not be stored")
            if body and self._sink is not None:
                self._sink.write(sse.event(body))

    def _end(self, answer: Answer | None) -> Answer | None:
        self._done = True
        if self._turn is None:
            return self._plain_answer(answer)
        self._answer = answer
        return None

    def _plain_answer(self, answer: Answer | None) -> Answer | None:
        """The answer of a call that has said nothing before."""
        sink, self._sink = self._sink, None
        if answer is not None and (self._accepts.json or answer.status != 200 or sink is None):
            return answer
        if answer is not None and sink is not None:
            stream(sink, answer.body, self._headers)
        elif not self._accepts.stream:
            return Answer(202, headers=self._headers)
        elif sink is not None:
            sink.start(200, STREAM + self._headers)
            sink.end()
        return None


class SessionLineExchange(LineExchange):
    """One request of the older revisions on a shared line: its caller can be asked while it runs.

    `asked` is called when it is, since an answer can only come if there is room to read one.
    """

    __slots__ = ("_asked", "_limits", "_session", "_words")

    def __init__(
        self,
        line: MessageLine,
        codec: LegacyCodec,
        request_id: RequestId,
        session: Session,
        limits: Limits,
        asked: Callable[[], object],
    ) -> None:
        super().__init__(line, codec, request_id)
        self._words = codec
        self._asked = asked
        self._session = session
        self._limits = limits

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """Send requests to the client between other messages, and wait for its answers, which come the same way."""
        return await self._session.questions.put(questions, self, self._limits)

    async def send_question(self, request_id: str, question: Question) -> None:
        if self._line is None:
            raise QuestionFailed("The client cannot be asked: the call has ended")
        self._line.write(self._words.question(request_id, question))
        self._asked()
        await self._line.drain()

    async def question_answered(self, request_id: str) -> None:
        """Nothing was kept."""

    async def cancel_question(self, request_id: str, reason: str) -> None:
        if self._line is not None:
            params = {"requestId": request_id, "reason": reason}
            self._line.write(self._words.notice(Notification("notifications/cancelled", params)))
