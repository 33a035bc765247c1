"""Responses: their bytes, and those that the server sends without a call."""

from __future__ import annotations

import logging
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from pegboard.errors import InvalidRequest, Refusal
from pegboard.logs.log_lines import log_failure
from pegboard.protocol import jsonrpc
from pegboard.server.http.server_request import ServerRequest
from pegboard.server.http_types import Answer, Headers

log = logging.getLogger("pegboard.http")

STATUS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
KEEP: Final = b"connection: keep-alive\r\n"
CLOSE: Final = b"connection: close\r\n"


def encode_headers(headers: Headers) -> bytes:
    """Encode header fields; a line break in a value would let it write the rest of the response."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
        raise ValueError("a response header contains a control character")
    return lines


# Nearly all responses are of a few kinds; in legacy revisions, of a few kinds for each session.
@lru_cache(maxsize=1024)
def encode_head(status: int, content_type: bytes, headers: Headers) -> bytes:
    """Encode the part of the head that all responses of a kind share."""
    line = STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status
    kind = b"content-type: %b\r\n" % content_type if content_type and status != 204 else b""
    return line + encode_headers(headers) + kind


# Formatting a number costs more than finding it, and most responses are short.
@lru_cache(maxsize=1024)
def encode_length(length: int) -> bytes:
    """The last line of a head, with the length of the body, and the blank line after it."""
    return b"content-length: %d\r\n\r\n" % length


def encode_answer(answer: Answer, request: ServerRequest, date: bytes) -> bytes:
    """Encode the response to any request: one that closes the connection, has no body, or is for HTTP/1.0."""
    lines = encode_head(answer.status, answer.content_type, answer.headers)
    if not request.keep:
        lines += CLOSE
    elif not request.chunks:
        lines += KEEP
    lines += date
    # RFC 9110, 8.6: "MUST NOT send a Content-Length header field in any response with a status code of … 204"
    if answer.status != 204:
        lines += b"content-length: %d\r\n" % len(answer.body)
    bare = answer.status == 204 or request.head.method == b"HEAD"
    return lines + b"\r\n" + (b"" if bare else answer.body)


def error_response(refusal: Refusal, extra: Headers) -> Answer:
    """The response to a request that could not become a call."""
    return Answer(refusal.status, jsonrpc.refusal(refusal.request_id, refusal), headers=extra + refusal.http_headers)


def text_response(status: int, message: str, extra: Headers = ()) -> Answer:
    """The response to a request that violates HTTP, with a message."""
    return Answer(status, jsonrpc.refusal(None, InvalidRequest(message)), headers=extra)


def method_not_allowed(allow: bytes, extra: Headers = ()) -> Answer:
    """The response to a method that this path does not support."""
    return text_response(405, f"Method not allowed here; use {allow.decode()}", (*extra, (b"allow", allow)))


def plain_error(status: int, text: str) -> Answer:
    """The response to a request that violates HTTP or a limit; it ends the connection."""
    return Answer(status, text.encode() + b"\n", b"text/plain; charset=utf-8", close=True)


def body_too_large(limit: int) -> Answer:
    """The response to a body over its limit."""
    return plain_error(413, f"The body of a request is limited to {limit} bytes.")


def internal_error(error: BaseException) -> Answer:
    """Log an internal error with an id, and send only the id."""
    error_id = log_failure(log, "a request failed", error=error).encode()
    return Answer(500, b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error, error id %b"}}' % error_id)
