"""Exchanges that do not end with their call: `subscriptions/listen` makes a follower of who sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Raw

from pegboard.call import NOBODY, Call, Caller, Follow, Handler, Reply, RequestId
from pegboard.protocol.tongue import Tongue
from pegboard.transports.channels import HttpExchange, Line, LineExchange
from pegboard.transports.door import Answer, Headers, Sink
from pegboard.transports.followers import EventOutlet, Follower, Followers
from pegboard.transports.media import Accepts

LISTEN: Final = "subscriptions/listen"

_EVERY_LIST: Final = Raw(
    b'{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}'
)


class HttpListen(HttpExchange):
    """A listen over HTTP: from its acknowledgement on, the stream is a follower's."""

    __slots__ = ("_followers",)

    def __init__(
        self,
        sink: Sink,
        tongue: Tongue,
        request_id: RequestId,
        headers: Headers,
        accepts: Accepts,
        followers: Followers,
    ) -> None:
        super().__init__(sink, tongue, request_id, headers, accepts)
        self._followers = followers

    def finish(self, method: str, reply: Reply) -> Answer | None:
        sink = self._sink
        if not isinstance(reply, Follow) or sink is None:
            return super().finish(method, reply)
        outlet = EventOutlet(sink, numbered=False)
        follower = Follower(reply, self._tongue, outlet, self._followers, subscription=self._id)
        self._followers.admit(follower)
        if not self.streaming:
            self._open(sink)
        self._sink = None
        self._followers.begin(follower)
        # "The server MUST treat a client disconnect as cancellation of that request" (Cancellation)
        sink.on_gone(follower.leave)
        return None


class SharedLine(Line, Protocol):
    """A line whose reader may lag behind."""

    @property
    def full(self) -> bool: ...


class LineOutlet:
    """A line that all followers of a connection share, with all other messages."""

    __slots__ = ("_line",)

    def __init__(self, line: SharedLine) -> None:
        self._line = line

    def send(self, message: bytes, number: int) -> bool:
        self._line.write(message)
        return not self._line.full

    async def drain(self) -> None:
        await self._line.drain()

    def keep_alive(self) -> None:
        """Nothing is sent: no proxy stands between."""

    def close(self) -> None:
        """The line stays: it is the others' too."""


class LineListen(LineExchange):
    """A listen on a shared line; `followed` is told who follows from its acknowledgement on."""

    __slots__ = ("_followed", "_followers", "_outlet")

    def __init__(
        self,
        line: SharedLine,
        tongue: Tongue,
        request_id: RequestId,
        followers: Followers,
        followed: Callable[[RequestId, Follower | None], object],
    ) -> None:
        super().__init__(line, tongue, request_id)
        self._outlet = LineOutlet(line)
        self._followers = followers
        self._followed = followed

    def finish(self, method: str, reply: Reply) -> None:
        if not isinstance(reply, Follow) or self._line is None:
            super().finish(method, reply)
            return
        followed, request_id = self._followed, self._id
        follower = Follower(
            reply,
            self._tongue,
            self._outlet,
            self._followers,
            subscription=request_id,
            left=lambda _: followed(request_id, None),
        )
        self._followers.admit(follower)
        self._line = None
        followed(request_id, follower)
        self._followers.begin(follower)


async def follow_lists(handler: Handler, caller: Caller) -> Follow | None:
    """What a client of the older revisions follows without being asked: every list there is."""
    call = Call(method=LISTEN, caller=caller, channel=NOBODY, params=_EVERY_LIST)
    reply = await handler(call)
    return reply if isinstance(reply, Follow) else None
