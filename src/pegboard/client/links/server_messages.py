"""Parses the messages of servers, leniently where old servers deviate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from pegboard.call import Json, Question, RequestId
from pegboard.errors import (
    HeaderMismatch,
    InternalFailure,
    InvalidParams,
    InvalidRequest,
    MalformedMessage,
    MessageTooLong,
    MethodNotFound,
    MissingCapability,
    ParseFailure,
    Refusal,
    UnsupportedVersion,
)
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import NOTHING, check_text

_KINDS: Final[Mapping[int, type[Refusal]]] = {
    kind.code: kind
    for kind in (
        ParseFailure,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalFailure,
        HeaderMismatch,
        MissingCapability,
        UnsupportedVersion,
    )
}
# "Resource not found" had its own code until 2026-07-28.
_OLD_KINDS: Final[Mapping[int, type[Refusal]]] = {-32002: InvalidParams}

UNREAD: Final = -(1 << 40)
"""The code of the error that a link substitutes for a response that is too long; no server uses it."""

MODERN_CODES: Final = frozenset({HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code})
"""Errors that only modern servers send."""


class WireError(Struct):
    """The error of a response."""

    code: int
    message: str = ""
    data: Json = None


class _InputRequest(Struct):
    method: str
    params: dict[str, Json] | None = None


class ServerMessage(Struct, gc=False):
    """One message from a server; an error may have no id if the server could not read it."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None = None
    method: str | None = None
    params: Raw = NOTHING
    result: Any = NOTHING
    error: WireError | None = None

    @property
    def is_answer(self) -> bool:
        return self.method is None

    def parameters(self) -> Mapping[str, Json]:
        """The params of a notification or request; empty if they are not an object."""
        if self.params is NOTHING:
            return {}
        value = msgspec.json.decode(self.params)
        return value if isinstance(value, dict) else {}


class _RawMessage(ServerMessage, gc=False):
    """One whose result is not decoded yet."""

    result: Raw = NOTHING


Read: TypeAlias = Callable[[Raw], dict[str, Any]]
"""Decodes a result; raises msgspec.ValidationError if it is not an object."""

_decode = msgspec.json.Decoder(ServerMessage).decode
_decode_raw = msgspec.json.Decoder(_RawMessage).decode

read_values: Final[Read] = msgspec.json.Decoder(dict[str, Json]).decode
"""Decodes to plain values."""

read_members: Final[Read] = msgspec.json.Decoder(dict[str, Raw]).decode
"""Decodes each member to its bytes: for a caller that forwards them."""


def read_server_message(data: bytes | str, limits: Limits, read: Read | None = None) -> ServerMessage:
    """Parse one message; raises MalformedMessage if it is invalid.

    `read` is how its result will be decoded, if that is known: plain values are decoded here, in the same pass.
    """
    body = data.encode() if isinstance(data, str) else data
    try:
        check_text(body, limits)
        message: ServerMessage
        try:
            message = _decode(body) if read is read_values else _decode_raw(body)
        except msgspec.ValidationError:
            # A result with a number that does not fit a float is an error of its request, not of the connection.
            message = _decode_raw(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Refusal):
        raise MalformedMessage(f"invalid MCP message: {shorten(body)}") from None
    if message.method is None and (message.result is NOTHING) == (message.error is None):
        raise MalformedMessage(
            f"invalid MCP message, it needs exactly one of method, result and error: {shorten(body)}"
        )
    return message


def result_of(message: ServerMessage, read: Read = read_values) -> dict[str, Any]:
    """The result of a response; raises its error."""
    if message.error is not None:
        if message.error.code == UNREAD:
            raise MessageTooLong(message.error.message)
        raise refusal_of(message.error)
    result = message.result
    if type(result) is dict:
        return result
    raw = result if type(result) is Raw else Raw(msgspec.json.encode(result))
    try:
        return read(raw)
    except msgspec.ValidationError:
        raise MalformedMessage(f"invalid MCP message, result must be an object: {shorten(bytes(raw))}") from None


def questions_in(asked: Json) -> dict[str, Question]:
    """The questions in `inputRequests`."""
    try:
        read = msgspec.convert(asked, dict[str, _InputRequest])
    except msgspec.ValidationError:
        raise MalformedMessage("sent invalid input requests") from None
    return {key: Question(question.method, question.params or {}) for key, question in read.items()}


def input_requests_in(result: Mapping[str, Json]) -> tuple[dict[str, Question], str | None]:
    """The questions of an `input_required` result, and the state to send back with the answers."""
    questions, state = questions_in(result.get("inputRequests") or {}), result.get("requestState")
    if not isinstance(state, str | None) or not (questions or state is not None):
        raise MalformedMessage("requires input, but sent no question and no state")
    return questions, state


def refusal_of(error: WireError) -> Refusal:
    """The exception that we raise for this code, with the code, text and data of the server."""
    kind = _KINDS.get(error.code) or _OLD_KINDS.get(error.code) or Refusal
    # Some classes compose their own text; this one comes from the server.
    refusal = kind.__new__(kind)
    Refusal.__init__(refusal, error.message or f"error {error.code}", error.data)
    refusal.code = error.code
    return refusal


def shorten(data: bytes) -> str:
    """The beginning of the data, for messages."""
    text = data[:120].decode("utf-8", "replace")
    return repr(text if len(data) <= 120 else text + "…")
