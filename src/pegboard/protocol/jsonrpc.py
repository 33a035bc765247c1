"""JSON-RPC messages: decoded once and strictly into an envelope, and encoded.

Theory of operation. A message is decoded into `Message`, whose params, result and error stay raw bytes. Four rules are
stricter than the decoder. Each is first tested by counting bytes, and checked exactly only if the count is suspicious:

- UTF-8 everywhere: a body that is ASCII needs no check.
- Depth: a body that has no room for more pairs of brackets than the limit, or no more of them, cannot nest deeper.
- Number length: a body shorter than the longest number allowed cannot hold a longer one.
- No object repeats a member, at any depth (`members`).
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from pegboard.call import Json, RequestId
from pegboard.errors import InvalidRequest, ParseFailure, Refusal
from pegboard.limits import Limits
from pegboard.protocol.members import repeated_member

NOTHING = Raw(b"")
ID_LENGTH: Final = 1024
"""The characters of a request id or a progress token, which each message about the request repeats."""

Identifier: TypeAlias = Annotated[str, Meta(max_length=ID_LENGTH)] | int
"""A request id or a progress token as it comes from a peer."""


class Message(Struct, gc=False):
    """One JSON-RPC message with its payload still raw."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: Identifier | UnsetType = UNSET
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


decode_message = msgspec.json.Decoder(Message).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode


def read(body: bytes, limits: Limits) -> Message:
    """Decode one message; errors are raised as the Refusal to answer with, including the id if it could be read."""
    check_text(body, limits)
    try:
        message = decode_message(body)
        repeated = repeated_member(body)
    except (msgspec.ValidationError, UnicodeDecodeError):
        raise _explain(body) from None
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(body) from None
    if message.method is UNSET:
        _check_answer(message)
    elif message.result is not NOTHING or message.error is not NOTHING:
        raise _refuse(InvalidRequest("A request cannot have a result or an error"), message.id)
    params = message.params
    if params is not NOTHING and bytes(params)[:1] != b"{":
        raise _refuse(InvalidRequest("params must be an object"), message.id)
    if repeated is not None:
        raise _refuse(refuse_repeated(repeated), message.id)
    return message


def read_batch(body: bytes, limits: Limits) -> list[bytes]:
    """Split an array of messages into the bytes of each, without decoding them."""
    check_text(body, limits)
    try:
        items = _decode_batch(body)
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(body) from None
    if not items:
        raise InvalidRequest("The batch is empty")
    if len(items) > limits.batch:
        raise InvalidRequest(f"The batch has {len(items)} messages, the limit is {limits.batch}")
    return [bytes(item) for item in items]


def is_batch(body: bytes) -> bool:
    """Whether the body is a JSON array."""
    return body[:1] != b"{" and body.lstrip(b" \t\r\n")[:1] == b"["


def check_text(body: bytes, limits: Limits) -> None:
    """Reject bytes that are not UTF-8, nest too deep or contain a number that is too long."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise ParseFailure(f"Parse error: not UTF-8 at byte {error.start}") from None
    depth = limits.json_depth
    if (
        len(body) > 2 * depth
        and (body.count(b"{") + body.count(b"[") > depth if len(body) < _LONG else _has_brackets(body, depth))
        and _is_deeper(body, depth)
    ):
        raise ParseFailure(f"Parse error: nested deeper than {depth} levels")
    if len(body) > limits.integer_digits and _has_long_number(body, limits.integer_digits):
        raise ParseFailure(f"Parse error: a number of more than {limits.integer_digits} digits")


def compact(text: Raw) -> Raw:
    """The same JSON without whitespace between tokens, and so on one line; numbers keep their spelling."""
    return Raw(msgspec.json.format(text, indent=-1))


def has_line_break(message: bytes) -> bool:
    """Whether a line-based reader would split the message."""
    return message.find(b"\n") >= 0 or message.find(b"\r") >= 0


def refuse_repeated(name: str) -> InvalidRequest:
    return InvalidRequest(f"The member {name[:60]!r} is repeated within one object")


def request(request_id: RequestId, method: str, params: Json) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: Json) -> bytes:
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def answer(request_id: RequestId, result: bytes) -> bytes:
    """A response with a result that is already JSON."""
    # A join costs a third of formatting.
    return b"".join((b'{"jsonrpc":"2.0","id":', _encode(request_id), b',"result":', result, b"}"))


def refusal(request_id: RequestId | UnsetType | None, error: Refusal, code: int | None = None) -> bytes:
    """An error response; without an id if none could be read."""
    body: dict[str, Json] = {"code": error.code if code is None else code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    if request_id is None or request_id is UNSET:
        return _encode({"jsonrpc": "2.0", "error": body})
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": body})


# This pattern runs on untrusted input, so it must take linear time: no backtracking, and an unterminated string is one
# match to the end.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_LONG: Final = 16 * 1024
_LEVELS: Final = 6
_NO_MARK = bytes(set(range(256)) - set(b'[]{}"'))
_DIGIT = re.compile(rb"[0-9]")
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))


def _has_brackets(body: bytes, most: int) -> bool:
    """Whether there are more opening brackets than that, within strings or not.

    The few brackets of a long text are found twenty times as fast as they are counted.
    """
    for bracket in (b"{", b"["):
        at = body.find(bracket)
        while at >= 0:
            if not most:
                return True
            most -= 1
            at = body.find(bracket, at + 1)
    return False


def _is_deeper(body: bytes, depth: int, levels: int = _LEVELS) -> bool:
    """Whether the brackets outside of strings nest deeper.

    The values of a few levels are looked at one by one, if quotation marks are escaped: then there is a long text, often JSON
    itself, which is skipped five times as fast as its escapes are read.
    """
    if body.startswith(b'"'):
        return False
    if levels and len(body) >= _LONG and body.find(b'\\"') >= 0:
        values = _values_in(body)
        if values is not None:
            return any(_is_deeper(value, depth - 1, levels - 1) for value in values)
    return _depth(body) > depth


def _values_in(body: bytes) -> list[bytes] | None:
    """The values of a compact object or array; None for anything else, such as an object that repeats a name."""
    try:
        members = _decode_members(body) if body.startswith(b"{") else {}
        values = [bytes(value) for value in members.values() or _decode_batch(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Each value has a comma or bracket after it, each name two quotation marks and a colon.
    size = 1 + sum(map(len, values)) + len(values) + sum(map(len, members)) + 3 * len(members)
    return values if size == len(body) else None


def _depth(body: bytes) -> int:
    """How deep the brackets outside of strings nest; of what is not JSON, any number."""
    if body.find(b"\\") >= 0:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Without escaped ones, every other quotation mark begins a string.
    outside = b"".join(body.translate(None, _NO_MARK).split(b'"')[::2])
    # An opening bracket becomes the byte of 1, a closing one the byte of -1: the depth is their running sum.
    return max(accumulate(memoryview(outside.translate(_STEPS)).cast("b")), default=0)


def _has_long_number(body: bytes, digits: int) -> bool:
    # A longer number has a digit at one of these places, and more than half of its digits before or after it.
    half = digits // 2
    places = body[digits - 1 :: digits]
    found = _DIGIT.search(places)
    while found is not None:
        at = found.end() * digits - 1
        if body[at : at + half].isdigit() or body[at - half + 1 : at + 1].isdigit():
            break
        found = _DIGIT.search(places, found.end())
    else:
        return False
    return _STRING.sub(b"", body).translate(_DIGITS).find(b"0" * (digits + 1)) >= 0


def _check_answer(message: Message) -> None:
    if message.id is UNSET:
        raise InvalidRequest("Not a request, a notification or a response: method and id are missing")
    if (message.result is NOTHING) == (message.error is NOTHING):
        raise _refuse(
            InvalidRequest("method is missing, or a response does not have exactly one of result and error"), message.id
        )


def _refuse(refusal: Refusal, request_id: RequestId | UnsetType) -> Refusal:
    refusal.request_id = None if request_id is UNSET else request_id
    return refusal


def _unreadable(body: bytes) -> Refusal:
    if not body.strip():
        return ParseFailure("Parse error: the body is empty; send one JSON-RPC message")
    return ParseFailure("Parse error: the body is not valid JSON")


def _explain(body: bytes) -> Refusal:
    """Why a JSON body is not a message; keeps the id if it is valid."""
    try:
        value = decode_json(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _unreadable(body)
    if not isinstance(value, dict):
        return InvalidRequest("A message must be a JSON object")
    found = value.get("id")
    request_id: RequestId | UnsetType = found if isinstance(found, str | int) and not isinstance(found, bool) else UNSET
    if isinstance(request_id, str) and len(request_id) > ID_LENGTH:
        return InvalidRequest(f"id has {len(request_id)} characters, at most {ID_LENGTH} are allowed")
    if "id" in value and request_id is UNSET:
        return InvalidRequest("id must be a string or an integer")
    if value.get("jsonrpc") != "2.0":
        return _refuse(InvalidRequest('jsonrpc must be "2.0"'), request_id)
    return _refuse(InvalidRequest("method must be a string"), request_id)
