"""Reads requests and writes results of revision 2026-07-28."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct

from pegboard.call import EncodedResult, Json, Notification, ProgressToken, Reply
from pegboard.errors import HeaderMismatch, InvalidParams, Refusal, UnsupportedVersion
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING
from pegboard.protocol.legacy_codec import LegacyCodec
from pegboard.protocol.params import PREFIX, read_meta, read_object
from pegboard.protocol.revisions import LEGACY, LOG_LEVELS, MODERN, REVISIONS, SUPPORTED

_encode = msgspec.json.Encoder().encode


class RequestEnvelope(Struct, frozen=True):
    """The metadata of a modern request and its sender."""

    version: str
    client: Mapping[str, Json]
    capabilities: Mapping[str, Json]
    log_level: str | None
    token: ProgressToken | None


def read_envelope(raw_meta: bytes) -> RequestEnvelope:
    """The envelope in a request's `_meta`; "a request missing any required field is malformed" (basic, `_meta`)."""
    meta = read_meta(raw_meta)
    if meta.version is UNSET:
        raise InvalidParams(f"params._meta[{PREFIX + 'protocolVersion'!r}] is missing; this server supports {MODERN}")
    if meta.capabilities is NOTHING:
        raise InvalidParams(f"params._meta[{PREFIX + 'clientCapabilities'!r}] is missing; send {{}} if there are none")
    if meta.log_level is not UNSET and meta.log_level not in LOG_LEVELS:
        raise InvalidParams(f"params._meta[{PREFIX + 'logLevel'!r}] must be one of {', '.join(LOG_LEVELS)}")
    return RequestEnvelope(
        version=meta.version,
        client={} if meta.client is NOTHING else read_object(meta.client, "clientInfo"),
        capabilities=read_object(meta.capabilities, "clientCapabilities"),
        log_level=None if meta.log_level is UNSET else meta.log_level,
        token=None if meta.token is UNSET else meta.token,
    )


def check_version(envelope: RequestEnvelope, header: str | None) -> None:
    """Reject an unsupported revision, and a header that differs from the body."""
    if header is not None and header != envelope.version:
        raise HeaderMismatch(
            f"Header mismatch: MCP-Protocol-Version is {header[:40]!r}, the body says {envelope.version[:40]!r}"
        )
    if envelope.version != MODERN:
        # An older revision is supported, but not in this form.
        raise UnsupportedVersion(envelope.version, (MODERN,) if envelope.version in LEGACY else SUPPORTED)


class ModernCodec:
    """The codec of revision 2026-07-28: `resultType` in every result, and the server's identity."""

    version = MODERN
    revision = REVISIONS[MODERN]

    def __init__(self, info: Mapping[str, Json]) -> None:
        self._meta = {PREFIX + "serverInfo": info}
        self._open = b'{"resultType":"complete","_meta":' + _encode(self._meta)
        self._more = self._open + b","

    def result(self, method: str, reply: Reply) -> bytes:
        """A result as JSON."""
        result = reply.result
        if type(result) is EncodedResult:
            written = result.written.get(MODERN)
            if written is None:
                written = result.written[MODERN] = self._complete(result.value)
            return written
        if "_meta" in result or "resultType" in result:
            return self._complete(result)
        body = reply.encoded
        if body is None:
            body = _encode(result)
        return self._more + body[1:] if len(body) > 2 else self._open + b"}"

    def notice(self, notice: Notification) -> bytes:
        """A notice as a JSON-RPC notification."""
        return jsonrpc.notification(notice.method, notice.params)

    def code(self, refusal: Refusal) -> int:
        """The error code, unchanged in this revision."""
        return refusal.code

    def status(self, refusal: Refusal) -> int:
        """The HTTP status of a rejected call, which follows from the error code alone."""
        return refusal.status

    def _complete(self, result: Mapping[str, Json]) -> bytes:
        if "_meta" in result or "resultType" in result:
            own = result.get("_meta")
            meta = {**self._meta, **own} if isinstance(own, Mapping) else self._meta
            return _encode({"resultType": "complete", **result, "_meta": meta})
        body = _encode(result)
        return self._open + (b"}" if body == b"{}" else b"," + body[1:])


RevisionCodec: TypeAlias = ModernCodec | LegacyCodec
"""Writes results, notices and errors of one revision."""
