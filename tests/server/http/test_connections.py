"""What all connections hold back together is bounded: whoever has held something for longest makes room."""

from __future__ import annotations

import asyncio

from pegboard.limits import Limits
from pegboard.server.http.connections import Connections
from tests.server.fake_transport import Wire

HALF = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n" + b"x" * 9000


class Holder:
    """A connection that only holds."""

    busy = False

    def __init__(self) -> None:
        self.held = 0
        self.sheds = 0

    def check(self, now: float) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def drop_buffers(self) -> None:
        self.sheds += 1


def weigh(connections: Connections, holder: Holder, size: int) -> bool:
    holder.held = size
    return connections.weigh(holder)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_the_ones_that_have_held_something_for_longest_make_room_in_the_next_turn() -> None:
    connections, holders = Connections(Limits(buffered_bytes=100_000)), [Holder() for _ in range(5)]
    for holder in holders:
        assert weigh(connections, holder, 25_000)
    assert [holder.sheds for holder in holders] == [0] * 5
    await turn()
    assert [holder.sheds for holder in holders] == [1, 0, 0, 0, 0]
    assert weigh(connections, holders[0], 50_000)
    await turn()
    assert [holder.sheds for holder in holders] == [1, 1, 1, 0, 0]


async def test_a_connection_that_proceeds_before_the_next_turn_causes_none_to_be_shed() -> None:
    connections, holders = Connections(Limits(buffered_bytes=100_000)), [Holder() for _ in range(5)]
    for holder in holders:
        weigh(connections, holder, 25_000)
    assert not weigh(connections, holders[3], 0)
    await turn()
    # The same again, and more than that is not counted twice.
    for _ in range(3):
        weigh(connections, holders[0], 25_000)
    await turn()
    assert [holder.sheds for holder in holders] == [0] * 5


async def test_memory_released_after_it_was_counted_causes_no_connection_to_be_shed() -> None:
    connections, holders = Connections(Limits(buffered_bytes=100_000)), [Holder() for _ in range(5)]
    for holder in holders:
        weigh(connections, holder, 25_000)
    # Its answer has left by now, and nothing else has happened on it.
    holders[0].held = 0
    await turn()
    assert [holder.sheds for holder in holders] == [0] * 5
    assert connections.weight == 100_000


async def test_who_holds_next_to_nothing_is_not_counted() -> None:
    connections, holders = Connections(Limits(buffered_bytes=1000)), [Holder() for _ in range(500)]
    assert not any(weigh(connections, holder, 4096) for holder in holders)
    await turn()
    assert not any(holder.sheds for holder in holders)


async def test_a_partial_body_beyond_the_buffer_limit_is_rejected_and_discarded() -> None:
    wire = Wire(limits=Limits(buffered_bytes=8000))
    wire.receive(HALF)
    await turn()
    # What still comes is read to no end, so that the refusal arrives.
    wire.receive(b"x" * 11000)
    [(status, headers, _)] = wire.responses()
    assert (status, headers[b"connection"], wire.endpoint.heads) == (503, b"close", [])
    assert wire.half_closed
    assert not wire.aborted


async def test_a_partial_head_beyond_the_buffer_limit_is_rejected() -> None:
    wire = Wire(limits=Limits(buffered_bytes=8000))
    wire.receive(b"GET / HTTP/1.1\r\nhost: x\r\n")
    for number in range(3):
        wire.receive(b"x-%d: %b\r\n" % (number, b"x" * 4000))
    await turn()
    assert [status for status, _, _ in wire.responses()] == [503]


async def test_a_body_that_comes_to_its_end_is_served_and_counted_no_more() -> None:
    wire = Wire(limits=Limits(buffered_bytes=12_000))
    for _ in range(3):
        wire.receive(HALF)
        await turn()
        wire.receive(b"x" * 11000)
        await turn()
    assert [status for status, _, _ in wire.responses()] == [200] * 3


async def test_a_reader_that_is_behind_with_more_than_there_is_room_for_is_cut() -> None:
    wire = Wire(limits=Limits(buffered_bytes=150_000))
    wire.receive(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    wire.clog(80_000)
    await turn()
    assert not wire.aborted
    wire.unclog()
    wire.clog(150_000)
    await turn()
    assert wire.aborted
