"""Reads a plain `tools/call` in one pass; every other message takes the full path.

Theory of operation. A plain call has four members, its params have one to three, and its `_meta` was seen before. Each
string takes two quotation marks, so if these members account for all marks of the body, there is no other member and
none is repeated. Members of the arguments are checked as on the full path (`members.may_repeat`); those of `_meta` were
checked when it was first seen. The marks bound the depth as well: a nested object needs a name, which takes two marks,
and an array shows by its bracket. So one count replaces rules that the full path applies one by one. Every message that
passes here would become the same call on the full path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from pegboard.call import EMPTY_OBJECT, Call, Caller, Channel, RequestId
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import NOTHING, check_text, decode_message
from pegboard.protocol.members import QUOTE, may_repeat
from pegboard.protocol.params import decode_params
from pegboard.server.exchange.admission import CallerCache

CALL: Final = "tools/call"
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode

# The marks of the members jsonrpc, method, params and name, of their three strings, and of the name `id`.
_ALWAYS: Final = 4 + 4 + 2 + 4 + 2


class PlainCall(Struct, gc=False):
    """A tool call without special members; its caller is None if it needs a session."""

    id: RequestId
    name: str
    arguments: Raw
    params: Raw
    caller: Caller | None

    def call(
        self, caller: Caller, channel: Channel, headers: Mapping[bytes, bytes] | None = None, address: str = ""
    ) -> Call:
        return Call(
            method=CALL,
            caller=caller,
            channel=channel,
            id=self.id,
            name=self.name,
            raw=self.arguments,
            params=self.params,
            headers=headers,
            address=address,
        )


class FastPath:
    """Reads plain calls of clients in the cache `callers`."""

    __slots__ = ("_depth", "_digits", "_known", "_limits", "_most")

    def __init__(self, limits: Limits, callers: CallerCache) -> None:
        self._limits = limits
        self._depth = limits.json_depth
        self._most = 2 * limits.json_depth
        self._digits = limits.integer_digits
        self._known = callers.known

    def read(self, body: bytes) -> PlainCall | None:
        """The plain call in a body; None if it is anything else."""
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
        caller: Caller | None = None
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
        return PlainCall(request_id, params.name, arguments, message.params, caller)
