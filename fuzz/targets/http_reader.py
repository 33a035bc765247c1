"""HTTP/1.1 requests: the same bytes are the same requests however they are cut, and a request that is written again is the same."""

from __future__ import annotations

from pegboard.limits import Limits
from pegboard.server.http.request_reader import RequestReader, ServerRequest

LIMITS = Limits()


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
    """The requests that may wait at a time, and whether what follows is refused."""
    reader = RequestReader(LIMITS)
    for part in parts:
        if part:
            reader.feed(part)
    ready = [ServerRequest(one.head, one.body, one.keep, one.chunks) for one in reader.ready[: LIMITS.pipelined]]
    refused = reader.refusal is not None
    reader.close()
    return ready, refused


def write(request: ServerRequest) -> bytes:
    head = request.head
    skipped = (b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect")
    lines = [b"%b: %b\r\n" % (name, value) for name, value in head.headers.items() if name not in skipped]
    target = head.path + (b"?" + head.query if head.query else b"")
    length = b"content-length: %d\r\n" % len(request.body)
    host = b"" if b"host" in head.headers else b"host: x\r\n"
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n%b" % (target, host, b"".join(lines), length, request.body)
