"""Streams that send changes to a client: of `subscriptions/listen`, of a legacy GET, and on a shared line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Raw, Struct

from pegboard.call import NULL_CHANNEL, Call, Caller, Handler, Reply, RequestId, Subscribed
from pegboard.errors import Busy, Refusal
from pegboard.protocol.framing import sse
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.server.eager_task import start
from pegboard.server.exchange.exchanges import STREAM, HttpExchange, LineExchange, MessageLine
from pegboard.server.exchange.session_exchange import RETRY_MS
from pegboard.server.exchange.subscribers import Subscriber, Subscribers
from pegboard.server.http_types import Headers, Sink
from pegboard.sessions.session import Session

_log = logging.getLogger("pegboard.server")

LISTEN: Final = "subscriptions/listen"
_STREAMS_A_SESSION: Final = 8

_EVERY_LIST: Final = Raw(
    b'{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"dev.pegboard/notifications":true}}'
)


class EventOutput(Struct, eq=False):
    """A stream of events; numbered in the legacy revisions, so that it can be resumed."""

    sink: Sink
    numbered: bool

    def send(self, message: bytes, number: int | None) -> bool:
        return self.sink.write(sse.event(message, event_id(number) if self.numbered and number is not None else None))

    async def drain(self) -> None:
        await self.sink.drain()

    def keep_alive(self) -> None:
        self.sink.write(sse.KEEP_ALIVE)

    def close(self) -> None:
        self.sink.end()


def event_id(number: int) -> str:
    """The id of the event for a change."""
    return f"g-{number}"


def read_event_id(text: str) -> int:
    """The number in such an id; -1, which is before every change, if it is invalid."""
    number = text.removeprefix("g-")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else -1


def listen_handler(handler: Handler, exchange: HttpExchange, codec: RevisionCodec, subscribers: Subscribers) -> Handler:
    """The Handler of a listen over HTTP: from its acknowledgement on, the stream belongs to a subscriber."""

    async def listen(call: Call) -> Reply:
        reply = await handler(call)
        sink = exchange.sink
        if isinstance(reply, Subscribed) and sink is not None:
            output = EventOutput(sink, numbered=False)
            subscriber = Subscriber(reply, codec, output, subscribers, subscription=call.id)
            subscribers.admit(subscriber)
            exchange.hand_over()
            subscribers.begin(subscriber)
            # Cancellation: "The server MUST treat a client disconnect as cancellation of that request".
            sink.on_gone(subscriber.leave)
        return reply

    return listen


def subscribe_session(
    follow: Subscribed,
    codec: RevisionCodec,
    sink: Sink,
    headers: Headers,
    session: Session,
    last: str,
    followers: Subscribers,
    left: Callable[[Subscriber], object],
) -> None:
    """Open the stream of a GET: the session receives the changes of every list, and of the resources it subscribed to.

    It begins after the last event that the client saw, or else at the position of the session's streams. `left` is
    called when it has ended.
    """
    if last:
        after: int | None = read_event_id(last)
    else:
        after = session.listeners[-1].after if session.listeners else session.heard
    outlet = EventOutput(sink, numbered=True)
    subscriber = Subscriber(follow, codec, outlet, followers, uris=session.uris, after=after, left=left)
    followers.admit(subscriber)
    if len(session.listeners) >= _STREAMS_A_SESSION:
        # Only the newest stream carries events; the others wait for its end, and a few are enough.
        session.listeners[0].end()
    sink.start(200, STREAM + headers)
    # Send something at once in every revision: a client, or a proxy in between, may wait for the first byte.
    sink.write(
        sse.KEEP_ALIVE + (sse.prime(event_id(subscriber.after), RETRY_MS) if codec.revision.polls_streams else b"")
    )
    session.listen(subscriber)
    followers.begin(subscriber)
    sink.on_gone(subscriber.leave)


class SharedLine(MessageLine, Protocol):
    """A line whose reader may lag behind."""

    @property
    def full(self) -> bool: ...


class LineOutput(Struct, eq=False):
    """A line that all subscribers of a connection share, with all other messages."""

    line: SharedLine

    def send(self, message: bytes, number: int | None) -> bool:
        self.line.write(message)
        return not self.line.full

    async def drain(self) -> None:
        await self.line.drain()

    def keep_alive(self) -> None:
        """Send nothing: there is no proxy in between."""

    def close(self) -> None:
        """Do nothing: the line is shared."""


class LineSubscriptions:
    """The subscribers of one line: each listen by its id, and a legacy client under None.

    `uris` are the resources that a legacy client has subscribed to.
    """

    def __init__(self, handler: Handler, line: SharedLine, followers: Subscribers) -> None:
        self.uris: set[str] = set()
        self._handler = handler
        self._line = line
        self._outlet = LineOutput(line)
        self._followers = followers
        self._ended = False
        self._by_id: dict[RequestId | None, Subscriber] = {}
        self._joining: asyncio.Task[None] | None = None

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._by_id

    def listen_handler(self, exchange: LineExchange, codec: RevisionCodec) -> Handler:
        """The Handler of a listen: from its acknowledgement on, the id of the request belongs to a subscriber."""

        async def listen(call: Call) -> Reply:
            reply = await self._handler(call)
            if isinstance(reply, Subscribed) and not exchange.ended:
                self.begin(reply, codec, call.id)
                exchange.hand_over()
            return reply

        return listen

    def begin(self, follow: Subscribed, codec: RevisionCodec, request_id: RequestId | None) -> None:
        """Send the client the changes from now on."""
        subscriber = Subscriber(
            follow,
            codec,
            self._outlet,
            self._followers,
            subscription=request_id,
            uris=self.uris if request_id is None else None,
            left=lambda _: self._by_id.pop(request_id, None),
        )
        self._followers.admit(subscriber)
        self._by_id[request_id] = subscriber
        self._followers.begin(subscriber)

    def cancel(self, request_id: RequestId | None) -> None:
        """The client has cancelled its subscription: send nothing more for it."""
        subscriber = self._by_id.get(request_id)
        if subscriber is not None:
            subscriber.leave()

    def begin_legacy(self, caller: Caller, codec: RevisionCodec) -> None:
        """Start `join`, in place of an earlier one."""
        self.cancel(None)
        # At once: the next message may already change a list.
        self._joining = start(self.join(caller, codec), loop=asyncio.get_running_loop())

    async def join(self, caller: Caller, codec: RevisionCodec) -> None:
        """Send a legacy client the changes of every list, and of the resources it subscribes to."""
        follow = await subscribe_lists(self._handler, caller)
        if follow is None or None in self._by_id or self._ended:
            return
        try:
            self.begin(follow, codec, None)
        except Busy as busy:
            _log.warning("a client will not receive changes: %s", busy.message)

    def end(self) -> None:
        """End all subscriptions gracefully."""
        self._ended = True
        for subscriber in tuple(self._by_id.values()):
            subscriber.end()

    def leave(self) -> None:
        """The client has disconnected: send nothing more."""
        self._ended = True
        for subscriber in tuple(self._by_id.values()):
            subscriber.leave()


async def subscribe_lists(handler: Handler, caller: Caller) -> Subscribed | None:
    """The changes that a legacy client receives without a request: those of all lists; None if the board has none."""
    call = Call(method=LISTEN, caller=caller, channel=NULL_CHANNEL, params=_EVERY_LIST)
    try:
        reply = await handler(call)
    except Refusal:
        return None
    return reply if isinstance(reply, Subscribed) else None
