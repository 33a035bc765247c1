"""`POST /sse`: the responses to a message or an array, as events.

    id: 1
    event: message
    data: {"jsonrpc":"2.0","id":1,"result":{…}}

    id: 2
    event: done
    data: {}

Notifications before the response are `message` events too. A message that cannot be parsed is answered by an `error`
event, since there is no id for a response.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from pegboard.call import RequestId
from pegboard.errors import Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.revision_codec import RevisionCodec
from pegboard.protocol.revisions import Revision, find_revision
from pegboard.server.access import Access
from pegboard.server.deprecated.event_line import EventLine
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import STREAM, Ask, LineExchange
from pegboard.server.exchange.request_head import NotAcceptable, read_post_head
from pegboard.server.exchange.stateless import Stateless, read_bodies
from pegboard.server.http_types import EndpointResult, Head, Headers, Sink


class EventAnswers:
    """The responses to one HTTP request, each sent when it is ready; kept alive until the last."""

    def __init__(self, sink: Sink) -> None:
        self._line = EventLine(sink, numbered=True)
        self.since = 0.0

    def exchange(self, codec: RevisionCodec, request_id: RequestId, ask: Ask) -> LineExchange:
        return LineExchange(self._line, codec, request_id, ask)

    def refuse(self, refusal: Refusal) -> None:
        name = "error" if refusal.request_id is None else "message"
        self._line.write_event(name, jsonrpc.refusal(refusal.request_id, refusal))

    def keep_alive(self) -> None:
        self._line.keep_alive()

    def end(self) -> None:
        """Nothing to do: it ends with its calls, which are being cancelled."""

    def finish(self) -> None:
        """Mark the end of the responses."""
        self._line.write_event("done", b"{}")
        self._line.close()


class SsePostEndpoint(Struct, eq=False):
    """Responds with a stream that ends after the last response."""

    stateless: Stateless
    limits: Limits
    calls: CallsInFlight

    def post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Serve a message, or an array of them."""
        post = read_post_head(head.headers, extra)
        if not post.accepts.stream:
            raise NotAcceptable("This endpoint returns a stream: Accept must allow text/event-stream")
        stated = None if post.version is None else find_revision(post.version)
        self.calls.check_room(len(body))
        return self._answer(body, stated, sink, extra, head.access)

    async def _answer(self, body: bytes, stated: Revision | None, sink: Sink, extra: Headers, access: Access) -> None:
        task = asyncio.current_task()
        if task is not None:
            # The responses cannot be fetched later.
            sink.on_gone(task.cancel)
        sink.start(200, STREAM + extra)
        events = EventAnswers(sink)
        self.calls.follow(events)
        try:
            await self.stateless.serve(read_bodies(body, self.limits), stated, events, access)
        except Refusal as refusal:
            events.refuse(refusal)
        finally:
            self.calls.forget(events)
        events.finish()
