"""Messages of streams on a WebSocket: read, refused or left to JSON-RPC; chunks of bytes come back as they were."""

from __future__ import annotations

from contextlib import suppress

from pegboard.errors import Refusal
from pegboard.limits import Limits
from pegboard.protocol.framing import stream_frames

LIMITS = Limits()


def check(data: bytes) -> None:
    with suppress(Refusal):
        frame = stream_frames.read(data, LIMITS)
        if frame is not None:
            assert 0 < len(frame.id) <= 128
    with suppress(Refusal):
        key, index, payload = stream_frames.split(data)
        assert stream_frames.header(key, index) + bytes(payload) == data
