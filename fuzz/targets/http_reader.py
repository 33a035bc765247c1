"""HTTP/1.1 requests: the same bytes are the same requests however they are cut, and a request that is written again is the same."""

from __future__ import annotations

from pegboard.limits import Limits
from pegboard.server.http.request_reader import CHUNKED_PIECE, FULL, RequestReader
from pegboard.server.http.server_request import ServerRequest

LIMITS = Limits()
SHORTEST = len(b"GET / HTTP/1.0\r\n\r\n")


def check(data: bytes) -> None:
    whole, refused = read([data])
    middle = len(data) // 2
    assert read([data[:middle], data[middle:]]) == (whole, refused)
    assert read([data[at : at + 1] for at in range(min(len(data), 256))] + [data[256:]]) == (whole, refused)
    for request in whole:
        assert len(request.body) <= LIMITS.body_bytes
        again, _ = read([write(request)])
        assert [(one.head.path, one.head.query, one.body) for one in again] == [
            (request.head.path, request.head.query, request.body)
        ]


def read(parts: list[bytes]) -> tuple[list[ServerRequest], bool]:
    """All requests, taken as a connection takes them, and whether what follows is refused."""
    reader = RequestReader(LIMITS)
    found: list[ServerRequest] = []
    for part in parts:
        if part:
            reader.feed(part)
        take(reader, found)
        while reader.stage == FULL:
            reader.read_on()
            take(reader, found)
    refused = reader.refusal is not None
    reader.close()
    return found, refused


def take(reader: RequestReader, found: list[ServerRequest]) -> None:
    # A piece of a chunked body may contain a few requests more than may wait.
    assert len(reader.ready) <= LIMITS.pipelined + CHUNKED_PIECE // SHORTEST
    found += [ServerRequest(one.head, one.body, one.keep, one.chunks) for one in reader.ready]
    reader.ready.clear()


def write(request: ServerRequest) -> bytes:
    head = request.head
    skipped = (b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect")
    lines = [b"%b: %b\r\n" % (name, value) for name, value in head.headers.items() if name not in skipped]
    target = head.path + (b"?" + head.query if head.query else b"")
    length = b"content-length: %d\r\n" % len(request.body)
    host = b"" if b"host" in head.headers else b"host: x\r\n"
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n%b" % (target, host, b"".join(lines), length, request.body)
