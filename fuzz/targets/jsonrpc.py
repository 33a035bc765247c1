"""JSON-RPC messages: read as another decoder reads them, or refused; what is written is read back."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from pegboard.errors import Refusal
from pegboard.limits import Limits
from pegboard.protocol import jsonrpc

LIMITS = Limits()


def check(data: bytes) -> None:
    if jsonrpc.is_batch(data):
        try:
            parts = jsonrpc.read_batch(data, LIMITS)
        except Refusal:
            return
        assert 0 < len(parts) <= LIMITS.batch
    else:
        parts = [data]
    for part in parts:
        check_message(part)


def check_message(data: bytes) -> None:
    try:
        message = jsonrpc.read(data, LIMITS)
    except Refusal as refusal:
        assert b"\n" not in jsonrpc.refusal(refusal.request_id, refusal)
        return
    other: dict[str, Any] = json.loads(data)
    assert other["jsonrpc"] == "2.0"
    assert other.get("method", UNSET) == message.method
    assert other.get("id", UNSET) == message.id
    if message.method is not UNSET and message.id is not UNSET:
        told = other.get("params", {})
        written = jsonrpc.request(message.id, message.method, told)
        assert b"\n" not in written
        again = jsonrpc.read(written, LIMITS)
        assert (again.id, again.method, json.loads(bytes(again.params))) == (message.id, message.method, told)
