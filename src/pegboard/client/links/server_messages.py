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
# "Resource not found" had a code of its own until 2026-07-28.
_OLD_KINDS: Final[Mapping[int, type[Refusal]]] = {-32002: InvalidParams}

UNREAD: Final = -(1 << 40)
"""The code of an error that a link makes up in place of an answer that is too long; no server's errors are as low."""

MODERN_CODES: Final = frozenset({HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code})
"""Errors that only a server of the modern era answers with."""


class WireError(Struct):
    """The error of a response."""

    code: int
    message: str = ""
    data: Json = None


class _InputRequest(Struct):
    method: str
    params: dict[str, Json] | None = None


class ServerMessage(Struct, gc=False):
    """One message from a server; an error may come with no id, as where the server could read none."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None = None
    method: str | None = None
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: WireError | None = None

    @property
    def is_answer(self) -> bool:
        return self.method is None

    def parameters(self) -> Mapping[str, Json]:
        """What a notification or request says; nothing where it is no object."""
        if self.params is NOTHING:
            return {}
        value = msgspec.json.decode(self.params)
        return value if isinstance(value, dict) else {}


Read: TypeAlias = Callable[[Raw], dict[str, Any]]
"""How a result is read; what is no object is a msgspec.ValidationError."""

_decode = msgspec.json.Decoder(ServerMessage).decode

read_values: Final[Read] = msgspec.json.Decoder(dict[str, Json]).decode
"""As plain values."""

read_members: Final[Read] = msgspec.json.Decoder(dict[str, Raw]).decode
"""Member by member, each the bytes that came: for who passes them on."""


def read_server_message(data: bytes | str, limits: Limits) -> ServerMessage:
    """One message; Garbled where it is none."""
    body = data.encode() if isinstance(data, str) else data
    try:
        check_text(body, limits)
        message = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Refusal):
        raise MalformedMessage(f"no MCP message: {shorten(body)}") from None
    if message.method is None and (message.result is NOTHING) == (message.error is None):
        raise MalformedMessage(f"no MCP message, it has not exactly one of method, result and error: {shorten(body)}")
    return message


def result_of(message: ServerMessage, read: Read = read_values) -> dict[str, Any]:
    """What an answer brings; its error is raised."""
    if message.error is not None:
        if message.error.code == UNREAD:
            raise MessageTooLong(message.error.message)
        raise refusal_of(message.error)
    try:
        return read(message.result)
    except msgspec.ValidationError:
        raise MalformedMessage(f"no MCP message, a result is an object: {shorten(bytes(message.result))}") from None


def questions_in(asked: Json) -> dict[str, Question]:
    """The questions in `inputRequests`."""
    try:
        read = msgspec.convert(asked, dict[str, _InputRequest])
    except msgspec.ValidationError:
        raise MalformedMessage("asks for input in a form that cannot be answered") from None
    return {key: Question(one.method, one.params or {}) for key, one in read.items()}


def input_requests_in(result: Mapping[str, Json]) -> tuple[dict[str, Question], str | None]:
    """The questions of an `input_required` result, and the state to send back with the answers."""
    questions, state = questions_in(result.get("inputRequests") or {}), result.get("requestState")
    if not isinstance(state, str | None) or not (questions or state is not None):
        raise MalformedMessage("asks for input without any question")
    return questions, state


def refusal_of(error: WireError) -> Refusal:
    """The error as the one we raise ourselves for this code, its code, text and data as they came."""
    kind = _KINDS.get(error.code) or _OLD_KINDS.get(error.code) or Refusal
    # Some kinds make their text out of what was wrong; here the server has written it.
    refusal = kind.__new__(kind)
    Refusal.__init__(refusal, error.message or f"error {error.code}", error.data)
    refusal.code = error.code
    return refusal


def shorten(data: bytes) -> str:
    """The beginning of something that came, to be shown."""
    text = data[:120].decode("utf-8", "replace")
    return repr(text if len(data) <= 120 else text + "…")
