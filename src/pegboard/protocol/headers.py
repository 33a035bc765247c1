"""The MCP headers of Streamable HTTP: which ones mirror the body, and how values are encoded."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from pegboard.call import Json
from pegboard.errors import HeaderMismatch
from pegboard.protocol.revisions import ASSUMED, NAMED, Revision, find_revision

VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
SESSION: Final = b"mcp-session-id"
PARAM: Final = b"mcp-param-"
IDENTITY: Final = frozenset({VERSION, METHOD, NAME, SESSION, b"authorization", b"origin", b"host", b"last-event-id"})
"""Headers that route or identify a request: a duplicate would be ambiguous."""

_OPEN, _CLOSE = b"=?base64?", b"?="
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?\Z")
_SAFEST: Final = 2**53 - 1


def is_single(name: bytes) -> bool:
    """Whether a header may occur only once in a request."""
    return name in IDENTITY or name.startswith(PARAM)


def encode_value(value: str) -> bytes:
    """A value as a header carries it: plain if that is safe, else Base64 between markers."""
    raw = value.encode()
    # Printable ASCII: the bytes from 32 to 126.
    plain = value.isascii() and value.isprintable() and raw == raw.strip()
    if plain and not (raw.startswith(_OPEN) and raw.endswith(_CLOSE)):
        return raw
    return _OPEN + base64.b64encode(raw) + _CLOSE


def decode_value(name: str, raw: bytes) -> str:
    """The value of a header; HeaderMismatch if it is not encoded by the rules."""
    if raw.startswith(_OPEN) and raw.endswith(_CLOSE) and len(raw) >= len(_OPEN) + len(_CLOSE):
        inner = raw[len(_OPEN) : -len(_CLOSE)]
        try:
            value = base64.b64decode(inner, validate=True)
            # A value has one spelling: a proxy could read spare bits or padding differently.
            if base64.b64encode(value) == inner:
                return value.decode()
        except (binascii.Error, UnicodeDecodeError):
            pass
        raise HeaderMismatch(f"Header mismatch: {name} is not valid Base64 of UTF-8 text")
    if not all(32 <= byte < 127 or byte == 9 for byte in raw):
        raise HeaderMismatch(f"Header mismatch: {name} has characters a header cannot carry; send it as =?base64?…?=")
    return raw.decode("ascii")


def read_version(headers: Mapping[bytes, bytes]) -> str | None:
    """The revision that a request names, known or not."""
    sent = headers.get(VERSION)
    return None if sent is None else sent.decode("latin-1")


def stated_revision(headers: Mapping[bytes, bytes]) -> Revision:
    """The revision of a request by its headers alone; rejects an unknown one."""
    version = read_version(headers)
    return find_revision(ASSUMED if version is None else version)


def read_plain(raw: bytes | None) -> str | None:
    """The plain value of a header; None if it has to be decoded, or is missing."""
    return None if raw is None or not raw.isascii() or raw.startswith(_OPEN) else raw.decode("ascii")


def check_mirror(headers: Mapping[bytes, bytes], method: str, about: str) -> None:
    """Reject a modern request whose Mcp-Method or Mcp-Name differs from its body."""
    sent = headers.get(METHOD)
    # Names and methods are nearly always plain ASCII: equal bytes need no decoding.
    if sent != method.encode() or not sent.isascii():
        _differ("Mcp-Method", sent, method)
    if method in NAMED:
        sent = headers.get(NAME)
        if sent != about.encode() or not sent.isascii() or sent.startswith(_OPEN):
            _differ("Mcp-Name", sent, about)


def check_params(headers: Mapping[bytes, bytes], mirrors: Mapping[str, Sequence[str]], arguments: Json) -> None:
    """Reject a modern tools/call whose Mcp-Param headers differ from the arguments that they mirror, as sent.

    `mirrors` has the property path for each name; other headers are ignored.
    """
    for name, path in mirrors.items():
        shown = "Mcp-Param-" + name
        sent, value = headers.get(PARAM + name.lower().encode()), _value_at(arguments, path)
        if value is None:
            if sent is not None:
                raise HeaderMismatch(f"Header mismatch: {shown} is sent, but the body has no {'.'.join(path)}")
        elif sent is None:
            raise HeaderMismatch(
                f"Header mismatch: the {shown} header is missing, but the body has a value at {'.'.join(path)}"
            )
        else:
            _compare(shown, decode_value(shown, sent), value)


def _value_at(arguments: Json, path: Sequence[str]) -> Json:
    """ "Reading the instance value at the exact property path" (Schema Extension); None if there is none."""
    value = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _compare(name: str, header: str, value: Json) -> None:
    match value:
        case bool():
            wanted = "true" if value else "false"
        case int() | float():
            if abs(value) > _SAFEST:
                # "Integer values MUST be within the safe range for JavaScript" (Schema Extension)
                raise HeaderMismatch(f"Header mismatch: the body has a number for {name} beyond ±(2^53-1)")
            wanted = repr(value)
            # "SHOULD compare the header value and the body value numerically rather than as strings"
            if _NUMBER.match(header) and Decimal(header) == Decimal(wanted):
                return
        case str():
            wanted = value
        case _:
            raise HeaderMismatch(f"Header mismatch: {name} must mirror a string, an integer or a boolean in the body")
    if header != wanted:
        raise HeaderMismatch(f"Header mismatch: {name} is {_cut(header)}, the body says {_cut(wanted)}")


def _differ(name: str, sent: bytes | None, wanted: str) -> None:
    if sent is None:
        raise HeaderMismatch(f"Header mismatch: the {name} header is missing, the body says {_cut(wanted)}")
    value = sent.decode("ascii", "replace") if name == "Mcp-Method" else decode_value(name, sent)
    if value != wanted:
        raise HeaderMismatch(f"Header mismatch: {name} is {_cut(value)}, the body says {_cut(wanted)}")


def _cut(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "…")
