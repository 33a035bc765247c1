"""Reads a plain `tools/call` in one pass; every other message takes the full path.

Theory of operation. A plain call has four members, its params have one to three, and its `_meta` was seen before. Each
string takes two quotation marks, so if these members account for all marks of the body, there is no other member and
none is repeated. Members of the arguments are checked as on the full path (`members.may_repeat`); those of `_meta` were
checked when it was first seen. The marks bound the depth as well: a nested object needs a name, which takes two marks,
and an array shows by its bracket. So one count replaces rules that the full path applies one by one. Every message that
passes here would become the same call on the full path.

A client that calls a tool again sends the same bytes except for the id and the arguments. The body of a plain call is
therefore kept as a pattern: what is before, between and after the two. If the next body has the same three parts, and in
the two places digits and one JSON object, it is the same message with another id and other arguments, and only these have
to be read.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.call import EMPTY_OBJECT, NO_CALLER, NULL_CHANNEL, Call, Caller, RequestId
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import NOTHING, check_text, decode_message
from pegboard.protocol.members import QUOTE, may_repeat
from pegboard.protocol.params import decode_params
from pegboard.server.exchange.admission import CallerCache

CALL: Final = "tools/call"
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode

# The marks of the members jsonrpc, method, params and name, of their three strings, and of the name `id`.
_ALWAYS: Final = 4 + 4 + 2 + 4 + 2

# A larger body makes no pattern: its connection may be idle for a long time.
_PATTERN_BYTES: Final = 2048
# An id with up to 18 digits is an integer of 64 bits.
_ID_DIGITS: Final = 18
_DIGITS: Final = b"0123456789"
_PARAMS: Final = re.compile(rb'"params"[ \t\r\n]*:[ \t\r\n]*')
_ARGUMENTS: Final = re.compile(rb'"arguments"[ \t\r\n]*:[ \t\r\n]*')
_ID: Final = re.compile(rb'"id"[ \t\r\n]*:[ \t\r\n]*([1-9][0-9]*)')


class PlainCall(Call, kw_only=True):
    """A tool call without special members; its caller is NO_CALLER until its session is found."""

    id: RequestId
    has_own_task: ClassVar[bool] = True


class CallPattern(Struct, frozen=True, gc=False):
    """The body of a plain call without its id and arguments; `beside` are the parts of its params.

    `marks` and `brackets` count the quotation marks and the opening brackets of the body without its arguments; `start`,
    `gap` and `stop` follow from the lengths of its parts, none of which is empty.
    """

    before: bytes
    between: bytes
    after: bytes
    id_first: bool
    beside: tuple[bytes, bytes]
    name: str
    caller: Caller
    marks: int
    brackets: int
    start: int
    gap: int
    stop: int


class Sender(Protocol):
    """Where the pattern of a sender's last call is kept."""

    pattern: CallPattern | None


class FastPath:
    """Reads plain calls of clients in the cache `callers`."""

    __slots__ = ("_depth", "_digits", "_known", "_limits", "_most")

    def __init__(self, limits: Limits, callers: CallerCache) -> None:
        self._limits = limits
        self._depth = limits.json_depth
        self._most = 2 * limits.json_depth
        self._digits = limits.integer_digits
        self._known = callers.known

    def read(self, body: bytes, sender: Sender) -> PlainCall | None:
        """The plain call in a body, which has no channel yet; None if it is anything else."""
        pattern = sender.pattern
        if pattern is not None and body.startswith(pattern.before) and body.endswith(pattern.after):
            varying = body[pattern.start : pattern.stop]
            # Not by `partition`: it prepares a search for the long text between.
            if pattern.id_first:
                rest = varying.lstrip(_DIGITS)
                number, written = varying[: len(varying) - len(rest)], rest[pattern.gap :]
                found = rest.startswith(pattern.between)
            else:
                rest = varying.rstrip(_DIGITS)
                number, written = varying[len(rest) :], rest[: -pattern.gap]
                found = rest.endswith(pattern.between)
            # There is a number, and JSON has no leading zero.
            if found and number >= b"1" and len(number) <= _ID_DIGITS and self._fits(pattern, written):
                opening, closing = pattern.beside
                return PlainCall(
                    method=CALL,
                    caller=pattern.caller,
                    channel=NULL_CHANNEL,
                    id=int(number),
                    name=pattern.name,
                    raw=Raw(written),
                    params=Raw(opening + written + closing),
                    _beside=pattern.beside,
                )
        return self._read_new(body, sender)

    def _fits(self, pattern: CallPattern, written: bytes) -> bool:
        """Whether this is one JSON object that makes a plain call of the pattern."""
        if len(written) > self._digits or not written.isascii():
            return False
        try:
            members = _decode_members(written)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        inside = written.count(QUOTE)
        marks = pattern.marks + inside
        if marks >= self._most:
            return False
        if (pattern.brackets or written.find(b"[") >= 0) and (
            marks // 2 + pattern.brackets + written.count(b"[") >= self._depth
        ):
            return False
        # If all strings are names and all of them differ, none is repeated.
        return 2 * len(members) == inside or not may_repeat(written, inside)

    def _read_new(self, body: bytes, sender: Sender) -> PlainCall | None:
        """Read a body that does not fit the pattern of its sender."""
        if len(body) > self._digits or not body.isascii():
            check_text(body, self._limits)
        try:
            message = decode_message(body)
            if message.method != CALL:
                return None
            params = decode_params(message.params)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        request_id, arguments = message.id, params.arguments
        if params.name is UNSET or request_id is UNSET:
            return None
        marks = _ALWAYS
        written, inside = b"", 0
        caller = NO_CALLER
        if params.meta is not NOTHING:
            known = self._known.get(bytes(params.meta))
            if known is None:
                return None
            caller, theirs = known
            marks += theirs
        if arguments is NOTHING:
            arguments = EMPTY_OBJECT
        else:
            written = bytes(arguments)
            inside = written.count(QUOTE)
            marks += 2 + inside
        if type(request_id) is str:
            marks += 2
        if marks != body.count(QUOTE) or marks >= self._most:
            return None
        if body.find(b"[") >= 0 and marks // 2 + body.count(b"[") >= self._depth:
            return None
        # Two members take at least four marks. If all strings are names and all of them differ, none is repeated.
        flat = inside < 4 or (written.startswith(b"{") and 2 * len(_decode_members(written)) == inside)
        if not flat and may_repeat(written, inside):
            return None
        call = PlainCall(
            method=CALL,
            caller=caller,
            channel=NULL_CHANNEL,
            id=request_id,
            name=params.name,
            # Not a part of the body, which an observer would keep with it.
            raw=Raw(written) if written else arguments,
            params=message.params,
        )
        sender.pattern = _find_pattern(body, call, written, marks - inside) if written else None
        return call


def _find_pattern(body: bytes, call: PlainCall, written: bytes, marks: int) -> CallPattern | None:
    """The pattern of a plain call with these arguments; None if the places of its id and arguments are not certain.

    Without escapes, the names of all members are as they are searched for. Outside of the params there are only the four
    members of the message, so the first `id` and the first `params` are the right ones; inside, `_meta` may have any member.
    """
    params = bytes(call.params)
    if len(body) > _PATTERN_BYTES or body.find(b"\\") >= 0 or params.count(b'"arguments"') != 1:
        return None
    outer, inner = _PARAMS.search(body), _ARGUMENTS.search(params)
    if outer is None or inner is None:
        return None
    start, opened = outer.end(), inner.end()
    closed = opened + len(written)
    end = start + len(params)
    number = _ID.search(body, 0, start) or _ID.search(body, end)
    if number is None or body[start:end] != params or params[opened:closed] != written or int(number[1]) != call.id:
        return None
    id_first = number.start() < start
    first, last = ((number.start(1), number.end(1)), (start + opened, start + closed))[:: 1 if id_first else -1]
    before, between, after = body[: first[0]], body[first[1] : last[0]], body[last[1] :]
    return CallPattern(
        before=before,
        between=between,
        after=after,
        id_first=id_first,
        beside=(params[:opened], params[closed:]),
        name=call.name,
        caller=call.caller,
        marks=marks,
        brackets=body.count(b"[") - written.count(b"["),
        start=len(before),
        gap=len(between),
        stop=-len(after),
    )
