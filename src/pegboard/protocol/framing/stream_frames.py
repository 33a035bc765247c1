"""The frames of a stream on a WebSocket: start, chunk, done, error and cancel.

Theory of operation. A stream has an id, chosen by its sender, and one direction: it begins with `start`, carries chunks
numbered from 0, and ends with `done` or `error`. Chunks of a text stream are JSON in messages of text; those of a binary
stream are messages of bytes, each behind a header of 24:

    16 bytes  the stream's id, a GUID in the order in which .NET writes one (the first three groups little-endian)
     8 bytes  the number of the chunk, little-endian

An id that is not a GUID is written as zeros.

A stream whose start names a `window` has credit: its sender sends no more than its reader has granted, by messages of type
`credit`. All other streams share the back-pressure of the socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct as Layout
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pegboard.call import EMPTY_OBJECT, Json
from pegboard.errors import InvalidRequest, Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc
from pegboard.protocol.jsonrpc import NOTHING
from pegboard.protocol.members import repeated_member

HEADER_BYTES: Final = 24
NO_GUID: Final = bytes(16)

_HEADER: Final = Layout("<16sq")
_GUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_ID_LENGTH: Final = 128
_MOST: Final = 2**53 - 1
_MARK: Final = b'"type"'
_JSON_RPC: Final = b'{"jsonrpc"'

Kind: TypeAlias = Literal["start", "chunk", "done", "error", "cancel", "credit"]


class StreamMeta(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The metadata of a stream and its tool; only the first five members have an effect.

    `arguments` are the tool's, if it takes any beside the stream.
    """

    method: str
    binary: bool = False
    arguments: Raw = EMPTY_OBJECT
    total_size: int | None = None
    window: Annotated[int, msgspec.Meta(gt=0, le=_MOST)] | None = None
    correlation_id: str | int | None = None
    name: str | None = None
    mime: str | None = None
    compression: str | None = None
    encoding: str | None = None


class StreamFrame(Struct, frozen=True, kw_only=True):
    """One text message; its type decides which members count."""

    type: Kind
    id: str
    meta: StreamMeta | UnsetType = UNSET
    index: int | UnsetType = UNSET
    data: Raw = NOTHING
    summary: Raw = NOTHING
    error: Raw = NOTHING
    granted: Annotated[int, msgspec.Meta(gt=0, le=_MOST)] | UnsetType = msgspec.field(default=UNSET, name="bytes")
    jsonrpc: Raw = NOTHING


class StreamFailure(Struct, frozen=True):
    """Why a stream was aborted."""

    code: int = -32000
    message: str = ""
    data: Json = None


_decode = msgspec.json.Decoder(StreamFrame).decode
_decode_failure = msgspec.json.Decoder(StreamFailure).decode
encode = _encode = msgspec.json.Encoder().encode


def read(text: bytes, limits: Limits) -> StreamFrame | None:
    """The stream message in a text; None for another one, which is left to JSON-RPC."""
    if text.find(_MARK) < 0 or text.startswith(_JSON_RPC):
        return None
    try:
        frame = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        _explain(text, problem)
        return None
    if frame.jsonrpc is not NOTHING:
        return None
    jsonrpc.check_text(text, limits)
    if not 0 < len(frame.id) <= _ID_LENGTH:
        raise InvalidRequest(f"The id of a stream must have 1 to {_ID_LENGTH} characters")
    repeated = repeated_member(text)
    if repeated is not None:
        raise _about(frame.id, jsonrpc.refuse_repeated(repeated).message)
    if frame.type == "start":
        _check_start(frame)
    elif frame.type == "chunk" and (frame.index is UNSET or frame.data is NOTHING):
        raise _about(frame.id, "A chunk needs an index and data")
    elif frame.type == "credit" and frame.granted is UNSET:
        raise _about(frame.id, "A credit needs a number of bytes")
    return frame


def _check_start(frame: StreamFrame) -> None:
    if frame.meta is UNSET:
        raise _about(frame.id, "A start needs meta with the method, which names a tool")
    if bytes(frame.meta.arguments)[:1] != b"{":
        raise _about(frame.id, "meta.arguments must be an object")


def _about(stream_id: str, message: str) -> Refusal:
    refusal = InvalidRequest(message)
    refusal.request_id = stream_id
    return refusal


def _explain(text: bytes, problem: Exception) -> None:
    """Reject a malformed stream message; others are left to JSON-RPC."""
    try:
        value = jsonrpc.decode_json(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(value, dict) or "jsonrpc" in value or "type" not in value:
        return
    error = InvalidRequest(f"Not a valid stream message: {str(problem).replace('`', '')[:200]}")
    found = value.get("id")
    if isinstance(found, str) and len(found) <= _ID_LENGTH:
        error.request_id = found
    raise error


def read_failure(error: Raw) -> StreamFailure:
    """The text of an `error` message, as far as it can be read."""
    try:
        return _decode_failure(error)
    except msgspec.MsgspecError:
        return StreamFailure()


def key(stream_id: str) -> bytes:
    """The key that represents an id before the chunks of its stream."""
    return UUID(stream_id).bytes_le if _GUID.fullmatch(stream_id) else NO_GUID


def split(message: bytes | memoryview) -> tuple[bytes, int, memoryview]:
    """The stream's key, the number and the payload of a binary chunk."""
    if len(message) < HEADER_BYTES:
        raise InvalidRequest(
            f"A binary chunk must start with {HEADER_BYTES} bytes: the stream's GUID and the chunk's number"
        )
    found, index = _HEADER.unpack_from(message)
    return found, index, memoryview(message)[HEADER_BYTES:]


def header(stream_key: bytes, index: int) -> bytes:
    """The header of a binary chunk."""
    return _HEADER.pack(stream_key, index)


def start(stream_id: str, timestamp: str, meta: StreamMeta) -> bytes:
    # Always state whether a stream is binary: readers disagree on the default.
    frame = {"method": meta.method, "binary": meta.binary, **msgspec.to_builtins(meta)}
    return _encode({"type": "start", "id": stream_id, "timestamp": timestamp, "meta": frame})


def chunk(stream_id: str, timestamp: str, index: int, data: Json) -> bytes:
    return _encode({"type": "chunk", "id": stream_id, "timestamp": timestamp, "index": index, "data": data})


def credit(stream_id: str, timestamp: str, size: int) -> bytes:
    return _encode({"type": "credit", "id": stream_id, "timestamp": timestamp, "bytes": size})


def done(stream_id: str, timestamp: str, summary: Json = None) -> bytes:
    frame: dict[str, Json] = {"type": "done", "id": stream_id, "timestamp": timestamp}
    return _encode(frame if summary is None else {**frame, "summary": summary})


def error(stream_id: str | None, timestamp: str, failure: StreamFailure) -> bytes:
    """An error; without an id if none could be read."""
    frame: dict[str, Json] = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        frame["data"] = failure.data
    about: Mapping[str, Json] = {} if stream_id is None else {"id": stream_id}
    return _encode({"type": "error", **about, "timestamp": timestamp, "error": frame})
