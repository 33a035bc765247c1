"""The headers of a POST, checked once for all requests with the same headers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.errors import InvalidRequest
from pegboard.protocol import headers as mcp
from pegboard.protocol.revisions import REVISIONS
from pegboard.server.access import NO_ACCESS, Access
from pegboard.server.exchange.fast_path import CALL, CallPattern
from pegboard.server.http.head_rules import check_content_type, read_accept
from pegboard.server.http_types import Accepts, Headers


class NotAcceptable(InvalidRequest):
    status = 406


class PostHead(Struct, eq=False):
    """The head of a POST: the headers of every response to it, and what it states about the message.

    `stateless` means that the version header does not name a legacy revision, `plain` that the message may be a plain
    call. `method` and `about` mirror the body; None if they are missing or encoded, and must be compared on the full
    path. `access` and `address` are those of the sender. `pattern` is that of its last plain call, kept by the fast path.
    Nothing here depends on the id of a session, which may differ from one request of a connection to the next.
    """

    extra: Headers
    accepts: Accepts
    version: str | None
    stateless: bool
    plain: bool
    method: str | None
    about: str | None
    access: Access = NO_ACCESS
    address: str = ""
    pattern: CallPattern | None = None


def read_post_head(
    headers: Mapping[bytes, bytes], extra: Headers, access: Access = NO_ACCESS, address: str = ""
) -> PostHead:
    """Check a head; rejects a body that is not JSON, and a client that accepts neither JSON nor a stream."""
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
    return PostHead(
        extra=extra,
        accepts=accepts,
        version=version,
        stateless=stateless,
        plain=revision is not None and method == CALL if stateless else bool(headers.get(mcp.SESSION)),
        method=method,
        about=mcp.read_plain(headers.get(mcp.NAME)),
        access=access,
        address=address,
    )
