"""The rules for the head of a request that the parser leaves to its user; Content-Type and Accept."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pegboard.errors import InvalidRequest
from pegboard.limits import Limits
from pegboard.server.http.responses import plain_error
from pegboard.server.http_types import Accepts, Answer

# Origin-form only (RFC 9112, 3.2.1): no fragment, no absolute URL whose host could differ from the Host field.
TARGET: Final = re.compile(rb"/[!\"$-~]*")


class BadRequest(Exception):
    """Stops the parser from inside one of its callbacks."""

    def __init__(self, refusal: Answer) -> None:
        self.refusal = refusal


MALFORMED: Final = plain_error(400, "This is not a well-formed HTTP/1.1 request.")


def split_target(target: bytes) -> tuple[bytes, bytes] | None:
    """The path and the query of a target in origin form, percent-encoding left as it is."""
    if TARGET.fullmatch(target) is None:
        return None
    path, _, query = target.partition(b"?")
    return path, query


# Targets repeat, so the result is cached; long ones are not, since the cache keeps them.
REMEMBERED_BYTES: Final = 256
find_path = lru_cache(maxsize=256)(split_target)


def check_start(
    method: bytes, target: tuple[bytes, bytes] | None, version: str, headers: dict[bytes, bytes]
) -> tuple[bytes, bytes]:
    """Reject a request line that is not supported, or a request of HTTP/1.1 without a Host field."""
    if version not in ("1.1", "1.0"):
        raise BadRequest(plain_error(505, "This server only supports HTTP/1.1."))
    if method == b"CONNECT":
        # What follows its head is a tunnel, not a body: two parsers could disagree about where the next request starts.
        raise BadRequest(plain_error(400, "This server is not a proxy: CONNECT is not supported."))
    if target is None:
        raise BadRequest(
            plain_error(400, "The request target must be a path: no absolute URL, no authority, no fragment.")
        )
    if version == "1.1" and b"host" not in headers:
        raise BadRequest(plain_error(400, "A request of HTTP/1.1 must have a Host field."))
    return target


def is_chunked(headers: dict[bytes, bytes], version: str) -> bool:
    """Whether a body is chunked; rejects every other coding."""
    transfer = headers.get(b"transfer-encoding")
    if transfer is not None and (version != "1.1" or transfer.lower() != b"chunked"):
        raise BadRequest(plain_error(400, "The only transfer coding accepted is chunked, in HTTP/1.1."))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest(plain_error(415, "The body of a request must not be compressed."))
    return transfer is not None


def expects_continue(headers: dict[bytes, bytes]) -> bool:
    """Whether the client waits for `100 Continue` before it sends the body; rejects every other expectation."""
    expected = headers.get(b"expect")
    if expected is not None and expected.lower() != b"100-continue":
        raise BadRequest(plain_error(417, "The only supported expectation is 100-continue."))
    return expected is not None


def head_too_long(limits: Limits) -> Answer:
    """The response to a head that exceeds its limits."""
    return plain_error(
        431, f"The head of a request is limited to {limits.head_bytes} bytes, {limits.head_lines} lines."
    )


LENGTH: Final = b"content-length"
SESSION: Final = b"mcp-session-id"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?([0-9]+)\r\n", re.IGNORECASE)
_SESSION: Final = re.compile(rb"\r\nmcp-session-id: ?([!-~]+)\r\n", re.IGNORECASE)
_SESSION_ID: Final = re.compile(rb"[!-~]+")


class HeadPattern(Struct, frozen=True, gc=False):
    """A head without the values that differ from one request of a client, or of a proxy's clients, to the next.

    `first` is what comes before the first of these values; `others` are the names of their fields, each with what follows
    the value up to the next one. `session` is the length of the session id, 0 if there is none; `place` is its index in
    the head, counted from the end if the length of the body comes before it.
    """

    first: bytes
    others: tuple[tuple[bytes, bytes], ...]
    session: int
    place: int

    def split(self, head: bytes) -> tuple[bytes, bytes]:
        """What comes before the session id of a known head, and after it."""
        before = head[: self.place]
        return before, head[len(before) + self.session :]

    def read(self, data: bytes) -> tuple[int, dict[bytes, bytes]] | None:
        """Where the body starts, and the values; None if anything else differs, or something follows the body."""
        if not data.startswith(self.first):
            return None
        at = len(self.first)
        values = {}
        for name, after in self.others:
            end = data.find(b"\r\n", at)
            if not data.startswith(after, end):
                return None
            values[name] = data[at:end]
            at = end + len(after)
        if values[LENGTH] != b"%d" % (len(data) - at):
            return None
        if self.session and (len(values[SESSION]) != self.session or _SESSION_ID.fullmatch(values[SESSION]) is None):
            return None
        return at, values


def find_head_pattern(head: bytes, length: int) -> HeadPattern | None:
    """The pattern of a head that repeats no field and states this length of its body in the usual form."""
    stated, session = _LENGTH.search(head), _SESSION.search(head)
    if stated is None or stated[1] != b"%d" % length:
        return None
    places = [(*stated.span(1), LENGTH)] + ([] if session is None else [(*session.span(1), SESSION)])
    places.sort()
    ends = [start for start, _, _ in places[1:]] + [len(head)]
    return HeadPattern(
        head[: places[0][0]],
        tuple((name, head[end:until]) for (_, end, name), until in zip(places, ends, strict=True)),
        0 if session is None else len(session[1]),
        0 if session is None else session.start(1) - (len(head) if places[0][2] == LENGTH else 0),
    )


class UnsupportedMediaType(InvalidRequest):
    status = 415


@lru_cache(maxsize=256)
def read_accept(accept: bytes | None) -> Accepts:
    """The forms that an Accept header allows; a client without the header accepts both."""
    if accept is None:
        return Accepts()
    kinds = set()
    for part in accept.lower().split(b","):
        kind, *parameters = (piece.strip() for piece in part.split(b";"))
        if not any(_is_zero(parameter) for parameter in parameters):
            kinds.add(kind)
    return Accepts(
        json=not kinds.isdisjoint((b"*/*", b"application/*", b"application/json")),
        stream=not kinds.isdisjoint((b"*/*", b"text/*", b"text/event-stream")),
    )


def check_content_type(value: bytes | None) -> None:
    """Reject a body whose Content-Type is not JSON, or not UTF-8."""
    kind, *parameters = (piece.strip() for piece in (value or b"").lower().split(b";"))
    charsets = [piece.partition(b"=")[2].strip(b' "') for piece in parameters if piece.startswith(b"charset=")]
    if kind != b"application/json":
        raise UnsupportedMediaType("Content-Type must be application/json")
    if any(charset != b"utf-8" for charset in charsets):
        raise UnsupportedMediaType("The charset of the Content-Type must be utf-8: JSON-RPC messages must be UTF-8")


def _is_zero(parameter: bytes) -> bool:
    """Whether a quality value means "not acceptable" (RFC 9110, 12.4.2)."""
    name, _, value = parameter.partition(b"=")
    return name.strip() == b"q" and value.strip().rstrip(b"0") in (b"", b"0.", b".") and value.strip() != b""
