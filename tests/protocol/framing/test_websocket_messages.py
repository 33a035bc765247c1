"""Messages of a WebSocket that arrive in one frame or in many."""

from __future__ import annotations

from pegboard.protocol.framing.websocket_messages import MessageAssembler

CONTINUATION, TEXT, BINARY, PING = 0, 1, 2, 9


def test_a_message_in_one_frame_is_complete_at_once() -> None:
    messages = MessageAssembler()
    assert messages.add(TEXT, b"hello", True) == b"hello"
    assert messages.text
    assert messages.add(BINARY, b"", True) == b""
    assert not messages.text
    assert not messages.begun


def test_fragments_are_joined_and_control_frames_between_them_do_not_count() -> None:
    messages = MessageAssembler()
    assert messages.add(TEXT, b"he", False) is None
    assert messages.add(PING, b"ping", True) is None
    assert messages.begun
    assert messages.add(CONTINUATION, b"ll", False) is None
    assert messages.add(CONTINUATION, b"o", True) == b"hello"
    assert messages.text
    assert not messages.begun
    assert messages.held == 0


def test_the_smallest_fragments_hold_little_more_than_their_bytes() -> None:
    messages = MessageAssembler()
    messages.add(BINARY, b"", False)
    for _ in range(10_000):
        messages.add(CONTINUATION, b"xy", False)
    assert messages.held < 2 * 20_000
    messages.drop()
    assert messages.held == 0
