"""Assembles the messages of a WebSocket from its frames."""

from __future__ import annotations

import sys
from typing import Final

SUBPROTOCOL: Final = "mcp"
"""The name of MCP in the handshake of a WebSocket."""

OPEN: Final = 1
"""`websockets.protocol.State.OPEN`, without importing that library."""


class MessageAssembler:
    """Joins the frames of one connection."""

    __slots__ = ("_parts", "text")

    def __init__(self) -> None:
        # One buffer: a list of the smallest fragments would take fifty times as much memory.
        self._parts: bytearray | None = None
        # Whether the message is text.
        self.text = False

    @property
    def begun(self) -> bool:
        """Whether a message has begun that is not complete."""
        return self._parts is not None

    @property
    def held(self) -> int:
        """The memory of that message."""
        return 0 if self._parts is None else sys.getsizeof(self._parts)

    def add(self, opcode: int, data: bytes, fin: bool) -> bytes | None:
        """The message that this frame (RFC 6455, 5.2) completes; None for a control frame, or if more frames follow."""
        if opcode > 2:
            return None
        if opcode:
            self.text = opcode == 1
        if self._parts is not None:
            self._parts += data
        elif fin:
            return data
        else:
            self._parts = bytearray(data)
        return self._take() if fin else None

    def _take(self) -> bytes:
        parts, self._parts = self._parts, None
        return bytes(parts or b"")

    def drop(self) -> None:
        """Let go of an incomplete message."""
        self._parts = None
