"""The response of a legacy call: JSON, or a resumable stream with questions.

Theory of operation. No stream is opened until the call sends a notification or question; most calls never do, and their
response is plain JSON that does not touch the store. From then on every message is appended to the stream's log and
then sent on the connection, if there is one; a client that lost its connection misses nothing, and the call does not
notice. These steps run one at a time under a lock, since a store may take a moment. `finish` and the like cannot wait
for it: once the lock exists, they leave the response to `finish_stream`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from pegboard.call import Json, Notification, Question
from pegboard.errors import InvalidRequest, QuestionFailed, StoreDown
from pegboard.limits import Limits
from pegboard.protocol.framing import sse
from pegboard.protocol.legacy_codec import write_question
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.server.exchange.exchanges import HttpExchange, MessageLine
from pegboard.server.http_types import Answer, Sink
from pegboard.sessions.resumable_streams import SessionStream, event_id
from pegboard.sessions.session import Session

_log = logging.getLogger("pegboard.server")

RETRY_MS: Final = 1000


class SessionExchange(HttpExchange, eq=False, kw_only=True):
    """One request of a session over HTTP; `streaming` from the first message on, whether or not it could be sent."""

    session: Session
    limits: Limits
    _done: bool = False
    _clogged: bool = False
    _sent: int = 0
    _answer: Answer | None = None
    _stream: SessionStream | None = None
    # Created when the call first sends something.
    _turn: asyncio.Lock | None = None
    _detached: asyncio.Future[None] | None = None
    _asked: dict[str, int] | None = None
    _opening: asyncio.Task[None] | None = None

    # -- what the call sends -----------------------------------------------------------------------------------------

    async def emit(self, notice: Notification) -> None:
        """Send a notification on the call's stream, which the first one opens."""
        begins = self._stream is None
        if self._done or (begins and not self._reachable):
            return
        message = self._codec.notice(notice)
        if not message:
            return
        await self._append_and_send(message)
        if begins and self.sink is not None:
            self.sink.flush()
        if self._clogged and self.sink is not None:
            await self._catch_up(self.sink)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        """Send requests to the client on the call's stream, and wait for its answers, which come by POST."""
        if not self._accepts.stream:
            raise InvalidRequest("This call asks its caller something, so Accept must allow text/event-stream")
        return await self.session.questions.put(questions, self, self.limits)

    async def send_question(self, request_id: str, question: Question) -> None:
        seq = await self._append_and_send(write_question(request_id, question, self._codec.version), keep=True)
        if not seq:
            raise QuestionFailed("The client cannot be asked: it has disconnected, or has too many streams open")
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
        """End the connection, not the call: a client that supports it reconnects for the rest after that time."""
        if self._done or not self._codec.revision.polls_streams:
            return
        async with self._take_turn():
            opened = self._stream or await self._open_stream(retry_ms)
            if opened is not None:
                await self.session.streams.hand_off(opened.id, retry_ms)

    def keep_alive(self) -> None:
        """Send a keep-alive to the client and the proxies in between; from now on the stream can be resumed."""
        if self._done or not self._reachable or self.sink is None:
            return
        if self._stream is not None:
            self.sink.write(sse.KEEP_ALIVE)
        else:
            self._opening = asyncio.ensure_future(self._open_quietly())

    # -- its connection ----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The client has disconnected: send nothing more."""
        self.sink = None
        if self._detached is not None and not self._detached.done():
            self._detached.set_result(None)
        if self._stream is not None:
            self.session.streams.release(self._stream.id, self)

    def detach_connection(self, retry_ms: int | None) -> None:
        """End this connection: the stream continues on another one, or later."""
        sink = self.sink
        self.leave()
        if sink is not None:
            if retry_ms is not None:
                sink.write(sse.retry(retry_ms))
            sink.end()

    @property
    def _reachable(self) -> bool:
        return self.sink is not None and self._accepts.stream

    def _take_turn(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
            self.streaming = True
        return self._turn

    async def _append_and_send(self, data: bytes, *, keep: bool = False) -> int:
        """Append a message to the log and send it; returns its number, or 0 if there is no stream for it."""
        if self._done:
            return 0
        turn = self._turn or self._take_turn()
        # As `async with`, which enters two functions more for each event.
        await turn.acquire()
        try:
            opened = self._stream or await self._open_stream(RETRY_MS)
            if opened is None:
                return 0
            seq = await opened.append(data, keep=keep)
            if not seq:
                # The stream has been ended, so the client cannot see the result of this call.
                self.session.cancel(self._id)
            elif self.sink is not None:
                await self._send(opened, seq, data)
            return seq
        finally:
            turn.release()

    async def _send(self, opened: SessionStream, seq: int, data: bytes) -> None:
        """Write an event that is in the log, and those before it that could not be written."""
        missed = () if seq == self._sent + 1 else await opened.read(self._sent)
        sink, self._sent = self.sink, seq
        if sink is None:
            return
        for entry in missed:
            if entry.seq < seq and entry.data:
                sink.write(sse.event(entry.data, event_id(opened.id, entry.seq)))
        if data:
            self._clogged = not sink.write(sse.event(data, event_id(opened.id, seq)))

    async def _open_stream(self, retry_ms: int) -> SessionStream | None:
        if not self._reachable:
            return None
        opened = self._stream = await self.session.streams.open(self, self._id)
        if opened is not None and self.sink is not None:
            self._open(self.sink)
            if self._codec.revision.polls_streams:
                self.sink.write(sse.prime(event_id(opened.id, 0), retry_ms))
        return opened

    async def _open_quietly(self) -> None:
        async with self._take_turn():
            if self._done or self._stream is not None:
                return
            try:
                opened = await self._open_stream(RETRY_MS)
            except StoreDown:
                _log.warning("the stream of a call could not be opened")
                return
            if opened is not None and self.sink is not None:
                self.sink.write(sse.KEEP_ALIVE)

    async def _catch_up(self, sink: Sink) -> None:
        """Wait until the client has read enough, unless it leaves or another connection takes over."""
        if self._detached is None:
            self._detached = asyncio.get_running_loop().create_future()
        drained = asyncio.ensure_future(sink.drain())
        try:
            await asyncio.wait({drained, self._detached}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()
        if drained.done() and not drained.cancelled() and drained.exception() is not None and self.sink is sink:
            # That ends the connection, not the stream.
            self.leave()

    # -- its response ------------------------------------------------------------------------------------------------

    async def finish_stream(self) -> Answer | None:
        """Put the response into the stream of the call, if it could not be sent at once."""
        if self._turn is None:
            return None
        async with self._turn:
            stream, answer = self._stream, self._answer
            if stream is None:
                return self._end_unstreamed(answer)
            await self._send_end(stream, b"" if answer is None else answer.body)
            sink, self.sink = self.sink, None
            if sink is not None:
                sink.end()
            self.session.streams.release(stream.id, self)
            return None

    async def _send_end(self, stream: SessionStream, body: bytes) -> None:
        try:
            seq = await stream.append(body, end=True)
            if seq:
                await self._send(stream, seq, body)
        except StoreDown:
            # A response that cannot be resumed is better than none.
            _log.warning("the response of a call could not be stored")
            if body and self.sink is not None:
                self.sink.write(sse.event(body))

    def _end(self, answer: Answer | None) -> Answer | None:
        self._done = True
        if not self.streaming:
            return self._end_unstreamed(answer)
        self._answer = answer
        return None


class LineQuestions(Struct, eq=False):
    """The questions of one call: requests to the client between other messages; the answers arrive on the same line.

    `asked` is called after each request, since the answer can only arrive if the line is read.
    """

    line: MessageLine
    codec: RevisionCodec
    session: Session
    limits: Limits
    asked: Callable[[], object] = bool

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        return await self.session.questions.put(questions, self, self.limits)

    async def send_question(self, request_id: str, question: Question) -> None:
        self.line.write(write_question(request_id, question, self.codec.version))
        self.asked()
        await self.line.drain()

    async def question_answered(self, request_id: str) -> None:
        """Do nothing: the request was not stored."""

    async def cancel_question(self, request_id: str, reason: str) -> None:
        params = {"requestId": request_id, "reason": reason}
        self.line.write(self.codec.notice(Notification("notifications/cancelled", params)))
