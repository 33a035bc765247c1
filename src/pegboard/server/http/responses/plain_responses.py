"""Responses that the server sends without asking the endpoint."""

from __future__ import annotations

import logging

from pegboard.logs.log_lines import log_failure
from pegboard.server.http_types import Answer

log = logging.getLogger("pegboard.http")


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
