"""One HTTP/1.1 connection: requests in order, responses, back-pressure.

Requests go to the endpoint strictly in order. If no other request waits, a request is served in the callback that
completed it; a response that does not wait is written in the same callback, in one write. `_stream` is the response to
the request that the endpoint is handling now.

A rejection is sent after the responses to the requests before it and ends the connection. Further input is then read
and dropped for a moment, so that the rejection is not lost.

The end of the client's input counts as a disconnect, as in most servers: a half-closed connection cannot be
distinguished from a closed one, and a call must end soon after its caller has disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct

from pegboard.limits import Limits
from pegboard.server.eager_task import start
from pegboard.server.http.connections import Connections, unsent
from pegboard.server.http.limited_connection import LimitedConnection
from pegboard.server.http.request_reader import BODY, ENDED, FULL, HEAD, IDLE, RequestReader
from pegboard.server.http.responses import (
    CLOSE,
    CONTINUE,
    encode_answer,
    encode_head,
    encode_length,
    internal_error,
    plain_error,
)
from pegboard.server.http.server_request import NO_HEAD, ServerRequest
from pegboard.server.http_types import LIGHT, Answer, Endpoint, Head, Headers, Upgrade

log = logging.getLogger("pegboard.http")

# The rate of a body is checked after this time.
GRACE_SECONDS: Final = 5.0
# Above this size, the output of a stream is sent before the end of the turn.
FLUSH_BYTES: Final = 16 * 1024

Admit: TypeAlias = Callable[[Head], Answer | Coroutine[Any, Any, Answer | None] | None]
"""Authenticates the sender of a request; the rejection, or None."""

# Stands for a request that was rejected before it was complete.
UNREAD: Final = ServerRequest(NO_HEAD, b"", keep=False, chunks=True)
BUSY: Final = plain_error(503, "There is no room for the rest of this request: send it again later, in one piece.")


class ResponseStream(Struct, eq=False):
    """The response to one request, which the endpoint may use as a Sink to stream.

    Everything that is written in one turn of the loop is sent together, as one chunk.
    """

    connection: Http1Connection
    request: ServerRequest
    started: bool = False
    ended: bool = False
    gone: bool = False
    callbacks: tuple[Callable[[], object], ...] = ()
    task: asyncio.Task[Answer | None] | None = None
    _head: bytes = b""
    _written: bytes = b""
    _scheduled: bool = False

    def start(self, status: int, headers: Headers) -> None:
        if self.started or self.ended:
            raise RuntimeError("the response has already started")
        lines = encode_head(status, b"", headers)
        self.started = True
        request = self.request
        if not request.chunks:
            request.keep = False
        framing = b"transfer-encoding: chunked\r\n" if request.chunks else b""
        closing = b"" if request.keep else CLOSE
        self._head = b"".join((lines, self.connection.date, framing, closing, b"\r\n"))
        self._schedule()

    def write(self, chunk: bytes) -> bool:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        if self.gone:
            return False
        self._written += chunk
        if not self._scheduled:
            self._schedule()
        if len(self._written) > FLUSH_BYTES:
            self.flush()
        return not self.connection.full

    def flush(self) -> None:
        """Send what was written since the last flush."""
        self._scheduled = False
        if not self.gone and (self._head or self._written):
            data = self._take()
            self.connection.send(data)
            if len(data) > LIGHT:
                self.connection.note(len(data))

    def _schedule(self) -> None:
        self._scheduled = True
        # While its connection serves, the connection flushes when the call waits or has ended.
        if not self.connection.serving:
            self.connection.loop.call_soon(self.flush)

    def _take(self) -> bytes:
        head, self._head = self._head, b""
        body, self._written = self._written, b""
        if not body or self.request.head.method == b"HEAD":
            return head
        return b"%b%x\r\n%b\r\n" % (head, len(body), body) if self.request.chunks else head + body

    def rest(self) -> None:
        """Drop the request, except for what the end of the response needs: the stream has outlived its call."""
        request = self.request
        head = request.head if request.head.method == b"HEAD" else NO_HEAD
        self.request = ServerRequest(head, b"", request.keep, request.chunks)

    async def drain(self) -> None:
        if not self.gone:
            self.flush()
            await self.connection.drain()
        if self.gone:
            raise ConnectionError("the client has disconnected, or has read too slowly for too long")

    def end(self) -> None:
        if not self.started or self.ended:
            raise RuntimeError("the response is not open")
        self.ended = True
        if not self.gone:
            rest = self._take()
            if self.request.chunks and self.request.head.method != b"HEAD":
                rest += b"0\r\n\r\n"
            if rest:
                self.connection.send(rest)
            self.connection.finish(self)

    def on_gone(self, callback: Callable[[], object]) -> None:
        if self.gone:
            self.connection.loop.call_soon(callback)
        elif not self.ended:
            self.callbacks += (callback,)

    @property
    def is_open(self) -> bool:
        return self.started and not self.ended and not self.gone

    def cut(self) -> None:
        if not self.ended and not self.gone:
            self.connection.abort()

    def leave(self) -> None:
        """The client has disconnected: write nothing more, and call the callbacks once."""
        self.gone = True
        callbacks, self.callbacks = self.callbacks, ()
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("A disconnect callback failed")

    def task_done(self, task: asyncio.Task[Answer | None]) -> None:
        """The endpoint's coroutine ended after it had been suspended."""
        self.task = None
        if task.cancelled():
            self.connection.fail(self, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.connection.fail(self, error)
        else:
            self.connection.respond(self, task.result())


def find_address(transport: asyncio.BaseTransport, end: str) -> str:
    """The address at one end of a connection; empty for a socket file."""
    name = transport.get_extra_info(end)
    return str(name[0]) if isinstance(name, tuple) else ""


class Http1Connection(LimitedConnection):
    """One connection: reads requests, passes them to the endpoint one after the other, writes the responses."""

    __slots__ = (
        "_accept", "_admit", "_feed", "_last_stage", "_paused", "_reader", "_ready", "_resting", "_screened", "_screening", "_secure", "_served", "_stream", "loop", "send",
        "serving",
    )  # fmt: skip

    send: Callable[[bytes], None]

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        connections: Connections,
        *,
        secure: bool = False,
    ) -> None:
        super().__init__(limits, connections)
        self.loop = loop
        self._accept = endpoint.accept
        # Only an endpoint that authenticates has it.
        self._admit: Admit | None = getattr(endpoint, "admit", None)
        self._screened: Head | None = None
        self._screening: asyncio.Task[None] | None = None
        self._secure = secure
        self._stream: ResponseStream | None = None
        self.serving = False
        self._resting = False
        self._paused = False
        self._served = False

    @property
    def busy(self) -> bool:
        return self._stream is not None or bool(self._ready)

    @property
    def held(self) -> int:
        """The memory of requests that are not served yet and of responses that are not sent yet."""
        return self._reader.weight + unsent(self._transport, self._written)

    @property
    def date(self) -> bytes:
        return self._connections.date

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.send = self._transport.write
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer)
        ends = find_address(transport, "peername"), find_address(transport, "sockname")
        self._reader = RequestReader(self._limits, *ends, self._secure)
        self._ready = self._reader.ready
        self._feed = self._reader.feed
        self._last_stage = self._reader.stage
        connections = self._connections
        self._since = connections.now
        connections.live.add(self)
        if connections.changed is not None:
            connections.changed()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self._feed(data)
        if self._ready or reader.stage == ENDED:
            self.serve()
            if self._ready:
                self._pause_reading()
        if reader.stage != self._last_stage:
            self._last_stage = reader.stage
            self._since = self._connections.now
        if reader.stage or self._heavy or self._ready:
            self.weigh()
            if self._admit is not None and reader.stage == BODY and reader.head is not self._screened:
                self._screen(reader.head)
        if reader.continues and self._screening is None:
            self._continue()

    def _screen(self, head: Head) -> None:
        """Authenticate the sender of a request whose body is still to come; only the body of a known caller is read."""
        if self.busy or self._admit is None:
            # It is authenticated when the requests before it are answered.
            return
        self._screened = head
        refused = self._admit(head)
        if isinstance(refused, Answer):
            self._reader.refuse(refused)
            self.serve()
        elif refused is not None:
            self._paused = True
            self._transport.pause_reading()
            task = start(self._screen_later(refused), loop=self.loop)
            self._screening = None if task.done() else task

    async def _screen_later(self, pending: Coroutine[Any, Any, Answer | None]) -> None:
        refused = await pending
        self._screening = None
        if refused is not None:
            self._reader.refuse(refused)
        self.serve()

    def eof_received(self) -> None:
        self._disconnected()

    def connection_lost(self, error: Exception | None) -> None:
        self._disconnected()
        self._reader.close()
        self._forget()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.serve()

    # Requests to the endpoint, responses to the transport.

    def serve(self) -> None:
        """Serve waiting requests until one suspends, the client reads too slowly, or the turn is over."""
        if self.serving or self._resting or self._stream is not None:
            return
        self.serving = True
        ready = self._ready
        turns = self._limits.inline_answers
        while ready and self._stream is None and not self.full and not self._leaving:
            if not turns:
                self._resting = True
                self.loop.call_soon(self._wake)
                break
            turns -= 1
            request = ready.pop(0)
            self._stream = stream = ResponseStream(self, request)
            try:
                outcome = self._accept(request.head, request.body, stream)
                # Not `isinstance`: for the class of a struct it takes as long as ten such comparisons.
                if outcome is not None and type(outcome) is not Answer:
                    if type(outcome) is Upgrade:
                        self._switch(stream, outcome)
                        continue
                    task = outcome if isinstance(outcome, asyncio.Task) else start(outcome, loop=self.loop)
                    if not task.done():
                        # The loop only has weak references to tasks; this one lives at least as long as its connection.
                        stream.task = task
                        task.add_done_callback(stream.task_done)
                        stream.flush()
                        continue
                    outcome = task.result()
            except BaseException as error:  # noqa: BLE001 - an exception of a call, even SystemExit, ends only that call
                self.fail(stream, error)
            else:
                self.respond(stream, outcome)
        self.serving = False
        if not ready and self._stream is None and (self._paused or self._reader.stage):
            self._resume_reading()

    def _switch(self, stream: ResponseStream, upgrade: Upgrade) -> None:
        """Turn the connection into a WebSocket."""
        reader, connections = self._reader, self._connections
        if reader.stage != IDLE or self._ready:
            # RFC 6455, 4.1: "the client MUST wait for a response from the server before sending any further data".
            made: tuple[bytes, Callable[[], None]] | Answer = plain_error(
                400, "Send nothing before the WebSocket is open."
            )
        else:
            made = upgrade.take_over(upgrade, stream.request.head, self._transport, self._limits, connections)
        if isinstance(made, Answer):
            self.respond(stream, made)
            return
        response, begin = made
        self.send(response)
        if self._paused:
            self._transport.resume_reading()
        self._stream = None
        self._lost = self._leaving = True
        connections.live.discard(self)
        connections.forget(self)
        reader.close()
        begin()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def respond(self, stream: ResponseStream, answer: Answer | Upgrade | None) -> None:
        """Write a whole response, or check that the endpoint has started a stream."""
        if type(answer) is Upgrade:
            # It was authenticated while it waited.
            self._switch(stream, answer)
            return
        if answer is None or stream.started or stream.gone:
            self._watch_task(stream, answer)
            return
        request = stream.request
        connections = self._connections
        try:
            lines = encode_head(answer.status, answer.content_type, answer.headers)
        except ValueError as error:
            self.fail(stream, error)
            return
        if request.plain and connections.keep and not answer.close and answer.status != 204:
            body = answer.body
            self.send(b"".join((lines, connections.date, encode_length(len(body)), body)))
        else:
            request.keep = request.keep and connections.keep and not answer.close
            self.send(encode_answer(answer, request, connections.date))
        if len(answer.body) > LIGHT:
            self.note(len(answer.body))
        stream.ended = True
        self.finish(stream)

    def _watch_task(self, stream: ResponseStream, answer: Answer | None) -> None:
        if stream.gone:
            return
        if answer is None and stream.started:
            if not stream.ended:
                stream.flush()
                stream.rest()
                self._reader.rest()
            return
        self.fail(stream, RuntimeError("a request ended with no response, or with two"))

    def fail(self, stream: ResponseStream, error: BaseException) -> None:
        """The endpoint failed: send an error if the response has not started, otherwise cut the stream."""
        if stream.gone or stream.ended:
            if not isinstance(error, asyncio.CancelledError):
                log.error("A call failed after its response had ended", exc_info=error)
            return
        answer = internal_error(error)
        if not stream.started:
            self.respond(stream, answer)
            return
        stream.flush()
        stream.ended = True
        stream.request.keep = False
        if not stream.request.chunks:
            # The response ends with the connection: only a reset shows the client that it is incomplete.
            self._transport.abort()
        self.finish(stream)

    def finish(self, stream: ResponseStream) -> None:
        """The response is complete: continue with the next request, or close."""
        connections = self._connections
        self._stream = None
        if stream.callbacks:
            # A callback may refer to the stream: such a cycle would wait for the garbage collector.
            stream.callbacks = ()
        self._served = True
        self._since = connections.now
        if self._heavy:
            self.weigh()
        if not stream.request.keep:
            self._leaving = True
            self._transport.close()
        if connections.quiet is not None:
            connections.notify_if_quiet()
        if not self.serving and not self._leaving:
            self.serve()

    # Time and memory.

    def _check_input(self, now: float) -> None:
        waited = now - self._since
        limits = self._limits
        if self.busy:
            return
        if self._reader.stage == HEAD:
            if waited > limits.head_seconds:
                self._reject_slow(f"The head of a request must arrive within {limits.head_seconds:g} seconds.")
        elif self._reader.stage == BODY:
            if waited > limits.body_seconds or self._reader.received < limits.body_rate * (waited - GRACE_SECONDS):
                text = f"The body of a request must arrive within {limits.body_seconds:g} s, at {limits.body_rate} bytes a second."
                self._reject_slow(text)
        elif waited > (limits.idle_seconds if self._served else limits.head_seconds):
            self.close()

    def drop_buffers(self) -> None:
        """Drop all buffered data: there is no room for it."""
        self._heavy = False
        if self.busy or self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._reader.drop(BUSY)
            self.serve()

    def _reject_slow(self, text: str) -> None:
        self._reader.refuse(plain_error(408, text))
        self.serve()

    def _wake(self) -> None:
        self._resting = False
        if not self._lost:
            self.serve()

    def _pause_reading(self) -> None:
        """Stop reading while enough requests wait, by number or by the size of their bodies."""
        limits = self._limits
        enough = (
            len(self._ready) >= limits.pipelined
            or sum(len(request.body) for request in self._ready) > limits.body_bytes
        )
        if enough and not self._paused and not self._lost and not self._leaving:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """No request waits any more: continue reading, ask for an announced body, or send the rejection."""
        if self._lost or self._leaving:
            return
        reader = self._reader
        if reader.stage == FULL:
            reader.read_on()
            self._last_stage = reader.stage
            self._since = self._connections.now
            self.weigh()
            if self._ready:
                # In the next turn of the loop, so that other connections are served too.
                self._resting = True
                self.loop.call_soon(self._wake)
                return
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if reader.continues:
            self._continue()
        refusal = reader.refusal
        if refusal is not None and not self.full:
            self._refuse(refusal)

    def _continue(self) -> None:
        reader = self._reader
        if reader.stage == BODY and not self.busy:
            reader.continues = False
            if not reader.received:
                self.send(CONTINUE)

    def _refuse(self, refusal: Answer) -> None:
        self._leaving = True
        self._since = self._connections.now
        self.send(encode_answer(refusal, UNREAD, self.date))
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _disconnected(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._since = self._connections.now
        self._ready.clear()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()
        if self._room is not None:
            self._room.set()
