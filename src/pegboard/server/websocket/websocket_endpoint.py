"""`/ws`: JSON-RPC in both directions, and streams beside it.

Theory of operation. A text message is JSON-RPC, served as on any line, or belongs to a stream; a binary message is a
chunk of a stream. A stream that a client starts is a call of the tool it names, with all hooks, and any number of
streams share the socket. Chunks that a tool has not read are buffered up to a limit for the whole socket; beyond it the
socket is not read, so that the peer's writes wait. The limit is much lower while all sockets together buffer a lot. A
tool that does not read for too long loses its stream, since the other streams of the socket wait too. A sender that
requests a window waits for credit instead, without affecting the others: its stream buffers only a small part of the
limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from msgspec import UNSET

from pegboard.bounded_dict import BoundedDict
from pegboard.call import EMPTY_OBJECT, Call, Caller, RequestId
from pegboard.errors import Busy, InvalidRequest, MethodNotFound, Refusal, StreamError
from pegboard.execution.connector import ToolConnector
from pegboard.protocol import jsonrpc
from pegboard.protocol.framing import stream_frames
from pegboard.protocol.framing.stream_frames import StreamFrame, StreamMeta
from pegboard.protocol.jsonrpc import NOTHING, Message
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.protocol.revisions import MODERN
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.exchange.admission import stream_call
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.conversation import Conversation
from pegboard.server.exchange.direct_method import answer_directly, as_tool_call, is_direct
from pegboard.server.exchange.exchanges import LineExchange, run_call, shutting_down
from pegboard.server.exchange.fast_path import CALL
from pegboard.server.exchange.service import Service
from pegboard.server.http.guard import Guard
from pegboard.server.http.responses import error_response, method_not_allowed, text_response
from pegboard.server.http_types import Answer, EndpointResult, Head, MessageSocket, Sink, SocketHandler, Upgrade
from pegboard.server.websocket.call_streams import CallStreams, StreamExchange, as_failure, reject_streamed_question
from pegboard.server.websocket.stream_flow import UnreadBytes, WriteTurns, timestamp
from pegboard.server.websocket.websocket_connection import take_over
from pegboard.sessions.session import Session
from pegboard.tools.tool import Tool

TRANSPORT: Final = "ws"
_CALLER: Final = Caller(version=MODERN, transport=TRANSPORT)
_GENERATORS: Final = frozenset({"generator", "async_generator"})
_REMEMBERED: Final = 256
# RFC 6455, the registry of close codes.
_TRY_AGAIN_LATER: Final = 1013
# Memory of a waiting message in addition to its bytes: text and binary.
_TEXT_COST: Final = 41
_BYTES_COST: Final = 225


def asks_for_websocket(head: Head) -> bool:
    """Whether a request opens a WebSocket (RFC 6455, 4.2.1)."""
    return head.headers.get(b"upgrade", b"").lower() == b"websocket"


class WebSocketEndpoint:
    """Serves one Handler over WebSockets."""

    def __init__(self, service: Service, guard: Guard, calls: CallsInFlight) -> None:
        self._service = service.over(TRANSPORT)
        self._guard = guard
        self._calls = calls
        self._unread = UnreadBytes(service.limits)

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        """Accept a client, after the same checks as at the other endpoints."""
        allowed = self._guard.check(head)
        if isinstance(allowed, Answer):
            return allowed
        if head.method != b"GET":
            return method_not_allowed(b"GET", allowed)
        if not asks_for_websocket(head):
            return text_response(
                426, "This is a WebSocket: open it with a WebSocket client", (*allowed, (b"upgrade", b"websocket"))
            )
        if self._calls.draining:
            return error_response(shutting_down(), allowed)
        account = self._calls.accounts.of(head.access)
        if account is not None and not account.unclaimed and not account.has_room("streams"):
            return error_response(account.exceeded("streams"), allowed)
        return Upgrade(partial(self._open, head.access, head.peer), take_over)

    def _open(self, access: Access, address: str, socket: MessageSocket) -> SocketHandler:
        socket_handler = WebSocketConversation(self._service, socket, self._calls, self._unread, access)
        socket_handler.address = address
        try:
            self._calls.follow(socket_handler)
        except Refusal as refusal:
            socket.close(_TRY_AGAIN_LATER, refusal.message)
        return socket_handler


class WebSocketConversation(Conversation):
    """Serves one WebSocket."""

    def __init__(
        self,
        service: Service,
        socket: MessageSocket,
        calls: CallsInFlight,
        unread: UnreadBytes | None = None,
        access: Access = NO_ACCESS,
    ) -> None:
        super().__init__(service, socket, asyncio.get_running_loop(), access)
        self.since = 0.0
        self.account = access.account
        self._socket = socket
        self._calls = calls
        self._gone = False
        self._unread = UnreadBytes(self._limits) if unread is None else unread
        self._held = 0
        self._over = False
        self._listening = 0.0
        self._context = copy_context()
        self._stalled: asyncio.TimerHandle | None = None
        # By the ids that their callers chose, and by the keys that stand for these in binary chunks.
        self.streams: dict[str, tuple[CallStreams, LineExchange]] = {}
        self._keys: dict[bytes, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = WriteTurns()
        # Ended streams whose senders may not know yet that they have ended.
        self._past: BoundedDict[str | bytes, None] = BoundedDict(_REMEMBERED)

    # -- the socket --------------------------------------------------------------------------------------------------

    def receive_text(self, message: bytes) -> None:
        self._waiting.append(message)
        self.resume_if_room()

    def receive_bytes(self, message: bytes) -> None:
        self._waiting.append(memoryview(message))
        self.resume_if_room()

    @property
    def gone(self) -> bool:
        return self._gone

    def leave(self) -> None:
        """The peer has disconnected and cannot get its responses: cancel its calls."""
        if self._gone:
            return
        self._gone = True
        self._waiting.clear()
        self._calls.forget(self)
        self.following.leave()
        self._resume_reading()
        for task in (*(task for task, _ in self.calls.values()), *self._tasks.values()):
            # Cancel once: a call that was cancelled before may still be cleaning up.
            if not task.cancelling():
                task.cancel()
        self.end_session()

    def keep_alive(self) -> None:
        """Nothing to do: the connection itself sends pings."""

    def end(self) -> None:
        """Shut down: running calls finish, and the endpoint closes the socket."""
        self._draining = True
        self.following.end()

    def _hold(self, paused: bool) -> None:
        self._listening = self._loop.time()
        self._socket.hold(paused)

    def _heard_since(self) -> float:
        return math.inf if self._paused else self._listening

    @property
    def _full(self) -> bool:
        return self._held > self._unread.allowed or super()._full

    @property
    def held(self) -> int:
        costs = (_BYTES_COST if isinstance(message, memoryview) else _TEXT_COST for message in self._waiting)
        return self._held + sum(costs) + sum(map(len, self._waiting))

    def _run(self, exchange: LineExchange, walk: Coroutine[Any, Any, None], size: int) -> asyncio.Task[None] | None:
        task = self._calls.run(exchange, walk, size, self._access)
        return task if isinstance(task, asyncio.Task) else None

    def _weigh(self, size: int) -> None:
        self._held += size
        self._unread.held += size
        over, self._over = self._over, self._held > self._unread.allowed
        if size < 0:
            self._resume_reading()
            if over and not self._over and not self._gone:
                # Not here, in the context of a running call: what is served next must not inherit it.
                self._loop.call_soon(self.resume_if_room, context=self._context)
        if self._over and self._stalled is None and not self._gone:
            self._stalled = self._loop.call_later(
                self._limits.unread_seconds, self._stop_waiting, context=self._context
            )

    def _resume_reading(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _stop_waiting(self) -> None:
        """Nothing has been read for too long: end the stream with the most unread data."""
        self._stalled = None
        if not self.streams:
            return
        stream_id, (streams, _) = max(self.streams.items(), key=lambda item: item[1][0].inbound.held)
        unread, seconds = streams.inbound.unread, self._limits.unread_seconds
        self._break(stream_id, StreamError("Stream timeout", {"timeout": seconds, "unread": unread}))

    # -- messages ----------------------------------------------------------------------------------------------------

    def take(self, message: bytes | memoryview) -> None:
        """Serve one text or binary message."""
        if isinstance(message, memoryview):
            self._try(self._receive_chunk, message)
        else:
            super().take(message)

    def _take(self, line: bytes) -> None:
        try:
            frame = stream_frames.read(line, self._limits)
        except Refusal as refusal:
            self._refuse_stream(refusal.request_id, refusal)
            return
        if frame is None:
            super()._take(line)
            return
        try:
            self._receive_frame(frame)
        except StreamError as fault:
            self._break(frame.id, fault)
        except Refusal as refusal:
            self._refuse_stream(frame.id, refusal, frame.meta.method if isinstance(frame.meta, StreamMeta) else "")

    def _receive_frame(self, frame: StreamFrame) -> None:
        if frame.type == "start":
            self._start_stream(frame)
            return
        if frame.type == "cancel":
            self._cancel(frame.id)
            return
        if frame.type == "credit":
            self._grant(frame)
            return
        found = self.streams.get(frame.id)
        if found is None:
            self._check_known(frame.id)
            return
        inbound = found[0].inbound
        if frame.type == "chunk":
            index = -1 if frame.index is UNSET else frame.index
            # A copy without the rest of the message; decoded when it is read, since that may take twenty times the memory.
            inbound.take(index, frame.data.copy(), len(frame.data), binary=False)
        elif frame.type == "done":
            inbound.finish(None if frame.summary is NOTHING else jsonrpc.decode_json(frame.summary))
        else:
            inbound.fail(stream_frames.read_failure(frame.error))

    def _receive_chunk(self, message: memoryview) -> None:
        try:
            key, index, payload = stream_frames.split(message)
            stream_id = self._keys.get(key)
            if stream_id is None:
                self._check_known(key)
                return
        except Refusal as refusal:
            self._refuse_stream(None, refusal)
            return
        try:
            self.streams[stream_id][0].inbound.take(index, bytes(payload), len(payload), binary=True)
        except StreamError as fault:
            self._break(stream_id, fault)

    def _check_known(self, stream_id: str | bytes) -> None:
        """Reject a message for an unknown stream; a late one for a stream that has ended is dropped."""
        if stream_id not in self._past:
            shown_id = stream_id if isinstance(stream_id, str) else f"with the bytes {stream_id.hex()}"
            raise InvalidRequest(f"There is no stream {shown_id[:80]}: begin one with start")

    # -- streams -----------------------------------------------------------------------------------------------------

    def _start_stream(self, frame: StreamFrame) -> None:
        meta, stream_id = frame.meta, frame.id
        if meta is UNSET:
            raise InvalidRequest("A start message must have meta")
        if self._draining:
            raise shutting_down()
        streams = self._make_streams(stream_id, meta, meta.binary)
        session, codec = self._legacy, self._codec
        ask = reject_streamed_question if session is None else self._questions(session, codec).ask
        exchange = StreamExchange(self._socket, codec, stream_id, ask, streams=streams)
        call = stream_call(stream_id, meta.method, meta.arguments, self._caller(session), exchange, streams)
        if not self._reaches_streams(call, unknown=True):
            raise MethodNotFound("Tool does not support streaming: call it with tools/call", {"method": meta.method})
        self._walk(call, exchange)

    def _make_streams(self, stream_id: str, meta: StreamMeta, binary: bool | None) -> CallStreams:
        if stream_id in self.streams:
            earlier, exchange = self.streams[stream_id]
            # A peer may use the id again as soon as it has the end of the stream, before the task of its call has ended.
            if not exchange.ended:
                raise InvalidRequest(f"The stream {stream_id!r} is already open: use another id")
            self._forget(earlier)
        if len(self.streams) >= self._limits.calls_per_caller:
            raise Busy(f"{self._limits.calls_per_caller} streams are already open on this socket", retry_after=1)
        streams = CallStreams(
            self._socket, self._turns, stream_id, meta, binary, self._limits, self._weigh, self._heard_since
        )
        holder = None if binary is False else self.streams.get(self._keys.get(streams.key, ""))
        if holder is not None and holder[0].inbound.binary is not False:
            raise InvalidRequest(
                "Another open binary stream also has an id that is not a GUID: use a GUID for this one"
            )
        return streams

    @property
    def _codec(self) -> RevisionCodec:
        session = self._legacy
        return self._service.modern if session is None else self._service.legacy[session.caller.version]

    def _caller(self, session: Session | None) -> Caller:
        return self._access.bind(_CALLER) if session is None else session.caller

    def _reaches_streams(self, call: Call, *, unknown: bool) -> bool:
        """Whether the tool of a call supports streams; `unknown` if the tool is not known."""
        # The handler only resolves the call here, and so sets `call.tool`: nothing runs.
        self._handler(call).close()
        tool = call.tool
        if not isinstance(tool, Tool):
            return unknown
        return tool.kind in _GENERATORS or ToolConnector in tool.injected.values()

    def _walk(self, call: Call, exchange: StreamExchange) -> None:
        streams = exchange.streams
        stream_id = streams.id
        self.streams[stream_id] = streams, exchange
        if streams.inbound.binary is not False:
            self._keys[streams.key] = stream_id
        elif streams.key != stream_frames.NO_GUID:
            # Binary data for a text stream is the fault of its sender, and reported on that stream.
            self._keys.setdefault(streams.key, stream_id)
        self._past.pop(stream_id, None)
        self._past.pop(streams.key, None)
        streams.begin()
        try:
            task = self._run(exchange, run_call(self._handler, call, exchange), len(call.raw))
        except Refusal:
            self._forget(streams)
            raise
        if task is None:
            self._forget(streams)
            return
        self._tasks[stream_id] = task
        task.add_done_callback(lambda _: self._forget(streams))

    def _forget(self, streams: CallStreams) -> None:
        if self.streams.get(streams.id, (None,))[0] is not streams:
            return
        del self.streams[streams.id]
        self._tasks.pop(streams.id, None)
        for past in (streams.id, streams.key):
            self._past[past] = None
        if self._keys.get(streams.key) == streams.id:
            del self._keys[streams.key]
        streams.forget()

    def _break(self, stream_id: str, fault: StreamError) -> None:
        """End a stream whose sender violates the protocol, and its call."""
        found = self.streams.get(stream_id)
        if found is None:
            return
        streams, exchange = found
        exchange.refuse(fault)
        task = self._tasks.get(stream_id)
        self._forget(streams)
        if task is not None:
            task.cancel()

    def _cancel(self, request_id: RequestId) -> None:
        super()._cancel(request_id)
        for stream_id, (streams, _) in tuple(self.streams.items()):
            if request_id == stream_id or (isinstance(request_id, str) and streams.find(request_id)):
                task = self._tasks.get(stream_id)
                if task is not None:
                    task.cancel()

    def _grant(self, frame: StreamFrame) -> None:
        for streams, _ in self.streams.values():
            opened = streams.find(frame.id)
            if opened is not None and frame.granted is not UNSET:
                opened.grant(frame.granted)
                return
        # The stream may have ended meanwhile, which the sender of the credit cannot know.

    def _refuse_stream(self, stream_id: RequestId | None, refusal: Refusal, method: str = "") -> None:
        about = stream_id if isinstance(stream_id, str) else None
        self._socket.write(stream_frames.error(about, timestamp(), as_failure(refusal, method)))

    # -- streams by JSON-RPC -----------------------------------------------------------------------------------------

    def _make_call(self, message: Message, method: str, request_id: RequestId) -> tuple[Call, LineExchange] | None:
        # A method that is the name of a tool begins a binary stream, as in the first version of this protocol.
        started = self._start_by_name(message, method, request_id) if is_direct(method) else None
        if started is not None:
            self._walk(*started)
            return None
        if not self._service.direct_methods or not is_direct(method):
            return super()._make_call(message, method, request_id)
        made = super()._make_call(as_tool_call(message, method), CALL, request_id)
        if made is not None:
            self._start(*made, request_id, answer_directly(self._handler))
        return None

    def _start_by_name(
        self, message: Message, method: str, request_id: RequestId
    ) -> tuple[Call, StreamExchange] | None:
        session, raw = self._legacy, EMPTY_OBJECT if message.params is NOTHING else message.params
        meta = StreamMeta(method=method, binary=True, arguments=raw, correlation_id=request_id)
        streams = self._make_streams(str(request_id), meta, None)
        streams.about = request_id
        exchange = StreamExchange(
            self._socket, self._codec, request_id, reject_streamed_question, streams=streams, direct=True
        )
        call = stream_call(request_id, method, raw, self._caller(session), exchange, streams)
        return (call, exchange) if self._reaches_streams(call, unknown=False) else None
