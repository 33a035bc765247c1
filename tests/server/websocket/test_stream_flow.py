"""Flow control on /ws: who is slow slows its own stream; the others go on, and memory stays bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from pegboard import Board, Limits, ToolConnector
from tests.server.stream_client import House, Streamer, serve, streaming
from tests.waiting import until

GUID = "550e8400-e29b-41d4-a716-446655440000"
OTHER = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


class Flowing:
    """A board with tools that read or write, some of them not before they may."""

    def __init__(self, **limits: Any) -> None:
        self.board = Board("flowing", limits=Limits(**limits))
        self.go_on = asyncio.Event()
        self.written: Counter[str] = Counter()
        for tool in (self.count, self.slow, self.send, self.burst, self.tell):
            self.board.add(tool)

    async def count(self, connector: ToolConnector) -> int:
        """Reads all."""
        return sum([len(chunk) async for chunk in connector])

    async def slow(self, connector: ToolConnector) -> int:
        """Reads nothing before it may."""
        await self.go_on.wait()
        return await self.count(connector)

    async def send(self, pieces: int, size: int, connector: ToolConnector, name: str = "") -> str:
        for _ in range(pieces):
            await connector.write(bytes(size))
            self.written[name] += 1
        return "sent"

    async def burst(self, size: int, connector: ToolConnector, name: str = "") -> str:
        """Writes without end, once all do."""
        self.written[name] = 0
        await self.go_on.wait()
        return await self.send(1_000_000, size, connector, name)

    async def tell(self, pieces: int, connector: ToolConnector) -> str:
        for number in range(pieces):
            await connector.write({"number": number})
            self.written["tell"] += 1
        return "told"


class Paying:
    """The sender of a stream that keeps to its credit."""

    def __init__(self, client: Streamer, stream_id: str) -> None:
        self.client = client
        self.id = stream_id
        self.credit = 0
        self.index = 0

    async def earn(self) -> None:
        heard = await self.client.until("credit", self.id)
        assert heard["timestamp"]
        self.credit += heard["bytes"]

    async def pay(self, size: int) -> None:
        while self.credit <= 0:
            await self.earn()
        await self.client.bytes(self.id, self.index, bytes(size))
        self.index += 1
        self.credit -= size


def visitor_of(house: House) -> Any:
    [found] = [one for one in house.endpoint._calls.followers if hasattr(one, "streams")]
    return found


def unsent(house: House) -> int:
    """How much a server keeps for a peer that does not read."""
    size: int = visitor_of(house)._socket._transport.get_write_buffer_size()
    return size


# -- what comes in -----------------------------------------------------------------------------------------------------


async def test_a_tool_that_does_not_read_blocks_only_its_own_sender() -> None:
    one = Flowing(unread_bytes=64_000, window_bytes=4_000)
    async with await serve(one.board) as house:
        client = await house.connect()
        await client.start("slow", GUID, binary=True, window=1_000_000)
        await client.start("count", OTHER, binary=True, window=1_000_000)
        stuck, free = Paying(client, GUID), Paying(client, OTHER)
        await stuck.earn()
        assert stuck.credit == 4_000, "never more than the server can spare"
        while stuck.credit > 0:
            await stuck.pay(1_000)
        for _ in range(500):
            await free.pay(1_000)
        await client.done(OTHER)
        assert (await client.result(OTHER))["structuredContent"] == 500_000
        visitor = visitor_of(house)
        assert not visitor._paused
        assert visitor.streams[GUID][0].inbound.unread == 4_000
        # Once its tool reads it earns again.
        one.go_on.set()
        for _ in range(20):
            await stuck.pay(1_000)
        await client.done(GUID)
        assert (await client.result(GUID))["structuredContent"] == 24_000
        assert visitor._held == 0


async def test_a_sender_that_sends_more_than_its_credit_loses_its_stream() -> None:
    one = Flowing(window_bytes=100)
    async with streaming(one.board) as client:
        await client.start("slow", GUID, binary=True, window=100)
        # One may go over: a chunk is not cut.
        await client.bytes(GUID, 0, bytes(60))
        await client.bytes(GUID, 1, bytes(60))
        await client.bytes(GUID, 2, b"x")
        error = await client.error(GUID)
    assert (error["code"], error["message"]) == (-32000, "Received more data than was granted")
    assert error["data"] == {"window": 100}


async def test_a_chunk_larger_than_the_window_gets_through() -> None:
    one = Flowing(window_bytes=100)
    async with streaming(one.board) as client:
        await client.start("count", GUID, binary=True, window=10)
        sender = Paying(client, GUID)
        for size in (5_000, 1, 9, 10, 11, 5_000):
            await sender.pay(size)
        await client.done(GUID)
        assert (await client.result(GUID))["structuredContent"] == 10_031


async def test_text_counts_as_it_is_written() -> None:
    one = Flowing(window_bytes=20)
    async with streaming(one.board) as client:
        await client.start("slow", "t", window=20)
        await client.text("t", 0, "x" * 18)
        await client.text("t", 1, "x")
        error = await client.error("t")
    assert error["data"] == {"window": 20}


@pytest.mark.parametrize("window", [0, -1, "many", 2**60, 1.5])
async def test_a_window_is_a_number_of_bytes(window: Any) -> None:
    async with streaming(Flowing().board) as client:
        await client.start("count", GUID, window=window)
        error = await client.error(GUID)
        assert error["code"] == -32600
        assert "window" in error["message"]


async def test_without_a_window_nothing_is_said_of_credit() -> None:
    async with streaming(Flowing().board) as client:
        await client.start("count", GUID, binary=True)
        for index in range(50):
            await client.bytes(GUID, index, bytes(10_000))
        await client.done(GUID)
        assert (await client.result(GUID))["structuredContent"] == 500_000
        assert [heard["type"] for heard in client.heard] == ["done"]


@pytest.mark.parametrize("binary", [True, False])
async def test_chunks_of_next_to_nothing_are_not_kept_without_end(binary: bool) -> None:
    one = Flowing(unread_bytes=100_000)
    async with await serve(one.board) as house:
        client = await house.connect(write_limit=1000)
        await client.start("slow", GUID, binary=binary)

        async def flood() -> None:
            for index in range(1_000_000):
                await (client.bytes(GUID, index, b"") if binary else client.text(GUID, index, 1))
                # A send returns at once while the kernel takes the bytes: let the server, on the same loop, read them.
                await asyncio.sleep(0)

        flooding = asyncio.ensure_future(flood())
        await until(lambda: bool(house.endpoint._calls.followers))
        visitor = visitor_of(house)
        await until(lambda: visitor._paused)
        assert len(visitor.streams[GUID][0].inbound._chunks) < 1_000
        flooding.cancel()
        client.socket.transport.abort()


# -- what goes out -----------------------------------------------------------------------------------------------------


async def test_a_tool_waits_for_the_credit_of_its_own_stream_while_others_write_on() -> None:
    one = Flowing(window_bytes=10_000)
    async with streaming(one.board) as client:
        await client.start("send", "a", arguments={"pieces": 20, "size": 1_000, "name": "a"}, window=5_000)
        await client.start("send", "b", arguments={"pieces": 500, "size": 1_000, "name": "b"})
        await client.result("b")
        assert one.written == {"a": 5, "b": 500}
        opened = next(heard for heard in client.heard if heard_of(heard, "a"))
        assert opened["meta"]["window"] == 5_000
        for granted in (1, 3_999, 100_000):
            await client.say(type="credit", id=opened["id"], bytes=granted)
        assert (await client.result("a"))["content"][0]["text"] == "sent"
        indexes = [heard[1] for heard in client.heard if isinstance(heard, tuple) and heard[0] == opened["id"]]
        assert indexes == list(range(20))


def heard_of(heard: Any, stream_id: str) -> bool:
    return isinstance(heard, dict) and heard.get("meta", {}).get("correlationId") == stream_id


async def test_no_more_than_the_credit_is_ever_sent() -> None:
    one = Flowing(window_bytes=10_000)
    async with streaming(one.board) as client:
        await client.start("send", "a", arguments={"pieces": 3, "size": 4_000}, window=1_000)
        opened = (await client.until("credit", "a")) and (await client.on_message())
        taken, granted = 0, 1_000
        while taken < 12_000:
            _, _, payload = await client.on_message()
            taken += len(payload)
            assert taken <= granted
            if taken == granted:
                granted += 1_000
                await client.say(type="credit", id=opened["id"], bytes=1_000)
        await client.result("a")


async def test_text_waits_for_credit_too() -> None:
    one = Flowing(window_bytes=10_000)
    async with streaming(one.board) as client:
        await client.start("tell", "a", arguments={"pieces": 3}, window=1)
        opened = (await client.until("credit", "a")) and (await client.on_message())
        for number in range(3):
            heard = await client.until("chunk", opened["id"])
            assert heard["data"] == {"number": number}
            assert one.written["tell"] <= number + 1
            await client.say(type="credit", id=opened["id"], bytes=len('{"number":0}'))
        assert (await client.result("a"))["content"][0]["text"] == "told"


async def test_a_reader_that_grants_nothing_for_too_long_ends_the_call() -> None:
    one = Flowing(unread_seconds=0.05)
    async with streaming(one.board) as client:
        await client.start("send", "a", arguments={"pieces": 9, "size": 1_000}, window=1_000)
        error = await client.error("a")
    assert (error["code"], error["message"]) == (-32000, "Stream timeout")


async def test_credit_for_an_ended_or_unknown_stream_is_ignored() -> None:
    async with streaming(Flowing().board) as client:
        for stream_id in (GUID, "never"):
            await client.say(type="credit", id=stream_id, bytes=1)
        await client.say(type="credit", id="x", bytes=0)
        assert (await client.error("x"))["code"] == -32600
        await client.say(type="credit", id="y")
        assert (await client.error("y"))["message"] == "A credit needs a number of bytes"
        assert len(client.heard) == 2


async def test_a_tool_that_waits_for_credit_ends_when_it_is_cancelled() -> None:
    one = Flowing()
    async with await serve(one.board) as house:
        client = await house.connect()
        await client.start("send", "a", arguments={"pieces": 9, "size": 1_000, "name": "a"}, window=1_000)
        await until(lambda: one.written["a"] == 1)
        await client.say(type="cancel", id="a")
        await until(lambda: not house.endpoint.calls)


async def test_many_tools_that_write_to_a_slow_reader_hold_one_chunk_more_than_its_buffer() -> None:
    one = Flowing(chunk_bytes=200_000)
    async with await serve(one.board) as house:
        client = await house.connect(max_queue=1)
        for number in range(40):
            await client.start("burst", arguments={"size": 200_000, "name": str(number)})
        await until(lambda: len(one.written) == 40)
        one.go_on.set()
        before = -1
        while before != one.written.total():
            before = one.written.total()
            await asyncio.sleep(0.2)
        # Each of the forty would have its own on top, if they did not take turns.
        assert unsent(house) < 64 * 1024 + 3 * 200_000
        client.socket.transport.abort()
        await until(lambda: not house.endpoint.calls)


async def test_those_who_wait_for_a_reader_take_turns() -> None:
    one = Flowing(chunk_bytes=100_000)
    async with await serve(one.board) as house:
        client = await house.connect(max_queue=1)
        for number in range(5):
            await client.start("burst", arguments={"size": 100_000, "name": str(number)})
        await until(lambda: len(one.written) == 5)
        one.go_on.set()
        heard: Counter[str] = Counter()
        while heard.total() < 150:
            message = await client.on_message()
            if isinstance(message, tuple):
                heard[message[0]] += 1
        assert max(heard.values()) - min(heard.values()) < 15, heard
        client.socket.transport.abort()


async def test_every_stream_of_a_socket_may_have_a_window_of_its_own() -> None:
    one = Flowing(window_bytes=1_000)
    async with streaming(one.board) as client:
        senders = [Paying(client, str(uuid4())) for _ in range(10)]
        for sender in senders:
            await client.start("count", sender.id, binary=True, window=1_000)
        for sender in senders:
            await sender.earn()
            await sender.pay(900)
            await client.done(sender.id)
        await until_all_done(client, {sender.id for sender in senders})


async def until_all_done(client: Streamer, left: set[str]) -> None:
    left -= {heard["id"] for heard in client.heard if isinstance(heard, dict) and heard["type"] == "done"}
    while left:
        heard = await client.on_message()
        if heard["type"] == "done":
            left.discard(heard["id"])
