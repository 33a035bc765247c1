"""`POST /rpc`: plain JSON-RPC, one message or an array."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.revisions import Revision, find_revision
from pegboard.server.access import Access
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.exchanges import CollectedAnswers
from pegboard.server.exchange.request_head import NotAcceptable, read_post_head
from pegboard.server.exchange.stateless import Stateless, read_bodies
from pegboard.server.http_types import Answer, EndpointResult, Head, Headers, Sink


class RpcEndpoint:
    """Responds with JSON only; 204 if there is nothing to return."""

    def __init__(self, stateless: Stateless, limits: Limits, calls: CallsInFlight) -> None:
        self._stateless = stateless
        self._limits = limits
        self._calls = calls

    def post(self, head: Head, body: bytes, sink: Sink, extra: Headers) -> EndpointResult:
        """Serve a message, or an array of them."""
        post = read_post_head(head.headers, extra)
        if not post.accepts.json:
            raise NotAcceptable("This endpoint returns JSON: Accept must allow application/json")
        stated = None if post.version is None else find_revision(post.version)
        bodies = read_bodies(body, self._limits)
        self._calls.check_room(len(body))
        return self._answer(bodies, stated, sink, extra, head.access, batch=jsonrpc.is_batch(body))

    async def _answer(
        self,
        bodies: Sequence[bytes],
        stated: Revision | None,
        sink: Sink,
        extra: Headers,
        access: Access,
        *,
        batch: bool,
    ) -> Answer:
        task = asyncio.current_task()
        if task is not None:
            # The response cannot be fetched later.
            sink.on_gone(task.cancel)
        answers = CollectedAnswers(self._limits)
        await self._stateless.serve(bodies, stated, answers, access)
        messages = answers.messages
        if not messages:
            return Answer(204, headers=extra)
        if batch:
            return Answer(200, b"[%b]" % b",".join(messages), headers=extra)
        return Answer(answers.status, messages[0], headers=extra + answers.headers)
