"""Parses the bytes of a connection into HTTP/1.1 requests, within limits; no I/O.

The grammar is that of llhttp in strict mode; when a head is complete, it is checked for what llhttp accepts and we do
not. No I/O and no clock: the same bytes give the same requests however they are split.

The parser gets the bytes in pieces, and a piece never extends beyond the end of a request. When enough requests wait, the
reader stops there and keeps the remaining bytes unparsed: a small request takes thirty times as much memory once it is
parsed. The size and the number of lines of a head are counted before it is parsed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec.structs import replace

from pegboard.limits import Limits
from pegboard.server.http.head_rules import (
    MALFORMED,
    REMEMBERED_BYTES,
    SESSION,
    BadRequest,
    HeadPattern,
    check_start,
    expects_continue,
    find_head_pattern,
    find_path,
    head_too_long,
    is_chunked,
    split_target,
)
from pegboard.server.http.responses import body_too_large, plain_error
from pegboard.server.http.server_request import LINE_COST, NO_HEAD, REQUEST_COST, ServerRequest
from pegboard.server.http_types import LIGHT, Answer, Head

# The state of the reader: between requests, in a head, in a body, stopped with unparsed bytes because enough requests
# wait, or ended by a rejection.
IDLE, HEAD, BODY, FULL, ENDED = range(5)

# Repeated fields that mean the same as one comma-separated list; of any other the first value is kept.
LISTS: Final = frozenset(
    {b"accept", b"accept-language", b"cache-control", b"connection", b"forwarded", b"x-forwarded-for"}
)

# A chunk of one byte costs six on the wire; a larger factor has no good reason.
CHUNK_OVERHEAD: Final = 8

BLANK_LINE: Final = b"\r\n\r\n"
LINE_ENDS: Final = re.compile(rb"[\r\n]+")
# Only the parser knows where the last chunk ends, so pieces of a chunked body are small: one may contain further requests.
CHUNKED_PIECE: Final = 256
# A larger head is not cached: its connection may be idle for a long time.
KNOWN_BYTES: Final = 8192


class RequestReader:
    """Parses the bytes given to `feed`; whole requests are in `ready`, and `refusal` is the response after them.

    Once `limits.pipelined` requests are ready the stage is FULL; `read_on` continues when they have been taken.
    """

    __slots__ = (
        "_again", "_around", "_bare", "_body", "_dropped", "_feed", "_head", "_headers", "_keep", "_known", "_known_head", "_known_length", "_length",
        "_limits", "_lines", "_modern", "_parsed", "_parser", "_pattern", "_peer", "_plain", "_raw", "_repeated", "_secure", "_server",
        "_size", "_stopped_at", "_target", "_unparsed", "_upgrading", "continues", "ready", "received", "refusal", "stage",
    )  # fmt: skip

    _known_head: Head
    _keep: bool
    _modern: bool

    def __init__(self, limits: Limits, peer: str = "", server: str = "", secure: bool = False) -> None:
        # A list: more than one request hardly ever waits, and an empty deque takes ten times as much memory.
        self.ready: list[ServerRequest] = []
        self.refusal: Answer | None = None
        self.stage = IDLE
        self.received = 0
        self.continues = False
        self._limits = limits
        self._peer = peer
        self._server = server
        self._secure = secure
        self._target = b""
        self._head = NO_HEAD
        self._headers: dict[bytes, bytes] = {}
        self._repeated: tuple[bytes, ...] = ()
        # The current head: its bytes and lines so far, how many lines repeat a field, and how many bytes of those are dropped.
        self._size = 0
        self._lines = 0
        self._again = 0
        self._dropped = 0
        # The current body: its length (-1 if chunked), and of chunks the bytes received, in all and since the last body byte.
        self._body: bytes | bytearray = b""
        self._length = 0
        self._raw = 0
        self._bare = 0
        self._upgrading = False
        self._plain = False
        self._unparsed = b""
        self._parsed = 0
        self._stopped_at = IDLE
        self._known = b""
        self._known_length = -1
        self._pattern: HeadPattern | None = None
        # What surrounds the session id in the known head, once another request of the connection had another id.
        self._around: tuple[bytes, bytes] | None = None
        self._parser = HttpRequestParser(self)
        self._feed: Callable[[Any], None] = self._parser.feed_data

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection."""
        stage = self.stage
        if stage == IDLE and (
            (len(data) == self._known_length and data.startswith(self._known))
            or (self._pattern is not None and self._adapt(data, self._pattern))
        ):
            self.ready.append(ServerRequest(self._known_head, data[len(self._known) :], True, True, True))
            return
        if stage == IDLE:
            if len(data) <= LIGHT:
                self._parse_small(data)
            else:
                self._parse(data)
            if self.stage == IDLE and self._plain and len(self.ready) == 1:
                self._remember_head(data)
        elif stage == FULL:
            self._unparsed = self._unparsed[self._parsed :] + data
            self._parsed = 0
        elif stage != ENDED:
            self._parse(data)

    @property
    def head(self) -> Head:
        """The head of the request whose body is being read."""
        return self._head

    def read_on(self) -> None:
        """Parse the bytes that were kept while the reader was full."""
        data, self._unparsed = self._unparsed, b""
        self.stage = self._stopped_at
        self._parse(data, self._parsed)

    def refuse(self, refusal: Answer) -> None:
        """Stop reading; this response follows those to the requests in `ready`."""
        if self.stage != ENDED:
            self.stage = ENDED
            self.refusal = refusal
            self._unparsed = b""

    @property
    def weight(self) -> int:
        """The bytes of memory of the requests that have not been served."""
        held = len(self._unparsed) + sum(request.weight for request in self.ready)
        stage = self._stopped_at if self.stage == FULL else self.stage
        if stage == HEAD:
            held += self._weigh_head(self._headers)
        elif stage == BODY:
            held += self._weigh_head(self._head.headers) + sys.getsizeof(self._body) + self._bare
        return held

    def drop(self, refusal: Answer) -> None:
        """Reject a partly received request, and free its memory."""
        self.refuse(refusal)
        self._body = b""
        self._headers = {}
        self._head = NO_HEAD

    def close(self) -> None:
        """Delete the parser, which forms a reference cycle with this reader."""
        self.stage = ENDED
        self.ready.clear()
        self._unparsed = self._body = b""
        if hasattr(self, "_parser"):
            del self._parser
        del self._feed

    def rest(self) -> None:
        """Free nearly all memory: the response to the last request is a stream that may be open for days.

        Between two requests, a parser has no state that a new one does not have.
        """
        if self.stage == IDLE and not self.ready and self._feed != self._wake:
            self._known, self._known_length = b"", -1
            self._known_head, self._pattern, self._around = NO_HEAD, None, None
            del self._parser
            self._feed = self._wake

    def _wake(self, data: bytes | memoryview) -> None:
        self._parser = HttpRequestParser(self)
        self._feed = self._parser.feed_data
        self._feed(data)

    # A client sends the same head again and again. A head is remembered if it arrived in one piece with its body, whose
    # length it states: if the same bytes follow a complete request, they mean the same, and only the body is new. If
    # only the length of the body and the id of the session differ, the known head is adapted: a proxy sends the requests of
    # many clients on one connection.

    def _remember_head(self, data: bytes) -> None:
        end, request = len(data) - self.received, self.ready[0]
        # The bytes, in one piece and in two, and the parsed head.
        if 3 * end + LINE_COST * len(request.head.headers) > KNOWN_BYTES or data.find(BLANK_LINE) != end - 4:
            return
        self._known, self._around = data[:end], None
        self._known_length = len(data)
        self._known_head = request.head
        self._pattern = None if request.head.repeated else find_head_pattern(self._known, self.received)

    def _adapt(self, data: bytes, pattern: HeadPattern) -> bool:
        """Whether this is the known head again, except for the values that may differ, and nothing follows the body."""
        if pattern.session and len(data) == self._known_length:
            # Only the session may differ; an id of another kind than ours, which have only letters and digits, is left to
            # `read`.
            before, after = self._around or pattern.split(self._known)
            start = len(before)
            end = start + pattern.session
            if data.startswith(before) and data.startswith(after, end) and (session := data[start:end]).isalnum():
                # A copy: the last request, which may still be read, keeps its own head.
                last = self._known_head
                headers = last.headers.copy()
                headers[SESSION] = session
                self._known, self._known_head = data[: len(self._known)], replace(last, headers=headers)
                self._around = before, after
                return True
        found = pattern.read(data)
        if found is None or len(data) - found[0] > self._limits.body_bytes:
            return False
        start, values = found
        head = self._known_head
        self._known, self._around = data[:start], None
        self._known_length = len(data)
        self._known_head = replace(head, headers={**head.headers, **values})
        return True

    def _parse_small(self, data: bytes) -> None:
        """Parse small data in one piece, unless it may contain more requests than may wait; this is the common case."""
        limits, size, ready = self._limits, len(data), self.ready
        waiting = len(ready)
        # Every request line contains this; if the data has more of them for another reason, parsing in pieces works too.
        if data.count(b"HTTP/1.") + waiting > limits.pipelined or size > limits.head_bytes:
            self._parse(data)
            return
        try:
            self._feed(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            parsed = self._note_end(error, size)
            if parsed < size:
                self._parse(data[parsed:])
        if self.stage == IDLE:
            if len(ready) == waiting + 1:
                ready[-1].size = size - self.received
        elif self.stage == BODY:
            self._size = size - self.received if len(ready) == waiting else 0
            if self._headers:
                self._skip_trailer()
        elif self.stage == HEAD and len(ready) == waiting:
            # Blank lines before the request line are not part of the head.
            head = data.lstrip(b"\r\n")
            self._size, self._lines = len(head), head.count(b"\n")
            if self._lines > limits.head_lines + 2:
                self.refuse(head_too_long(self._limits))

    # One piece after the other.

    def _parse(self, data: bytes, start: int = 0) -> None:
        end = len(data)
        if self.stage == HEAD:
            # The blank line may have started in the previous data.
            start = self._parse_head(data, start, min(end, start + len(BLANK_LINE) - 1))
        while start < end:
            stage = self.stage
            if stage == ENDED:
                return
            if len(self.ready) >= self._limits.pipelined:
                # An offset instead of a slice: many small requests would copy the remaining bytes again and again.
                self._unparsed, self._parsed = data, start
                self._stopped_at = stage
                self.stage = FULL
                return
            if stage == BODY:
                start = self._parse_body(data, start)
            else:
                found = data.find(BLANK_LINE, start)
                start = self._parse_head(data, start, found + len(BLANK_LINE) if found >= 0 else end)

    def _parse_head(self, data: bytes, start: int, cut: int) -> int:
        """Parse a piece of a head and return where the next piece starts."""
        limits = self._limits
        if self.stage == IDLE and data[start] < 32 and (blanks := LINE_ENDS.match(data, start)):
            # RFC 9112, 2.2: "a server … SHOULD ignore at least one empty line (CRLF) received prior to the request-line"
            return self._run(data, start, blanks.end())
        self._size += cut - start
        self._lines += data.count(b"\n", start, cut)
        # The request line and the blank line are not header lines.
        if self._size > limits.head_bytes or self._lines > limits.head_lines + 2:
            self.refuse(head_too_long(self._limits))
            return cut
        return self._run(data, start, cut)

    def _parse_body(self, data: bytes, start: int) -> int:
        """Parse a piece of a body and return where the next piece starts."""
        if self._length >= 0:
            cut = min(len(data), start + self._length - self.received)
            if not self._upgrading:
                return self._run(data, start, cut)
            # llhttp assumes that a request to upgrade has no body, but some clients send one.
            self.on_body(data[start:cut])
            if self.received == self._length:
                self._upgrading = False
                self.on_message_complete()
            return cut
        before = self.received
        cut = self._run(data, start, min(len(data), start + CHUNKED_PIECE))
        if self.stage == BODY and self._length < 0:
            self._weigh_chunks(cut - start, before)
            if self._headers:
                self._skip_trailer()
        return cut

    def _run(self, data: bytes, start: int, cut: int) -> int:
        """Feed a piece to the parser and return where it stopped."""
        try:
            self._feed(data[start:cut])
        except (HttpParserError, HttpParserUpgrade) as error:
            return start + self._note_end(error, cut - start)
        return cut

    def _note_end(self, error: Exception, size: int) -> int:
        """Handle an exception of the parser; returns how many of these bytes it has parsed."""
        if isinstance(error, HttpParserUpgrade):
            # The upgrade is declined: the connection continues with HTTP/1.1.
            return int(error.args[0])
        cause = error.__context__
        self.refuse(cause.refusal if isinstance(cause, BadRequest) else MALFORMED)
        return size

    def _weigh_head(self, headers: dict[bytes, bytes]) -> int:
        return REQUEST_COST + self._size - self._dropped + LINE_COST * len(headers)

    def _weigh_chunks(self, length: int, before: int) -> None:
        """Limit the overhead of chunks: sizes, extensions, and the trailer, of which the parser buffers one line."""
        self._raw += length
        self._bare = self._bare + length if self.received == before else 0
        most = self._limits.head_bytes
        if self._raw > CHUNK_OVERHEAD * self.received + most or self._bare > most:
            self.refuse(plain_error(400, "The chunks of this body are mostly overhead."))

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self.stage = HEAD
        self._headers = {}
        self._repeated = ()

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._headers
        if name not in headers:
            headers[name] = value.rstrip()
            return
        if name not in self._repeated:
            self._repeated += (name,)
        self._again += 1
        self._dropped += len(name)
        if name in LISTS:
            headers[name] += b", " + value.rstrip()
        else:
            self._dropped += len(value)

    def on_headers_complete(self) -> None:
        headers = self._headers
        parser = self._parser
        limits = self._limits
        version = parser.get_http_version()
        method = parser.get_method()
        target = find_path(self._target) if len(self._target) <= REMEMBERED_BYTES else split_target(self._target)
        if target is None or version != "1.1" or b"host" not in headers or method == b"CONNECT":
            target = check_start(method, target, version, headers)
        if len(headers) + self._again > limits.head_lines:
            raise BadRequest(head_too_long(self._limits))
        if b"host" in self._repeated:
            raise BadRequest(plain_error(400, "A request must have one Host field."))
        self._length = 0
        if b"content-length" in headers:
            self._length = int(headers[b"content-length"])
            if self._length > limits.body_bytes:
                raise BadRequest(body_too_large(limits.body_bytes))
        if (b"transfer-encoding" in headers or b"content-encoding" in headers) and is_chunked(headers, version):
            self._length = -1
            self._raw = self._bare = 0
        self._keep = parser.should_keep_alive()
        self._modern = version == "1.1"
        if b"upgrade" in headers and parser.should_upgrade():
            if self._length < 0:
                raise BadRequest(
                    plain_error(400, "A request to upgrade the connection must state the length of its body.")
                )
            self._upgrading = self._length > 0
        if self._modern and b"expect" in headers:
            self.continues = expects_continue(headers)
        self._plain = self._length >= 0 and not self._upgrading and self._keep and self._modern and method != b"HEAD"
        path, query = target
        self._head = Head(method, path, query, headers, self._repeated, self._peer, self._server, self._secure)
        self._headers = {}
        self._target = b""
        self.stage = BODY
        self.received = 0

    def on_body(self, part: bytes) -> None:
        if not self.received:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            # One buffer: a list of two-byte chunks would take thirty times as much memory.
            self._body = bytearray(self._body) + part
        self.received += len(part)
        if self.received > self._limits.body_bytes:
            raise BadRequest(body_too_large(self._limits.body_bytes))

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        body = self._body if self.received else b""
        if isinstance(body, bytearray):
            body = bytes(body)
        self._body = b""
        size = self._size - self._dropped
        self.ready.append(ServerRequest(self._head, body, self._keep, self._modern, self._plain, size))
        self._head = NO_HEAD
        if self._headers:
            self._headers = {}
        self._size = self._lines = self._again = self._dropped = 0
        self.continues = False
        self.stage = IDLE

    def _skip_trailer(self) -> None:
        """Count the trailer lines received so far and drop them, which RFC 9110 (6.5.1) permits."""
        self._lines += len(self._headers)
        self._headers = {}
        if self._lines > self._limits.head_lines + 2:
            self.refuse(head_too_long(self._limits))
