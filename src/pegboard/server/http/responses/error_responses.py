"""Responses of the MCP endpoint when no call is made."""

from __future__ import annotations

from pegboard.errors import InvalidRequest, Refusal
from pegboard.protocol import jsonrpc
from pegboard.server.http_types import Answer, Headers


def error_response(refusal: Refusal, extra: Headers) -> Answer:
    """The response to a request that could not become a call."""
    return Answer(refusal.status, jsonrpc.refusal(refusal.request_id, refusal), headers=extra + refusal.http_headers)


def text_response(status: int, message: str, extra: Headers = ()) -> Answer:
    """The response to a request that violates HTTP, with a message."""
    return Answer(status, jsonrpc.refusal(None, InvalidRequest(message)), headers=extra)


def method_not_allowed(allow: bytes, extra: Headers = ()) -> Answer:
    """The response to a method that this path does not support."""
    return text_response(405, f"Method not allowed here; use {allow.decode()}", (*extra, (b"allow", allow)))
