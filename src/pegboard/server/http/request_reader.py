"""Turns the bytes of one connection into whole HTTP/1.1 requests, or into one refusal that ends it.

The grammar is llhttp's in its strict mode; what that leaves open is closed when a head is complete. No I/O and no clock:
the same bytes give the same requests however they are cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct
from msgspec.structs import replace

from pegboard.limits import Limits
from pegboard.server.http.plain_responses import body_too_large, plain_error
from pegboard.server.http_types import Answer, Head

# How far the reader is: between requests, in a head, in a body, or at its end after a refusal.
IDLE, HEAD, BODY, ENDED = range(4)

# Fields whose repetition means the same as one comma-separated list; of any other the first value is kept.
LISTS: Final = frozenset(
    {b"accept", b"accept-language", b"cache-control", b"connection", b"forwarded", b"x-forwarded-for"}
)

# Origin-form only (RFC 9112, 3.2.1): no fragment, no absolute URL whose host could differ from the Host field.
TARGET: Final = re.compile(rb"/[!\"$-~]*")

LENGTH: Final = re.compile(rb"\r\ncontent-length: ?([0-9]+)\r\n", re.IGNORECASE)

# A chunk of one byte costs six on the wire; beyond this factor the sender only wastes our time.
CHUNK_OVERHEAD: Final = 8


NO_HEAD: Final = Head(b"", b"", b"", {})


class ServerRequest(Struct, gc=False):
    """A whole request, whether its sender keeps the connection, and whether it may be answered in chunks (HTTP/1.1).

    `plain` is one of which both are true, which came in one piece and whose answer has a body.
    """

    head: Head
    body: bytes
    keep: bool
    chunks: bool
    plain: bool = False


class BadRequest(Exception):
    """Stops the parser from inside one of its callbacks."""

    def __init__(self, refusal: Answer) -> None:
        self.refusal = refusal


MALFORMED: Final = plain_error(400, "This is not a well-formed HTTP/1.1 request.")


@lru_cache(maxsize=256)
def split_target(target: bytes) -> tuple[bytes, bytes] | None:
    """The path and the query of a target in origin form, percent-encoding left as it is."""
    if TARGET.fullmatch(target) is None:
        return None
    path, _, query = target.partition(b"?")
    return path, query


class RequestReader:
    """Bytes go in by `feed`; whole requests line up in `ready`, and `refusal` is what to say after the last of them."""

    __slots__ = (
        "_chunks",
        "_dropped",
        "_feed",
        "_head",
        "_headers",
        "_held",
        "_keep",
        "_known",
        "_known_head",
        "_known_length",
        "_length_at",
        "_limits",
        "_modern",
        "_parser",
        "_peer",
        "_plain",
        "_raw",
        "_remaining",
        "_repeated",
        "_secure",
        "_server",
        "_target",
        "_unweighed",
        "completed",
        "continues",
        "ready",
        "received",
        "refusal",
        "stage",
    )  # fmt: skip

    _head: Head
    _known_head: Head
    _length_at: int
    _keep: bool
    _modern: bool

    def __init__(self, limits: Limits, peer: str = "", server: str = "", secure: bool = False) -> None:
        # A list, since hardly ever more than one waits, and an empty deque holds ten times as much.
        self.ready: list[ServerRequest] = []
        self.refusal: Answer | None = None
        self.stage = IDLE
        self.received = 0
        self.continues = False
        self.completed = False
        self._limits = limits
        self._peer = peer
        self._server = server
        self._secure = secure
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[bytes] = []
        self._dropped = 0
        self._chunks: list[bytes] = []
        self._unweighed = False
        self._held = 0
        self._raw = -1
        self._remaining = 0
        self._plain = False
        self._known = b""
        self._known_length = -1
        self._parser = HttpRequestParser(self)
        self._feed: Callable[[Any], None] = self._parser.feed_data

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        stage = self.stage
        if stage == IDLE and (
            (len(data) == self._known_length and data.startswith(self._known))
            or (self._known_length > 0 and self._adapt(data))
        ):
            self.ready.append(ServerRequest(self._known_head, data[len(self._known) :], True, True, True))
            return
        if stage == ENDED:
            return
        self.completed = False
        self._unweighed = stage == HEAD or len(data) > self._limits.head_bytes
        if self._remaining:
            self._ignore_upgrade(memoryview(data))
        else:
            try:
                self._feed(data)
            except HttpParserUpgrade as upgrade:
                self._ignore_upgrade(memoryview(data)[upgrade.args[0] :])
            except HttpParserError as error:
                self._end_with(error)
        if self.stage:
            self._weigh_part(len(data))
        elif stage == IDLE and self._plain and len(self.ready) == 1:
            self._remember_head(data)

    def refuse(self, refusal: Answer) -> None:
        """Read no further: this is said after the answers to what is ready."""
        if self.stage != ENDED:
            self.stage = ENDED
            self.refusal = refusal

    @property
    def weight(self) -> int:
        """How many bytes are held of requests that have not been served."""
        part = 0
        if self.stage == HEAD:
            part = self._held
        elif self.stage == BODY:
            part = self.received + sum(map(len, self._head.headers.values()))
        return part + sum(len(one.body) for one in self.ready)

    def drop(self, refusal: Answer) -> None:
        """Refuse what has come in part, and hold nothing of it."""
        self.refuse(refusal)
        self._chunks.clear()
        self._headers = {}
        self._head = NO_HEAD

    def close(self) -> None:
        """Let go of the parser, which holds this reader as this reader holds it."""
        self.stage = ENDED
        self.ready.clear()
        if hasattr(self, "_parser"):
            del self._parser
        del self._feed

    def rest(self) -> None:
        """Hold next to nothing: the answer to the last request is a stream that may be open for days.

        Between two requests a parser knows nothing that a new one does not.
        """
        if self.stage == IDLE and not self.ready and self._feed != self._wake:
            self._known, self._known_length = b"", -1
            self._head = self._known_head = NO_HEAD
            del self._parser
            self._feed = self._wake

    def _wake(self, data: bytes | memoryview) -> None:
        self._parser = HttpRequestParser(self)
        self._feed = self._parser.feed_data
        self._feed(data)

    # A client sends the same head again and again. One that came alone with its body, and no other way of framing it than by
    # its length, is known: the same bytes between two requests mean the same again, and only the body is new. Where the
    # length of the body is all that differs, the known head takes it over.

    def _remember_head(self, data: bytes) -> None:
        end = len(data) - self.received
        if data.find(b"\r\n\r\n") != end - 4:
            return
        self._known = data[:end]
        self._known_length = len(data)
        self._known_head = self._head
        self._length_at = -1
        length = LENGTH.search(self._known)
        if length is not None and length[1] == b"%d" % self.received and not self._head.repeated:
            self._length_at = length.start(1)

    def _adapt(self, data: bytes) -> bool:
        """Whether this is the known head again but for the length of its body, which is all there is behind it."""
        at, known = self._length_at, self._known
        if at < 0 or data[:at] != known[:at]:
            return False
        rest = known[known.index(b"\r\n", at) :]
        end = data.find(b"\r\n", at)
        length = b"%d" % (len(data) - end - len(rest))
        if data[at:end] != length or not data.startswith(rest, end) or int(length) > self._limits.body_bytes:
            return False
        head = self._known_head
        self._known = data[: end + len(rest)]
        self._known_length = len(data)
        self._known_head = replace(head, headers={**head.headers, b"content-length": length})
        return True

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self.stage = HEAD
        self._target = b""
        self._headers = {}

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._headers
        if name not in headers:
            headers[name] = value.rstrip()
            return
        self._repeated.append(name)
        self._dropped += len(name) + len(value)
        if name in LISTS:
            headers[name] += b", " + value.rstrip()

    def on_headers_complete(self) -> None:
        headers = self._headers
        parser = self._parser
        limits = self._limits
        version = parser.get_http_version()
        target = split_target(self._target)
        repeated: tuple[bytes, ...] = ()
        if target is None or version != "1.1" or b"host" not in headers:
            target = check_start(target, version, headers)
        if self._unweighed or len(headers) > limits.head_lines:
            self._weigh_head()
        if self._repeated:
            repeated = self._take_repeated()
        if b"content-length" in headers and int(headers[b"content-length"]) > limits.body_bytes:
            raise BadRequest(body_too_large(limits.body_bytes))
        if b"transfer-encoding" in headers or b"content-encoding" in headers:
            check_codings(headers, version)
        self._keep = parser.should_keep_alive()
        self._modern = version == "1.1"
        if b"expect" in headers or b"upgrade" in headers:
            self._check_expectations()
        method = parser.get_method()
        whole = b"transfer-encoding" not in headers and not self._remaining
        self._plain = whole and self._keep and self._modern and method != b"HEAD"
        path, query = target
        self._head = Head(method, path, query, headers, repeated, self._peer, self._server, self._secure)
        # What comes by on_header from now on is a trailer, which RFC 9110 (6.5.1) lets us discard.
        self._headers = {}
        self.stage = BODY
        self.received = 0
        self._raw = -1

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.received += len(chunk)
        if self.received > self._limits.body_bytes:
            raise BadRequest(body_too_large(self._limits.body_bytes))

    def on_message_complete(self) -> None:
        if self._remaining:
            return
        body = b""
        chunks = self._chunks
        if chunks:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
        if self._repeated:
            self._take_repeated()
        self.ready.append(ServerRequest(self._head, body, self._keep, self._modern, self._plain))
        self.completed = True
        self.continues = False
        self.stage = IDLE

    # What llhttp leaves to its user.

    def _take_repeated(self) -> tuple[bytes, ...]:
        repeated = tuple(dict.fromkeys(self._repeated))
        if len(self._headers) + len(self._repeated) > self._limits.head_lines:
            raise BadRequest(plain_error(431, f"The head of a request may have {self._limits.head_lines} lines."))
        if b"host" in repeated:
            raise BadRequest(plain_error(400, "A request has one Host field."))
        self._repeated.clear()
        self._dropped = 0
        return repeated

    def _weigh_head(self) -> None:
        limits = self._limits
        size = len(self._target) + self._dropped + sum(len(name) + len(value) for name, value in self._headers.items())
        if len(self._headers) > limits.head_lines or size > limits.head_bytes:
            text = f"The head of a request may have {limits.head_bytes} bytes and {limits.head_lines} lines."
            raise BadRequest(plain_error(431, text))
        self._held = 0

    def _weigh_part(self, length: int) -> None:
        """Bound what an unfinished request may hold: a part that began behind another request weighs from the next on."""
        if self.stage == HEAD:
            self._held = 0 if self.completed else self._held + length
            if self._held > self._limits.head_bytes:
                self.refuse(plain_error(431, f"The head of a request may have {self._limits.head_bytes} bytes."))
        elif self.stage == BODY:
            self._raw = self._raw + length if self._raw >= 0 else 0
            if self._raw > CHUNK_OVERHEAD * self.received + self._limits.head_bytes:
                self.refuse(plain_error(400, "The chunks of this body are mostly overhead."))

    def _check_expectations(self) -> None:
        headers = self._headers
        if self._parser.should_upgrade():
            if b"transfer-encoding" in headers:
                raise BadRequest(
                    plain_error(400, "A request to upgrade the connection has a body of known length, or none.")
                )
            self._remaining = int(headers.get(b"content-length", b"0"))
        expected = headers.get(b"expect")
        if expected is not None and self._modern:
            if expected.lower() != b"100-continue":
                raise BadRequest(plain_error(417, "The only expectation met is 100-continue."))
            self.continues = True

    def _ignore_upgrade(self, rest: memoryview) -> None:
        """Decline upgrades by reading on in HTTP/1.1; llhttp believes that such a request has no body, but some clients send one."""
        while self.stage != ENDED:
            if self._remaining:
                body = bytes(rest[: self._remaining])
                rest = rest[len(body) :]
                self._remaining -= len(body)
                if body:
                    self.on_body(body)
                if self._remaining:
                    return
                self.on_message_complete()
            try:
                self._feed(rest)
                return
            except HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except HttpParserError as error:
                self._end_with(error)

    def _end_with(self, error: HttpParserError) -> None:
        cause = error.__context__
        self.refuse(cause.refusal if isinstance(cause, BadRequest) else MALFORMED)


def check_start(target: tuple[bytes, bytes] | None, version: str, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """Refuse a request line we do not serve, or a request of HTTP/1.1 that names no host."""
    if version not in ("1.1", "1.0"):
        raise BadRequest(plain_error(505, "This server speaks HTTP/1.1."))
    if target is None:
        raise BadRequest(
            plain_error(400, "The request target must be a path: no absolute URL, no authority, no fragment.")
        )
    if version == "1.1" and b"host" not in headers:
        raise BadRequest(plain_error(400, "A request of HTTP/1.1 has a Host field."))
    return target


def check_codings(headers: dict[bytes, bytes], version: str) -> None:
    """Take bodies only as they are, or cut into chunks as HTTP/1.1 does it."""
    transfer = headers.get(b"transfer-encoding")
    if transfer is not None and (version != "1.1" or transfer.lower() != b"chunked"):
        raise BadRequest(plain_error(400, "The only transfer coding accepted is chunked, in HTTP/1.1."))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest(plain_error(415, "The body of a request must not be compressed."))
