"""The members of a request's params that the server reads itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from pegboard.call import Json
from pegboard.errors import InvalidParams
from pegboard.protocol.jsonrpc import ID_LENGTH, NOTHING, Identifier, Message, decode_json

PREFIX = "io.modelcontextprotocol/"


class Params(Struct, gc=False):
    """The subject of a request, its arguments and its metadata."""

    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    task: str | UnsetType = field(name="taskId", default=UNSET)
    arguments: Raw = NOTHING
    inner: Raw = field(name="params", default=NOTHING)
    answers: Raw = field(name="inputResponses", default=NOTHING)
    ticket: str | UnsetType = field(name="requestState", default=UNSET)
    meta: Raw = field(name="_meta", default=NOTHING)


class RequestMeta(Struct, gc=False):
    """The metadata of a request as the protocol defines it; a legacy request has only the token."""

    version: str | UnsetType = field(name=PREFIX + "protocolVersion", default=UNSET)
    client: Raw = field(name=PREFIX + "clientInfo", default=NOTHING)
    capabilities: Raw = field(name=PREFIX + "clientCapabilities", default=NOTHING)
    log_level: str | UnsetType = field(name=PREFIX + "logLevel", default=UNSET)
    token: Identifier | UnsetType = field(name="progressToken", default=UNSET)


NO_PARAMS = Params()
NO_REQUEST_META = RequestMeta()

decode_params = msgspec.json.Decoder(Params).decode
_decode_meta = msgspec.json.Decoder(RequestMeta).decode


def read_params(message: Message) -> Params:
    """Decode the members of params that we read."""
    if message.params is NOTHING:
        return NO_PARAMS
    try:
        return decode_params(message.params)
    except msgspec.MsgspecError:
        raise _wrong_member(bytes(message.params)) from None


def read_meta(raw: bytes) -> RequestMeta:
    """Decode a request's `_meta`."""
    if not raw:
        return NO_REQUEST_META
    try:
        return _decode_meta(raw)
    except msgspec.MsgspecError:
        raise _wrong_meta(raw) from None


def read_object(raw: Raw, what: str) -> Mapping[str, Json]:
    """A raw member, which must be an object."""
    value = decode_json(raw)
    if not isinstance(value, dict):
        raise InvalidParams(f"{what} must be an object")
    return value


def _wrong_member(raw: bytes) -> InvalidParams:
    value = decode_json(raw)
    for name in ("name", "uri", "cursor", "taskId", "requestState"):
        if name in value and not isinstance(value[name], str):
            return InvalidParams(f"params.{name} must be a string")
    return InvalidParams("params is malformed")


def _wrong_meta(raw: bytes) -> InvalidParams:
    value = decode_json(raw)
    if not isinstance(value, dict):
        return InvalidParams("params._meta must be an object")
    for name in (PREFIX + "protocolVersion", PREFIX + "logLevel"):
        if name in value and not isinstance(value[name], str):
            return InvalidParams(f"params._meta[{name!r}] must be a string")
    return InvalidParams(f"params._meta.progressToken must be an integer or a string of at most {ID_LENGTH} characters")
