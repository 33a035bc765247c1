"""The headers of a POST, checked once for all requests with the same headers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.errors import InvalidRequest
from pegboard.protocol import headers as mcp
from pegboard.protocol.revisions import REVISIONS
from pegboard.server.exchange.fast_path import CALL
from pegboard.server.http.content_negotiation import Accepts, check_content_type, read_accept
from pegboard.server.http_types import Headers


class NotAcceptable(InvalidRequest):
    status = 406


class PostHead(Struct, frozen=True):
    """A head that may bring a message: what every answer to it carries, and what it says of the message.

    `stateless` is a version header that is no legacy revision, `plain` whether the message may be a plain call.
    `method` and `about` mirror the body; None where they are missing or not written plainly, and have to be compared
    with care. `within` is what the answers in the session carry.
    """

    extra: Headers
    accepts: Accepts
    version: str | None
    stateless: bool
    plain: bool
    method: str | None
    about: str | None
    session: str
    within: Headers


def read_post_head(headers: Mapping[bytes, bytes], extra: Headers) -> PostHead:
    """Judge a head; refuses one whose body is no JSON, or whose sender takes no form of answer that we have."""
    content_type = headers.get(b"content-type")
    if content_type != b"application/json":
        check_content_type(content_type)
    accepts = read_accept(headers.get(b"accept"))
    if not accepts.json and not accepts.stream:
        raise NotAcceptable("Accept must allow application/json and text/event-stream")
    version = mcp.read_version(headers)
    revision = None if version is None else REVISIONS.get(version)
    stateless = version is not None and (revision is None or not revision.has_sessions)
    method = mcp.read_plain(headers.get(mcp.METHOD))
    session = headers.get(mcp.SESSION, b"")
    return PostHead(
        extra=extra,
        accepts=accepts,
        version=version,
        stateless=stateless,
        plain=revision is not None and method == CALL if stateless else bool(session),
        method=method,
        about=mcp.read_plain(headers.get(mcp.NAME)),
        session=session.decode("latin-1"),
        within=(*extra, (mcp.SESSION, session)),
    )
