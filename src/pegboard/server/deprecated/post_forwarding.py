"""Forwards a POST to the process that holds its event stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.errors import Busy, SessionNotFound
from pegboard.server.http_types import Answer, Headers
from pegboard.stores.cluster import Cluster
from pegboard.stores.store import digest

_POSTED: Final = "posted"
_REPLY_SECONDS: Final = 30.0
_NOT_FOUND: Final = "Session not found: it ended with its stream; open another with GET /sse"

Take: TypeAlias = Callable[[str, Principal, str | None, bytes], Awaitable[Answer]]
"""Handles a POST for the session with that digest: its sender, and the version that it states."""


class _Posted(Struct, array_like=True):
    session: str
    principal: Principal
    version: str | None
    body: bytes


class _Answered(Struct, array_like=True):
    status: int
    body: bytes
    retry_after: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_posted = msgspec.msgpack.Decoder(_Posted).decode
_decode_answered = msgspec.msgpack.Decoder(_Answered).decode


class PostForwarding:
    """Forwards such POSTs to their process, and handles those from others."""

    def __init__(self, cluster: Cluster, take: Take) -> None:
        self._cluster = cluster
        self._take = take
        cluster.on_message(_POSTED, self._receive_post)

    def name(self, session_id: str) -> str:
        """The id that clients see."""
        return f"{self._cluster.me}.{session_id}"

    def is_foreign(self, session_id: str) -> bool:
        """Whether another process has the session with that id."""
        worker, dot, _ = session_id.partition(".")
        return bool(dot) and worker != self._cluster.me

    async def forward(
        self, session_id: str, principal: Principal, version: str | None, body: bytes, extra: Headers
    ) -> Answer:
        """The response of the process that has the session; SessionNotFound if it has ended."""
        worker = session_id.partition(".")[0]
        if not await self._cluster.is_alive(worker):
            raise SessionNotFound(_NOT_FOUND)
        reply = await self._cluster.ask(
            worker, _POSTED, _encode(_Posted(digest(session_id), principal, version, body)), _REPLY_SECONDS
        )
        if reply is None:
            raise Busy("The server process that sends this stream does not respond; try again", retry_after=1)
        if not reply:
            # This process has not served such a stream, so the session id is invented.
            raise SessionNotFound(_NOT_FOUND)
        answer = _decode_answered(reply)
        if answer.retry_after:
            extra = (*extra, (b"retry-after", answer.retry_after))
        return Answer(answer.status, answer.body, headers=extra)

    def _receive_post(self, message: bytes) -> Awaitable[bytes]:
        return self._answer(_decode_posted(message))

    async def _answer(self, posted: _Posted) -> bytes:
        answer = await self._take(posted.session, posted.principal, posted.version, posted.body)
        return _encode(_Answered(answer.status, answer.body, dict(answer.headers).get(b"retry-after", b"")))
