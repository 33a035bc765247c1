"""Open streams that receive a board's changes, each a position in the change log.

Theory of operation. A subscriber has no task, queue or timer. One watch of the log serves all subscribers of an
endpoint: after a change each of them, in small groups so that the loop stays responsive, reads the log from its
position, writes what its filter lets through and advances. A subscriber whose reader is slow stays at its position and
reads again when the reader has caught up; repeated changes are then one entry of the log. A subscriber that another
process advanced beyond the local log waits for the log in the same way. A resource update that follows the last one too
soon stops its subscriber at that position until the interval has passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from pegboard.call import Change, ChangeFilter, ChangeSource, Done, Json, Notification, RequestId, Subscribed
from pegboard.errors import Busy
from pegboard.protocol import jsonrpc
from pegboard.protocol.json_values import as_object
from pegboard.protocol.modern_codec import RevisionCodec
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import CHANGE_METHODS, OWN_NOTIFICATIONS
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import shutting_down

_log = logging.getLogger("pegboard.server")

MIN_INTERVAL_SECONDS: Final = 0.1
_MAX_BATCH: Final = 200
_URI_COST: Final = 100
"""The memory of a URI in addition to its characters."""


class SubscriberOutput(Protocol):
    """Writes the messages of a subscriber."""

    def send(self, message: bytes, number: int | None) -> bool:
        """Write a message; `number` is set if it is the last one about the changes up to that number.

        False if the reader lags behind: then call `drain` before the next message.
        """

    async def drain(self) -> None:
        """Wait until the reader has caught up; raises ConnectionError if it has disconnected."""

    def keep_alive(self) -> None: ...

    def close(self) -> None: ...


class Subscriber:
    """One stream: its position in the log, its filter, and its output.

    `subscription` is the id of the request that opened it; revision 2026-07-28 has it in every message. `uris` are read
    again for each change, so that a session may change them. An `idle` subscriber receives nothing.
    """

    __slots__ = (
        "_codec",
        "_filter",
        "_followers",
        "_last_sent",
        "_left",
        "_outlet",
        "_reached",
        "_subscription",
        "_uris",
        "_visible",
        "account",
        "after",
        "changes",
        "idle",
        "lags",
        "since",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        follow: Subscribed,
        codec: RevisionCodec,
        outlet: SubscriberOutput,
        followers: Subscribers,
        *,
        subscription: RequestId | None = None,
        uris: Collection[str] | None = None,
        after: int | None = None,
        left: Callable[[Subscriber], object] | None = None,
    ) -> None:
        self.changes = follow.changes
        self.after = follow.changes.last if after is None else after
        self.account = follow.account
        self._visible = follow.visible
        if self._visible is not None and self.after != follow.changes.last:
            self._visible.resume()
        self.idle = False
        self.lags = False
        self.since = 0.0
        self._filter = follow.filter
        self._uris: Collection[str] = follow.filter.uris if uris is None else uris
        # The URIs of a session count for the session.
        self.weight = 0 if uris is not None else sum(len(uri) + _URI_COST for uri in self._uris)
        self._codec = codec
        self._outlet = outlet
        self._followers = followers
        self._subscription = subscription
        self._left = left
        # The last position that `drain` waited for the log to reach.
        self._reached = -1
        # When an update of each URI was last sent, the oldest first; only the last moment is kept.
        self._last_sent: dict[str, float] | None = None

    @property
    def granted(self) -> dict[str, Json]:
        """What it receives, as the protocol writes it."""
        return encode_filter(self._filter)

    @property
    def is_of_session(self) -> bool:
        """Whether it is the stream of a legacy session, and not a subscription of its own."""
        return self._subscription is None

    def acknowledge(self) -> None:
        """Send the granted filter: the first message of a subscription."""
        if self._subscription is not None:
            self._send_notification(
                "notifications/subscriptions/acknowledged", {"notifications": encode_filter(self._filter)}
            )

    def catch_up(self, now: float) -> float | None:
        """Send the changes, unless the reader is slow or an update is too early; in that case, when it is due."""
        self.lags = False
        if self.idle or self.after == self.changes.last:
            return None
        if self.after > self.changes.last and self.after != self._reached:
            self.lags = True
            return None
        for number, change in self.changes.read(self.after):
            wanted = tuple(self._wanted(change))
            for uri in wanted:
                due = self._due_uris(uri, now) if change.uri and change.kind == "updated" else None
                if due is not None:
                    return due
                # "the ID MUST be globally unique" (Resumability): only the last message about a number has an id, so a
                # client that has the id has all of these messages.
                closing = number != self.after and uri == wanted[-1]
                room = self._send_change(change, uri, number if closing else None)
                self.lags = self.lags or not room
            if number != self.after:
                self.after = number
                if self.lags:
                    return None
        return None

    async def drain(self) -> None:
        """Wait until the reader has caught up, and also the log if it is behind."""
        after = self.after
        if after > self.changes.last:
            await self.changes.catch_up_to(after)
            self._reached = after
        await self._outlet.drain()

    def keep_alive(self) -> None:
        """Send a keep-alive to the client and the proxies in between."""
        self._outlet.keep_alive()

    def end(self) -> None:
        """End the stream gracefully, with the result of its request."""
        if self._followers.leave(self):
            if self._subscription is not None:
                meta = {PREFIX + "subscriptionId": self._subscription}
                result = self._codec.result("subscriptions/listen", Done({"_meta": meta}))
                self._outlet.send(jsonrpc.answer(self._subscription, result), self.after)
            self._outlet.close()

    def cut(self, reason: str) -> None:
        """End the stream because of a failure, and notify the client, which will have missed something."""
        if self._followers.leave(self):
            if self._subscription is not None:
                self._send_notification("notifications/cancelled", {"requestId": self._subscription, "reason": reason})
            self._outlet.close()

    def leave(self) -> None:
        """The client has disconnected or cancelled: end without a message."""
        self._followers.leave(self)

    @property
    def uris(self) -> Collection[str]:
        """The URIs of the subscribed resources, without those that the subscriber may not read."""
        visible = self._visible
        return self._uris if visible is None else [uri for uri in self._uris if visible.admits(Change("updated", uri))]

    def uris_changed(self) -> None:
        """Its session has changed the URIs."""
        self.changes.uris_changed()

    def notify_left(self) -> None:
        """Call back that this stream has ended."""
        if self._left is not None:
            self._left(self)

    def _wanted(self, change: Change) -> Iterable[str]:
        """The URIs to notify about a change: an empty one for a list, none if the subscriber is not notified."""
        wanted, visible = self._matching(change), self._visible
        return wanted if visible is None else [uri for uri in wanted if visible.admits(Change(change.kind, uri))]

    def _matching(self, change: Change) -> Iterable[str]:
        if change.kind == "notification":
            return (change.uri,) if self._filter.notification else ()
        if change.kind != "updated":
            return ("",) if getattr(self._filter, change.kind) else ()
        if not change.uri:
            return tuple(self._uris)
        return (change.uri,) if change.uri in self._uris else ()

    def _due_uris(self, uri: str, now: float) -> float | None:
        last_sent = self._last_sent
        if last_sent is None:
            last_sent = self._last_sent = {}
        while last_sent and now - (first := next(iter(last_sent.items())))[1] >= MIN_INTERVAL_SECONDS:
            del last_sent[first[0]]
        if uri in last_sent:
            return last_sent[uri] + MIN_INTERVAL_SECONDS
        last_sent[uri] = now
        return None

    def _send_change(self, change: Change, uri: str, number: int | None) -> bool:
        if change.kind != "notification":
            return self._send_notification(CHANGE_METHODS[change.kind], {"uri": uri} if uri else {}, number)
        # Not through the codec, which leaves out what the revision does not define.
        params = dict(as_object(jsonrpc.decode_json(change.params.encode())))
        if self._subscription is not None:
            params["_meta"] = {**as_object(params.get("_meta")), PREFIX + "subscriptionId": self._subscription}
        return self._outlet.send(jsonrpc.notification(uri, params), number)

    def _send_notification(self, method: str, params: dict[str, Json], number: int | None = None) -> bool:
        if self._subscription is not None:
            params["_meta"] = {PREFIX + "subscriptionId": self._subscription}
        message = self._codec.notice(Notification(method, params))
        return not message or self._outlet.send(message, number)


def encode_filter(granted: ChangeFilter) -> dict[str, Json]:
    """The granted part of a filter, as the protocol writes it."""
    encoded: dict[str, Json] = {
        "toolsListChanged": granted.tools,
        "promptsListChanged": granted.prompts,
        "resourcesListChanged": granted.resources,
        "resourceSubscriptions": sorted(granted.uris),
        OWN_NOTIFICATIONS: granted.notification,
    }
    return {name: value for name, value in encoded.items() if value}


class Subscribers:
    """The subscribers of one endpoint."""

    def __init__(
        self,
        limit: int,
        open_streams: CallsInFlight | None = None,
        uri_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._limit = limit
        self._uri_bytes = uri_bytes
        self._weight = 0
        self._open_streams = open_streams
        self._loop: asyncio.AbstractEventLoop | None = None
        self._live: dict[Subscriber, None] = {}
        self._watched: dict[ChangeSource, Callable[[], None]] = {}
        self._round: deque[Subscriber] | None = None
        self._again = False
        self._ended = False
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        self._lagging: dict[Subscriber, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Subscriber]:
        """The open subscriptions."""
        return iter(tuple(self._live))

    def admit(self, subscriber: Subscriber) -> None:
        """Admit a subscriber if there is room; it must then begin or leave."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move_to_loop(loop)
        if self._ended:
            raise shutting_down()
        if len(self._live) >= self._limit:
            raise Busy(f"{self._limit} clients are already subscribed to changes; try again later", retry_after=30)
        if subscriber.weight and self._weight + subscriber.weight > self._uri_bytes:
            raise Busy("Too many URIs are subscribed already; try again later, or subscribe to fewer", retry_after=30)
        if self._open_streams is not None:
            self._open_streams.follow(subscriber)
        self._live[subscriber] = None
        self._weight += subscriber.weight
        if subscriber.changes not in self._watched:
            self._watched[subscriber.changes] = subscriber.changes.watch(
                self.wake, partial(self._uris, subscriber.changes)
            )
        subscriber.changes.uris_changed()

    def _uris(self, changes: ChangeSource) -> Iterable[str]:
        return (uri for subscriber in self._live if subscriber.changes is changes for uri in subscriber.uris)

    def begin(self, subscriber: Subscriber) -> None:
        """Send a subscriber the changes after its position in the log; its stream must be open."""
        subscriber.acknowledge()
        self._catch_up(subscriber, asyncio.get_running_loop().time())

    def leave(self, subscriber: Subscriber) -> bool:
        """Remove a subscriber; returns whether it was subscribed."""
        if subscriber not in self._live:
            return False
        del self._live[subscriber]
        self._weight -= subscriber.weight
        if self._open_streams is not None:
            self._open_streams.forget(subscriber)
        subscriber.notify_left()
        subscriber.changes.uris_changed()
        if not self._live:
            self._rest()
        elif subscriber.after != subscriber.changes.last:
            # Another stream of its session may continue from its position.
            self.wake()
        return True

    def end(self) -> None:
        """End all subscribers gracefully, and admit no more."""
        self._ended = True
        for subscriber in tuple(self._live):
            subscriber.end()

    def wake(self) -> None:
        """Something changed, or an update is due: let all subscribers catch up, in batches."""
        if self._round is not None:
            self._again = True
            return
        self._round = deque(self._live)
        self._continue()

    def _continue(self) -> None:
        waiting, loop = self._round, self._loop
        if waiting is None or loop is None:
            return
        now = loop.time()
        for _ in range(min(_MAX_BATCH, len(waiting))):
            subscriber = waiting.popleft()
            if subscriber in self._live:
                self._catch_up(subscriber, now)
        if not waiting and self._again:
            self._again = False
            waiting.extend(self._live)
        if waiting:
            loop.call_soon(self._continue)
        else:
            self._round = None

    def _catch_up(self, subscriber: Subscriber, now: float) -> None:
        if subscriber in self._lagging:
            return
        try:
            due = subscriber.catch_up(now)
        except Exception:  # noqa: BLE001 — one failure must not affect the other subscribers
            _log.exception("a change could not be sent to a subscriber")
            subscriber.cut("The server could not send a change; listen again")
            return
        if subscriber.lags:
            self._lagging[subscriber] = asyncio.ensure_future(self._wait(subscriber))
        elif due is not None:
            self._wake_at(due)

    async def _wait(self, subscriber: Subscriber) -> None:
        """Wait while the reader of a subscriber, or the log, lags behind; only then does it have a task."""
        try:
            await subscriber.drain()
        except ConnectionError:
            self.leave(subscriber)
        finally:
            self._lagging.pop(subscriber, None)
        if subscriber in self._live:
            self._catch_up(subscriber, asyncio.get_running_loop().time())

    def _wake_at(self, due: float) -> None:
        timer = self._timer
        if self._loop is None or (timer is not None and timer[0] <= due):
            return
        if timer is not None:
            timer[1].cancel()
        self._timer = due, self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def _move_to_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """The event loop may be a new one, as in tests; the subscribers of the previous loop ended with it."""
        self._rest()
        self._live.clear()
        self._weight = 0
        self._lagging.clear()
        self._loop, self._round, self._again, self._ended = loop, None, False, False

    def _rest(self) -> None:
        for end in self._watched.values():
            end()
        self._watched.clear()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
