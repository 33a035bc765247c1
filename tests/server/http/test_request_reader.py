"""Bytes to requests: what is accepted, what is refused, and that cutting the bytes elsewhere changes nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.limits import Limits
from pegboard.server.http.request_reader import CHUNKED_PIECE, ENDED, FULL, IDLE, RequestReader

H = b"Host: x\r\n"
POST = b"POST / HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


# These tests take the requests from the reader only when all bytes have come.
ANY_NUMBER = Limits(pipelined=1_000_000)


def read(data: bytes, limits: Limits = ANY_NUMBER) -> RequestReader:
    reader = RequestReader(limits)
    reader.feed(data)
    return reader


def seen(reader: RequestReader) -> list[tuple[object, ...]]:
    return [
        (
            one.head.method,
            one.head.path,
            one.head.query,
            one.head.headers,
            one.head.repeated,
            one.body,
            one.keep,
            one.chunks,
        )
        for one in reader.ready
    ]


REFUSED = {
    "content-length with transfer-encoding": (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "transfer-encoding with content-length": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    "the same content-length twice": (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "two content-lengths": (400, POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    "a list of content-lengths": (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "a signed content-length": (400, POST + b"Content-Length: +3\r\n\r\nabc"),
    "a negative content-length": (400, POST + b"Content-Length: -3\r\n\r\nabc"),
    "a content-length with a space in it": (400, POST + b"Content-Length: 3 4\r\n\r\nabcd"),
    "an empty content-length": (400, POST + b"Content-Length:\r\n\r\nabc"),
    "a content-length beyond 64 bits": (400, POST + b"Content-Length: 18446744073709551619\r\n\r\nabc"),
    "a content-length of 5000 digits": (400, POST + b"Content-Length: " + b"0" * 5000 + b"3\r\n\r\nabc"),
    "a hexadecimal content-length": (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
    "another transfer coding before chunked": (400, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "another transfer coding": (400, POST + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n"),
    "the identity transfer coding": (400, POST + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked twice in a list": (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    "chunked disguised by a vertical tab": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "chunked with a parameter": (400, POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    "chunked in HTTP/1.0": (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a chunk size ended by a bare line feed": (400, CHUNKED + b"3\nabc\r\n0\r\n\r\n"),
    "a chunk ended by a bare line feed": (400, CHUNKED + b"3\r\nabc\n0\r\n\r\n"),
    "a chunk ended by anything else": (400, CHUNKED + b"3\r\nabcXX0\r\n\r\n"),
    "a space after a chunk size": (400, CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n"),
    "a chunk size with a prefix": (400, CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk size": (400, CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk size beyond 64 bits": (400, CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "a line feed in a chunk extension": (400, CHUNKED + b"3;a=b\nc\r\nabc\r\n0\r\n\r\n"),
    "chunks with an upgrade": (
        400, POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
    "the same host twice": (400, b"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n"),
    "a folded line": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"),
    "a bare line feed after the request line": (400, b"GET / HTTP/1.1\nHost: x\r\n\r\n"),
    "a bare line feed after a field": (400, b"GET / HTTP/1.1\r\nHost: x\n\r\n"),
    "a bare line feed as the end": (400, b"GET / HTTP/1.1\r\nHost: x\r\n\n"),
    "a bare carriage return in a value": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n"),
    "NUL in a value": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n"),
    "a control character in a value": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01c\r\n\r\n"),
    "DEL in a value": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x7fc\r\n\r\n"),
    "a space before the colon": (400, b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"),
    "a space before the first field": (400, b"GET / HTTP/1.1\r\n Host: x\r\n\r\n"),
    "an empty field name": (400, b"GET / HTTP/1.1\r\nHost: x\r\n: x\r\n\r\n"),
    "no colon": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n"),
    "a field name that is no token": (400, b"GET / HTTP/1.1\r\nHost: x\r\nA(b): c\r\n\r\n"),
    "an absolute target": (400, b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    "the target *": (400, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
    "the target * with another method": (400, b"GET * HTTP/1.1\r\nHost: x\r\n\r\n"),
    "an absolute target of another host": (400, b"GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    "an authority as the target": (400, b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "CONNECT": (400, b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "CONNECT to a path": (400, b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "CONNECT with a body": (400, b"CONNECT / HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n"),
    "CONNECT in chunks": (400, b"CONNECT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "CONNECT with an upgrade": (
        400, b"CONNECT / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
    "CONNECT in HTTP/1.0": (400, b"CONNECT / HTTP/1.0\r\n\r\n"),
    "a fragment": (400, b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a target with raw bytes": (400, b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a tab in the target": (400, b"GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a method nobody knows": (400, b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a method in lower case": (400, b"get / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "HTTP/2.0": (505, b"GET / HTTP/2.0\r\nHost: x\r\n\r\n"),
    "HTTP/0.9": (505, b"GET /\r\n\r\n"),
    "HTTP/1.2": (400, b"GET / HTTP/1.2\r\nHost: x\r\n\r\n"),
    "the preface of HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a TLS handshake": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "a compressed body": (415, POST + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
    "an expectation nobody knows": (417, POST + b"Expect: the-unexpected\r\nContent-Length: 1\r\n\r\nx"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "data"), REFUSED.values(), ids=REFUSED.keys())
def test_ambiguous_or_malformed_requests_are_refused(status: int, data: bytes) -> None:
    reader = read(data + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not reader.ready
    assert reader.stage == ENDED
    assert reader.refusal is not None
    assert reader.refusal.status == status


ACCEPTED = {
    "a body by its length": (POST + b"Content-Length: 3\r\n\r\nabc", b"abc"),
    "blanks around a length": (POST + b"Content-Length:  3 \t\r\n\r\nabc", b"abc"),
    "leading zeros": (POST + b"Content-Length: 003\r\n\r\nabc", b"abc"),
    "a body in chunks": (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
    "a chunk extension": (CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0\r\n\r\n', b"abc"),
    "Chunked": (POST + b"Transfer-Encoding: Chunked \r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc"),
    "a trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nX-T: 1\r\nHost: y\r\n\r\n", b"abc"),
    "the identity coding": (POST + b"Content-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    "an upgrade with a body": (POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    "an upgrade without a body": (POST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", b""),
    "no body at all": (POST + b"\r\n", b""),
    "an empty line before": (b"\r\n" + POST + b"\r\n", b""),
}


@pytest.mark.parametrize(("data", "body"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_well_formed_requests_are_read_and_so_is_the_next_one(data: bytes, body: bytes) -> None:
    reader = read(data + b"GET /next?a=1 HTTP/1.1\r\nHost: y\r\n\r\n")
    first, second = reader.ready
    assert reader.refusal is None
    assert first.body == body
    assert first.head.headers[b"host"] == b"x"
    assert b"x-t" not in first.head.headers
    assert (second.head.method, second.head.path, second.head.query) == (b"GET", b"/next", b"a=1")
    assert second.head.headers == {b"host": b"y"}
    assert second.head.repeated == ()


def test_names_are_lower_case_values_are_trimmed_and_percent_encoding_is_kept() -> None:
    (one,) = read(b"GET /a%2Fb?c%20d HTTP/1.1\r\nHOST:x\r\nX-Empty:\r\nX-Odd:\t \xff b \t\r\n\r\n").ready
    assert one.head.path == b"/a%2Fb"
    assert one.head.query == b"c%20d"
    assert one.head.headers == {b"host": b"x", b"x-empty": b"", b"x-odd": b"\xff b"}


def test_repeated_fields_are_named_and_only_lists_are_joined() -> None:
    fields = b"Accept: a\r\nMcp-Session-Id: 1\r\naccept: b\r\nMcp-Session-Id: 2\r\nMcp-session-id: 3\r\n"
    (one,) = read(b"GET / HTTP/1.1\r\n" + H + fields + b"\r\n").ready
    assert one.head.repeated == (b"accept", b"mcp-session-id")
    assert one.head.headers == {b"host": b"x", b"accept": b"a, b", b"mcp-session-id": b"1"}


@pytest.mark.parametrize(
    ("fields", "version", "keep"),
    [
        (b"", b"1.1", True),
        (b"Connection: close\r\n", b"1.1", False),
        (b"Connection: keep-alive, close\r\n", b"1.1", False),
        (b"", b"1.0", False),
        (b"Connection: keep-alive\r\n", b"1.0", True),
    ],
)
def test_the_sender_says_whether_the_connection_stays(fields: bytes, version: bytes, keep: bool) -> None:
    (one,) = read(b"GET / HTTP/" + version + b"\r\n" + H + fields + b"\r\n").ready
    assert one.keep is keep
    assert one.chunks is (version == b"1.1")


def test_nothing_is_read_after_a_request_that_closes() -> None:
    reader = read(b"GET /1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [one.head.path for one in reader.ready] == [b"/1"]
    assert reader.stage == ENDED


def test_many_upgrades_in_a_row_are_each_a_request() -> None:
    bare = POST + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    full = POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc"
    reader = read((bare + full) * 1500)
    assert [one.body for one in reader.ready] == [b"", b"abc"] * 1500
    assert reader.refusal is None


SMALL = Limits(head_bytes=200, head_lines=5, body_bytes=10)


@pytest.mark.parametrize("pieces", [1, 7, 1000])
@pytest.mark.parametrize(
    ("status", "data"),
    [
        (431, b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 300 + b"\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 300),
        (431, b"GET /" + b"a" * 300 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"%d:\r\n" % n for n in range(5)) + b"\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A:\r\n" * 5 + b"\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: x\r\n" + (b"A: " + b"a" * 100 + b"\r\n") * 3 + b"\r\n"),
        (413, POST + b"Content-Length: 11\r\n\r\n"),
        (413, POST + b"Content-Length: 11\r\n\r\n01234567890"),
        (413, CHUNKED + b"6\r\n012345\r\n5\r\n67890\r\n0\r\n\r\n"),
        (413, CHUNKED + b"b\r\n01234567890"),
    ],
)
def test_what_is_too_large_is_refused_whole_or_in_pieces(status: int, data: bytes, pieces: int) -> None:
    reader = RequestReader(SMALL)
    step = -(-len(data) // pieces)
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    assert not reader.ready
    assert reader.refusal is not None
    assert reader.refusal.status == status


FLOODS = {
    "of a head": POST + b"".join(b"%d:\r\n" % number for number in range(9000)),
    "of a head that says the same": POST + b"a:\r\n" * 9000,
    "of a trailer": CHUNKED + b"1\r\nx\r\n0\r\n" + b"".join(b"%d:\r\n" % number for number in range(9000)),
}


@pytest.mark.parametrize("cut", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS.keys())
def test_lines_are_counted_as_they_come(data: bytes, cut: int) -> None:
    """Nothing waits for the end of them, which does not come."""
    reader, fed = RequestReader(Limits(head_lines=20)), 0
    while reader.refusal is None and fed < len(data):
        reader.feed(data[fed : fed + cut])
        fed += cut
    assert reader.refusal is not None
    assert fed <= max(cut, 400)
    assert reader.refusal.status == 431
    assert reader.weight < 200


@pytest.mark.parametrize("one", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CHUNKED + b"1\r\nx\r\n0\r\n\r\n"])
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_beyond_the_requests_that_may_wait_bytes_stay_bytes(one: bytes, pieces: int) -> None:
    reader, data, seen_of = RequestReader(Limits(pipelined=8)), one * 100, 0
    step = -(-len(data) // pieces)
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    while reader.ready:
        # Some may come in one piece with the last chunk of the eighth.
        assert len(reader.ready) <= 8 + CHUNKED_PIECE // len(one)
        assert reader.stage == (FULL if seen_of + len(reader.ready) < 100 else IDLE)
        seen_of += len(reader.ready)
        reader.ready.clear()
        if reader.stage == FULL:
            reader.read_on()
    assert seen_of == 100
    assert reader.weight == 0


def test_what_just_fits_is_read() -> None:
    fields = b"".join(b"%d:\r\n" % n for n in range(3))
    reader = read(
        POST + fields + b"Content-Length: 10\r\n\r\n0123456789" + CHUNKED + b"a\r\n0123456789\r\n0\r\n\r\n", SMALL
    )
    assert [one.body for one in reader.ready] == [b"0123456789"] * 2


def test_a_large_head_behind_another_request_is_refused_all_the_same() -> None:
    reader = read(
        b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 300 + b"\r\n\r\n", SMALL
    )
    assert [one.head.path for one in reader.ready] == [b"/1"]
    assert reader.refusal is not None
    assert reader.refusal.status == 431


def test_a_small_head_behind_a_large_body_is_not_blamed_for_it() -> None:
    limits = Limits(head_bytes=200)
    reader = read(post_of(b"x" * 5000) + b"GET /2 HTTP/1.1\r\nHo", limits)
    reader.feed(b"st: x\r\n\r\n")
    assert [one.head.path for one in reader.ready] == [b"/", b"/2"]
    reader = read(post_of(b"x" * 5000) + CHUNKED, limits)
    reader.feed(b"1\r\n")
    assert reader.refusal is None


def post_of(body: bytes) -> bytes:
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("overhead", [b"0" * 50, b"3;" + b"a" * 50, b"0\r\nX-Trailer: " + b"a" * 50])
def test_overhead_without_a_body_is_refused(overhead: bytes) -> None:
    reader = read(CHUNKED, SMALL)
    reader.feed(overhead)
    for _ in range(20):
        reader.feed(b"a" * 50 if b"a" in overhead else b"0" * 50)
    assert reader.refusal is not None
    assert reader.refusal.status == 400


def test_chunks_of_one_byte_are_no_overhead() -> None:
    reader = read(CHUNKED, Limits(head_bytes=100))
    for _ in range(1000):
        reader.feed(b"1\r\nx\r\n")
    reader.feed(b"0\r\n\r\n")
    assert [one.body for one in reader.ready] == [b"x" * 1000]


def test_a_refusal_comes_after_the_requests_before_it() -> None:
    reader = read(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
    assert [one.head.path for one in reader.ready] == [b"/1"]
    assert reader.refusal is not None


TOKEN = st.text("abcXYZ012-_.!", min_size=1, max_size=12)
VALUE = st.text('abc XYZ,;=/"\t\xe9', max_size=20).map(lambda text: text.strip().encode("latin-1"))
FRAMING = st.sampled_from(["none", "length", "chunked", "upgrade"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request in any framing."""
    target = "/" + draw(st.text("abc/%?&=.", max_size=20))
    method = draw(st.sampled_from(["GET", "POST", "DELETE", "OPTIONS"]))
    lines = [f"{method} {target} HTTP/1.1".encode(), b"Host: x"]
    for name, value in draw(st.lists(st.tuples(TOKEN, VALUE), max_size=5)):
        lines.append(b"X-" + name.encode() + b":" + draw(st.sampled_from([b"", b" ", b"\t"])) + value)
    body = draw(st.binary(max_size=60))
    framing = draw(FRAMING)
    if framing == "upgrade":
        # Some Java clients ask every server for HTTP/2 in this way.
        lines += [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"]
    if framing in ("length", "upgrade"):
        lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join((*lines, b"", body))
    if framing == "none":
        return b"\r\n".join((*lines, b"", b""))
    lines.append(b"Transfer-Encoding: chunked")
    cut = draw(st.integers(0, len(body)))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part)
    return b"\r\n".join((*lines, b"", chunks + b"0\r\n\r\n"))


@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=12))
def test_any_cut_of_valid_requests_gives_the_same_requests(pipeline: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pipeline)
    whole = read(data)
    assert len(whole.ready) == len(pipeline)
    assert whole.refusal is None
    pieces = RequestReader(ANY_NUMBER)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        pieces.feed(data[start:end])
    assert seen(pieces) == seen(whole)
    assert pieces.refusal is None
    assert pieces.stage == IDLE


GARBAGE = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"\n", b"0\r\n", b":", b" ", b"\0", b"5\r\n",
                              b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"hello", b"Expect: 100-continue\r\n",
                              b"Connection: upgrade\r\nUpgrade: x\r\n", b"CONNECT a:1 HTTP/1.1\r\n"]), max_size=20).map(b"".join),
)  # fmt: skip


@given(GARBAGE, st.integers(1, 50))
def test_any_bytes_give_requests_or_a_refusal_however_they_are_cut(data: bytes, step: int) -> None:
    whole = read(data)
    pieces = RequestReader(ANY_NUMBER)
    for at in range(0, len(data), step):
        pieces.feed(data[at : at + step])
    assert seen(pieces) == seen(whole)
    assert (pieces.refusal and pieces.refusal.status) == (whole.refusal and whole.refusal.status)
    assert pieces.stage == whole.stage


@given(
    st.lists(requests(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"", b"\r\n"])), max_size=8),
)
def test_a_head_that_comes_again_is_read_as_it_was_the_first_time(
    pool: list[bytes], order: list[tuple[int, bytes]]
) -> None:
    one_by_one = RequestReader(ANY_NUMBER)
    alone = []
    for number, tail in order:
        data = pool[number % len(pool)] + tail
        one_by_one.feed(data)
        alone += seen(read(data))
    assert seen(one_by_one) == alone


def test_a_head_that_comes_again_carries_what_was_found_in_it() -> None:
    reader = RequestReader(ANY_NUMBER)
    for body in (b"abc", b"def", b"longer", b"ghi", b"0123456789", b"x"):
        reader.feed(post_of(body))
        one = reader.ready.pop(0)
        assert one.body == body
        assert one.head.headers == {b"host": b"x", b"content-length": b"%d" % len(body)}
        assert one.head.verdict in (None, "found")
        assert (one.head.verdict is None) == (body == b"abc")
        one.head.verdict = "found"


def in_session(session: bytes, body: bytes, *, last: bool = False) -> bytes:
    fields = [b"Mcp-Session-Id: " + session, b"Content-Length: %d" % len(body)]
    head = b"\r\n".join([b"POST / HTTP/1.1", b"Host: x", *fields[:: -1 if last else 1], b"Accept: */*"])
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("last", [False, True])
def test_the_sessions_of_a_proxy_share_what_was_found_in_their_head(last: bool) -> None:
    reader = RequestReader(ANY_NUMBER)
    verdicts = []
    long = b"a body of 18 bytes"
    requests = (
        (b"one", b"abc"),
        (b"two", b"abcdef"),
        (b"one", b"abc"),
        (b"six", b"xyz"),
        (b"two", long),
        (b"t-o", long),
        (b"one", long),
    )
    heads = []
    for session, body in requests:
        reader.feed(in_session(session, body, last=last))
        found = reader.ready.pop(0)
        assert found.body == body
        verdicts.append(found.head.verdict)
        found.head.verdict = "found"
        heads.append(found.head)
    assert verdicts == [None] + ["found"] * 6
    # Each request keeps its own session and length, whatever came after it.
    assert [(head.headers[b"mcp-session-id"], head.headers[b"content-length"]) for head in heads] == [
        (session, b"%d" % len(body)) for session, body in requests
    ]


@given(
    session=st.binary(max_size=6)
    | st.sampled_from([b"three", b"tw\to", b" two", b"two ", b"two\r\nA: b", b"two\r\nContent-Length: 4", b"tw\xf6"])
    # As long as the known one.
    | st.sampled_from([b"two", b"TWO", b"t-o", b"t o", b" tw", b"tw ", b"t\r\n", b"\r\nA", b"t\0o", b"t\xb2o", b"t,o"]),
    sent=st.binary(max_size=8) | st.just(b"xyz"),
    last=st.booleans(),
)
def test_a_session_is_taken_over_only_if_the_parser_would_read_it_so(session: bytes, sent: bytes, last: bool) -> None:
    again = in_session(session, sent, last=last)
    known, fresh = RequestReader(ANY_NUMBER), RequestReader(ANY_NUMBER)
    known.feed(in_session(b"one", b"abc", last=last))
    known.ready.clear()
    known.feed(again)
    fresh.feed(again)
    assert seen(known) == seen(fresh)


def test_another_head_carries_nothing_of_the_last_one() -> None:
    reader = RequestReader(ANY_NUMBER)
    reader.feed(post_of(b"abc"))
    reader.ready.pop(0).head.verdict = "found"
    for head in (
        b"Host: y\r\nContent-Length: 3",
        b"Host: x\r\nContent-Length: 3\r\nA: b",
        b"Host: x\r\nA: b\r\nContent-Length: 3",
    ):
        reader.feed(b"POST / HTTP/1.1\r\n" + head + b"\r\n\r\nabc")
        assert reader.ready.pop(0).head.verdict is None


@given(first=st.binary(max_size=40), sent=st.binary(max_size=40), stated=st.integers(0, 60), zeros=st.integers(0, 2))
def test_a_length_is_taken_over_only_where_it_is_that_of_the_body(
    first: bytes, sent: bytes, stated: int, zeros: int
) -> None:
    """Whatever length a known head states now, it means what the parser would have read."""
    again = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %b%d\r\n\r\n" % (b"0" * zeros, stated) + sent
    known, fresh = RequestReader(ANY_NUMBER), RequestReader(ANY_NUMBER)
    known.feed(post_of(first))
    known.ready.clear()
    known.feed(again)
    fresh.feed(again)
    assert seen(known) == seen(fresh)


def test_a_known_head_does_not_carry_a_body_over_the_limit() -> None:
    reader = RequestReader(Limits(body_bytes=8))
    reader.feed(post_of(b"abc"))
    reader.feed(post_of(b"123456789"))
    assert len(reader.ready) == 1
    assert reader.refusal is not None
    assert reader.refusal.status == 413


def test_a_known_head_with_a_longer_tail_goes_through_the_parser() -> None:
    reader = read(post_of(b"abc"))
    reader.ready.clear()
    reader.feed(post_of(b"abc") + b"GET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
    reader.feed(post_of(b"abc")[:-1])
    reader.feed(b"c")
    reader.feed(post_of(b"\r\n\r") + b"\n")
    reader.feed(post_of(b"\r\n\r") + b"\n")
    assert [one.body for one in reader.ready] == [b"abc", b"", b"abc", b"\r\n\r", b"\r\n\r"]


@given(cut=st.integers(0, 60), rests=st.integers(1, 3))
def test_a_reader_that_has_rested_reads_on_as_if_it_had_not(cut: int, rests: int) -> None:
    reader = RequestReader(ANY_NUMBER)
    for number in range(3):
        data = b"POST /%d HTTP/1.1\r\n%bContent-Length: 2\r\n\r\nok" % (number, H)
        reader.feed(data[:cut])
        for _ in range(rests):
            reader.rest()
        reader.feed(data[cut:])
        (one,) = reader.ready
        assert (one.head.path, one.body, one.keep) == (b"/%d" % number, b"ok", True)
        reader.ready.clear()
        for _ in range(rests):
            reader.rest()
    reader.rest()
    reader.feed(b"nonsense\r\n\r\n")
    assert reader.refusal is not None
    reader.close()
    RequestReader(ANY_NUMBER).close()
