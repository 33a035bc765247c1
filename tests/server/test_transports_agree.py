"""The recorded sink keeps the contract of the real one, so that what is proven with it holds with a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pegboard.server.http_types import Answer, Head, Sink
from tests.server.fake_sink import RecordedSink
from tests.server.fake_transport import Wire, get


def recorded() -> tuple[Sink, Callable[[], None]]:
    sink = RecordedSink()
    return sink, sink.leave


def connected() -> tuple[Sink, Callable[[], None]]:
    taken: list[Sink] = []
    left = asyncio.Event()

    async def wait() -> Answer | None:
        await left.wait()
        return None

    def script(head: Head, body: bytes, sink: Sink) -> Any:
        taken.append(sink)
        return wait()

    wire = Wire(script)
    wire.receive(get())

    def leave() -> None:
        wire.lose()
        left.set()

    return taken[0], leave


SINKS = pytest.mark.parametrize("make", [recorded, connected])


@SINKS
async def test_a_response_begins_and_ends_once(make: Callable[[], tuple[Sink, Callable[[], None]]]) -> None:
    sink, leave = make()
    with pytest.raises(RuntimeError):
        sink.write(b"x")
    with pytest.raises(RuntimeError):
        sink.end()
    sink.start(200, ())
    with pytest.raises(RuntimeError):
        sink.start(200, ())
    sink.write(b"x")
    await sink.drain()
    sink.end()
    with pytest.raises(RuntimeError):
        sink.write(b"x")
    with pytest.raises(RuntimeError):
        sink.end()
    leave()


@SINKS
async def test_a_disconnect_is_reported_once_and_later_writes_are_harmless(
    make: Callable[[], tuple[Sink, Callable[[], None]]],
) -> None:
    sink, leave = make()
    told: list[int] = []
    sink.on_gone(lambda: told.append(1))
    leave()
    assert told == [1]
    sink.start(200, ())
    sink.write(b"x")
    with pytest.raises(ConnectionError):
        await sink.drain()
    sink.end()
    assert told == [1]


@SINKS
async def test_a_callback_registered_after_the_client_disconnected_is_called_soon(
    make: Callable[[], tuple[Sink, Callable[[], None]]],
) -> None:
    sink, leave = make()
    leave()
    told = asyncio.Event()
    sink.on_gone(told.set)
    await told.wait()


@SINKS
async def test_a_disconnect_after_the_end_of_the_response_is_not_reported(
    make: Callable[[], tuple[Sink, Callable[[], None]]],
) -> None:
    sink, leave = make()
    sink.start(200, ())
    sink.end()
    told: list[int] = []
    sink.on_gone(lambda: told.append(1))
    leave()
    assert told == []
