"""Streams over /ws: both kinds, both directions, several at once, and every way in which they can go wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Context, Limits, Middleware, ToolConnector, ToolError
from pegboard.call import Call
from pegboard.protocol.framing import stream_frames
from pegboard.server.exchange.calls_in_flight import CallsInFlight
from pegboard.server.exchange.service import Service
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.server.websocket.websocket_endpoint import WebSocketConversation
from tests.server.stream_client import Held, serve, streaming
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until

GUID = "550e8400-e29b-41d4-a716-446655440000"
OTHER = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


class Streaming:
    """A board of tools that stream, and what became of them."""

    def __init__(self, **limits: Any) -> None:
        self.board = Board("streaming", limits=Limits(**limits))
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.read: list[Any] = []
        add = self.board.add
        for tool in (
            self.upload,
            self.download,
            self.echo,
            self.hold,
            self.slow,
            self.numbers,
            self.counted,
            self.files,
        ):
            add(tool)
        for more in (self.fail, self.refuse, self.plain, self.in_a_thread, self.ask, self.labels, self.flood):
            add(more)

    async def upload(self, connector: ToolConnector) -> dict[str, Any]:
        """Takes all that comes."""
        async for chunk in connector:
            self.read.append(chunk)
        return {"chunks": len(self.read), "summary": connector.summary, "meta": dict(connector.meta)}

    async def download(self, sizes: list[int], connector: ToolConnector) -> int:
        async with connector.open(name="out.bin", mime="x/y", total_size=sum(sizes)) as stream:
            for size in sizes:
                await stream.write(bytes(size))
            stream.done({"sizes": sizes})
        return sum(sizes)

    async def echo(self, connector: ToolConnector) -> str:
        async for chunk in connector:
            await connector.write(chunk)
        return "echoed"

    async def hold(self, connector: ToolConnector) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "held"

    async def slow(self, connector: ToolConnector) -> int:
        """Reads nothing before it may."""
        self.begun.set()
        await self.go_on.wait()
        return sum([len(chunk) async for chunk in connector])

    async def numbers(self, upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    def counted(self, upto: int) -> Iterator[int]:
        yield from range(upto)

    async def files(self, connector: ToolConnector) -> None:
        """Two streams at once."""
        async with connector.open(name="a") as a, connector.open(name="b", binary=False) as b:
            await a.write(b"a")
            await b.write({"b": 1})

    async def fail(self, connector: ToolConnector) -> None:
        await connector.write("so far")
        raise ValueError("a secret")

    async def refuse(self, connector: ToolConnector) -> None:
        async with connector.open(binary=False) as stream:
            await stream.write("so far")
            raise ToolError("no further")

    async def plain(self) -> str:
        return "plain"

    def in_a_thread(self, connector: ToolConnector) -> str:
        assert threading.current_thread() is not threading.main_thread()
        with connector.open() as stream:
            for chunk in connector:
                stream.write(chunk + b"!")
        return "from a thread"

    async def ask(self, ctx: Context, connector: ToolConnector) -> str:
        answer = await ctx.elicit("Sure?", bool, key="sure")
        return str(answer)

    async def labels(self, connector: ToolConnector) -> dict[str, Any]:
        return {"id": connector.id, "binary": connector.binary, "streaming": connector.streaming, **connector.meta}

    async def flood(self, connector: ToolConnector) -> None:
        try:
            while True:
                await connector.write(bytes(65536))
                self.read.append(1)
        finally:
            self.ended.append("flood")


# -- what is sent and read -------------------------------------------------------------------------------------------


async def test_bytes_are_uploaded_and_summed_up() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("upload", GUID, binary=True, name="a.bin")
        for index, payload in enumerate([b"one", b"", b"three"]):
            await client.bytes(GUID, index, payload)
        await client.done(GUID, total=8)
        result = await client.result(GUID)
    assert one.read == [b"one", b"", b"three"]
    meta = {"method": "upload", "binary": True, "name": "a.bin"}
    assert result["structuredContent"] == {"chunks": 3, "summary": {"total": 8}, "meta": meta}
    assert result["resultType"] == "complete"


async def test_text_is_any_json() -> None:
    one = Streaming()
    sent = ["text", 7, None, True, {"a": [1]}, [], 1.5]
    async with streaming(one.board) as client:
        await client.start("upload", "t")
        for index, data in enumerate(sent):
            await client.text("t", index, data)
        await client.say(type="done", id="t")
        assert (await client.result("t"))["structuredContent"]["chunks"] == len(sent)
    assert one.read == sent


async def test_bytes_are_downloaded_in_order_and_large_writes_are_cut() -> None:
    one = Streaming(chunk_bytes=1000)
    async with streaming(one.board) as client:
        await client.start("download", "d", arguments={"sizes": [10, 2500]})
        assert (await client.result("d"))["structuredContent"] == 2510
    start, *chunks, done, _ = client.heard
    assert start["type"] == "start"
    assert start["timestamp"].endswith("Z")
    assert start["meta"] == {
        "method": "download", "binary": True, "name": "out.bin", "mime": "x/y", "totalSize": 2510, "correlationId": "d",
    }  # fmt: skip
    assert [(guid, index, len(payload)) for guid, index, payload in chunks] == [
        (start["id"], index, size) for index, size in enumerate([10, 1000, 1000, 500])
    ]
    assert (done["type"], done["id"], done["summary"]) == ("done", start["id"], {"sizes": [10, 2500]})


@pytest.mark.parametrize("binary", [True, False])
async def test_both_directions_at_once(binary: bool) -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("echo", GUID, binary=binary)
        for index in range(5):
            await (client.bytes(GUID, index, b"%d" % index) if binary else client.text(GUID, index, index))
            if not index:
                start = await client.on_message()
            heard = await client.on_message()
            assert (heard[:2] if binary else (heard["id"], heard["index"])) == (start["id"], index)
            assert (heard[2] if binary else heard["data"]) == (b"%d" % index if binary else index)
        await client.done(GUID)
        assert (await client.on_message())["id"] == start["id"]
        assert (await client.on_message())["id"] == GUID


async def test_a_tool_in_a_thread_streams_by_plain_loops() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("in_a_thread", GUID, binary=True)
        for index in range(3):
            await client.bytes(GUID, index, b"x")
        await client.done(GUID)
        assert (await client.result(GUID))["content"][0]["text"] == "from a thread"
    assert [heard[2] for heard in client.heard if isinstance(heard, tuple)] == [b"x!"] * 3


async def test_a_tool_may_open_several_streams() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("files", "f")
        await client.result("f")
    names = {heard["id"]: heard["meta"]["name"] for heard in client.heard[:2]}
    assert sorted(names.values()) == ["a", "b"]
    assert [heard["type"] for heard in client.heard if isinstance(heard, dict)].count("done") == 3


@pytest.mark.parametrize("tool", ["numbers", "counted"])
async def test_what_a_generator_yields_is_a_chunk_each(tool: str) -> None:
    async with streaming(Streaming().board) as client:
        await client.start(tool, "n", arguments={"upto": 3})
        assert (await client.result("n"))["structuredContent"] == [0, 1, 2]
    assert [heard["data"] for heard in client.heard if heard["type"] == "chunk"] == [0, 1, 2]


async def test_many_streams_and_calls_share_a_socket() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        ids = [str(uuid4()) for _ in range(20)]
        for stream_id in ids:
            await client.start("echo", stream_id, binary=True)
        for index in range(10):
            for stream_id in reversed(ids):
                await client.bytes(stream_id, index, f"{stream_id} {index}".encode())
            await client.say(jsonrpc="2.0", id=index, method="ping")
        for stream_id in ids:
            await client.done(stream_id)
        left = set(ids)
        while left:
            heard = await client.on_message()
            if isinstance(heard, dict) and heard.get("type") == "done":
                left.discard(heard["id"])
    owners = {
        m["id"]: m["meta"]["correlationId"] for m in client.heard if isinstance(m, dict) and m.get("type") == "start"
    }
    for guid, index, payload in (heard for heard in client.heard if isinstance(heard, tuple)):
        assert payload == f"{owners[guid]} {index}".encode()
    assert [heard["id"] for heard in client.heard if isinstance(heard, dict) and "jsonrpc" in heard] == list(range(10))


async def test_a_non_guid_id_can_be_used_for_only_one_binary_stream() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("upload", "duplex-1", binary=True)
        await client.start("upload", "duplex-2", binary=True)
        assert "GUID" in (await client.error("duplex-2"))["message"]
        await client.socket.send(bytes(24) + b"zero")
        await client.done("duplex-1")
        assert (await client.result("duplex-1"))["structuredContent"]["chunks"] == 1
        await client.start("upload", "duplex-2", binary=True)
        await client.done("duplex-2")
        await client.result("duplex-2")
    assert one.read == [b"zero"]


async def test_a_tool_receives_the_stream_metadata_of_its_caller() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("labels", GUID, binary=True, mime="x/y", encoding="e", compression="c", correlationId="r")
        told = (await client.result(GUID))["structuredContent"]
    assert told == {
        "id": GUID, "binary": True, "streaming": True, "method": "labels", "mime": "x/y", "encoding": "e",
        "compression": "c", "correlationId": "r",
    }  # fmt: skip


# -- calls -----------------------------------------------------------------------------------------------------------


async def test_a_method_that_is_a_tools_name_begins_a_stream_too() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.say(jsonrpc="2.0", id=GUID, method="echo")
        await client.bytes(GUID, 0, b"hi")
        await client.done(GUID)
        answer = await client.answer(GUID)
        assert answer["result"]["content"][0]["text"] == "echoed"
        start, chunk, done, _ = client.heard
        assert (start["meta"]["correlationId"], chunk[2], done["type"]) == (GUID, b"hi", "done")
        await client.say(jsonrpc="2.0", id=2, method="download", params={"sizes": [3]})
        assert (await client.answer(2))["result"]["structuredContent"] == 3
        await client.say(jsonrpc="2.0", id=3, method="refuse")
        assert (await client.answer(3))["result"]["isError"]


@pytest.mark.parametrize("method", ["plain", "nothing", "tools/nothing"])
async def test_any_other_method_is_refused_as_everywhere(method: str) -> None:
    async with streaming(Streaming().board) as client:
        await client.initialize()
        await client.say(jsonrpc="2.0", id=3, method=method)
        assert (await client.answer(3))["error"]["code"] == -32601


async def test_a_stream_needs_a_tool_that_streams() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("plain", "p")
        error = await client.error("p")
        assert (error["code"], error["data"]) == (-32601, {"method": "plain"})
        assert "does not support streaming" in error["message"]
        await client.start("uplod", "p")
        error = await client.error("p")
        assert (error["code"], error["data"]) == (-32601, {"method": "uplod"})
        assert "upload" in error["message"]


async def test_a_plain_call_of_a_tool_that_reads_says_what_to_do() -> None:
    async with streaming(Streaming().board) as client:
        await client.initialize()
        await client.say(jsonrpc="2.0", id=1, method="tools/call", params={"name": "upload"})
        result = (await client.answer(1))["result"]
        assert result["isError"]
        assert "start the call with a stream over /ws" in result["content"][0]["text"]


async def test_hooks_run_around_streams() -> None:
    seen: list[tuple[str, str, str]] = []

    class Watch(Middleware):
        async def before(self, call: Call) -> None:
            seen.append(("before", call.name, call.transport))

        async def after(self, call: Call, result: Any, elapsed_ms: float) -> None:
            seen.append(("after", call.name, str(call.failed)))

        async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
            seen.append(("error", call.name, type(exception).__name__))

    one = Streaming()
    one.board.use(Watch())
    async with streaming(one.board) as client:
        await client.start("upload", "u")
        await client.done("u")
        await client.result("u")
        await client.start("fail", "f")
        await client.error("f")
    assert seen == [
        ("before", "upload", "ws"), ("after", "upload", "False"), ("before", "fail", "ws"), ("error", "fail", "ValueError"),
    ]  # fmt: skip


async def test_the_arguments_of_a_stream_are_checked_as_everywhere() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("download", "d", arguments={"sizes": "many"})
        error = await client.error("d")
    assert error["code"] == -32000
    assert "sizes" in error["message"]
    assert error["data"]["result"]["isError"]


async def test_a_failure_ends_the_streams_that_were_open() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("fail", "f")
        error = await client.error("f")
        start, chunk, failed, _ = client.heard
        assert (chunk["data"], failed["type"], failed["id"]) == ("so far", "error", start["id"])
        assert "secret" not in str(client.heard)
        assert "error id" in error["message"]
        await client.start("refuse", "r")
        assert (await client.error("r"))["message"] == "no further"
        assert client.heard[-2]["error"]["message"] == "no further"


async def test_a_client_that_has_shaken_hands_is_asked_while_it_streams() -> None:
    async with streaming(Streaming().board) as client:
        await client.initialize(elicitation={})
        await client.start("ask", "a")
        asked = await client.on_message()
        assert asked["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"value": True}}
        await client.say(jsonrpc="2.0", id=asked["id"], result=answer)
        assert "True" in (await client.result("a"))["content"][0]["text"]


async def test_a_client_of_the_newest_revision_cannot_be_asked_while_it_streams() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("ask", "a")
        assert (await client.error("a"))["code"] in (-32000, -32021)


# -- the rules -------------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[list[tuple[str, Any]], str]] = {
    "a gap": ([("bytes", 0), ("bytes", 2)], "Received chunk 2, expected 1"),
    "a chunk twice": ([("bytes", 0), ("bytes", 0)], "Received chunk 0, expected 1"),
    "a chunk before the first": ([("bytes", -1)], "Received chunk -1, expected 0"),
    "text for bytes": ([("text", 0)], "Chunk was expected to be binary, got text"),
    "bytes after done": ([("done", None), ("bytes", 0)], "Binary data sent after done"),
    "done twice": ([("done", None), ("done", None)], "The stream has already ended"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_sender_that_breaks_the_rules_loses_its_stream_and_no_other(name: str) -> None:
    one = Streaming()
    steps, message = BROKEN[name]
    async with streaming(one.board) as client:
        await client.start("hold", GUID, binary=True)
        await client.start("echo", OTHER, binary=True)
        await one.begun.wait()
        for step, index in steps:
            if step == "bytes":
                await client.bytes(GUID, index, b"x")
            elif step == "text":
                await client.text(GUID, index, "x")
            else:
                await client.done(GUID)
        error = await client.error(GUID)
        assert (error["code"], error["message"]) == (-32000, message)
        await until(lambda: one.ended == ["cancelled"])
        # What is still on its way to the stream is dropped without a word.
        await client.bytes(GUID, 1, b"late")
        await client.done(GUID)
        await client.bytes(OTHER, 0, b"on")
        await client.done(OTHER)
        await client.result(OTHER)
    assert [heard["type"] for heard in client.heard if isinstance(heard, dict)].count("error") == 1


async def test_bytes_for_text_and_text_after_done_are_refused() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("hold", GUID)
        await one.begun.wait()
        await client.text(GUID, 0, "x")
        await client.done(GUID)
        await client.text(GUID, 1, "x")
        assert (await client.error(GUID))["message"] == "Text chunk sent after done"
        one.begun.clear()
        await client.start("hold", OTHER)
        await one.begun.wait()
        await client.bytes(OTHER, 0, b"x")
        error = await client.error(OTHER)
        assert (error["code"], error["message"]) == (-32000, "Chunk was expected to be text, got binary")
        await until(lambda: one.ended == ["cancelled"] * 2)


async def test_an_id_in_another_spelling_is_another_stream_of_which_one_may_have_bytes() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("upload", GUID.upper())
        await client.start("echo", GUID, binary=True)
        await client.bytes(GUID, 0, b"x")
        await client.text(GUID.upper(), 0, "y")
        await client.done(GUID)
        await client.result(GUID)
        await client.start("echo", GUID, binary=True)
        await client.start("echo", GUID.upper().replace("A", "a"), binary=True)
        assert (await client.error(GUID.upper().replace("A", "a")))["code"] == -32600


@pytest.mark.parametrize(
    ("sent", "message"),
    [(11, "Received more than the 10 announced bytes"), (9, "Received 9 bytes, but 10 were announced")],
)
async def test_the_size_that_was_announced_is_held_to(sent: int, message: str) -> None:
    async with streaming(Streaming().board) as client:
        await client.start("upload", GUID, binary=True, totalSize=10)
        await client.bytes(GUID, 0, bytes(sent))
        await client.done(GUID)
        assert message in (await client.error(GUID))["message"]


async def test_an_unknown_stream_is_rejected() -> None:
    async with streaming(Streaming().board) as client:
        await client.text("nobody", 0, "x")
        assert "There is no stream nobody" in (await client.error("nobody"))["message"]
        await client.bytes(GUID, 0, b"x")
        assert "There is no stream" in (await client.on_message())["error"]["message"]
        await client.socket.send(b"short")
        assert "24" in (await client.on_message())["error"]["message"]
        await client.say(type="start", id="x")
        assert "meta" in (await client.error("x"))["message"]
        await client.say(jsonrpc="2.0", id=1, method="ping")
        assert (await client.answer(1))["result"] == {}


async def test_an_id_is_used_once_at_a_time() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("hold", "same")
        await client.start("hold", "same")
        assert "already open" in (await client.error("same"))["message"]
        one.go_on.set()
        await client.result("same")


async def test_there_is_an_end_to_the_streams_of_a_socket() -> None:
    one = Streaming(calls_per_caller=2)
    async with streaming(one.board) as client:
        for name in "ab":
            await client.start("hold", name)
        await client.start("hold", "c")
        assert "2 streams are already open" in (await client.error("c"))["message"]
        one.go_on.set()
        await client.result("a")


async def test_a_sender_may_give_up() -> None:
    async with streaming(Streaming().board) as client:
        await client.start("upload", "u")
        await client.say(type="error", id="u", error={"code": -32000, "message": "disk full"})
        assert "disk full" in (await client.error("u"))["message"]


# -- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "notice", "disconnect"])
async def test_a_cancelled_stream_ends_its_call_and_is_not_answered(how: str) -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("hold", "h")
        await one.begun.wait()
        if how == "cancel":
            await client.say(type="cancel", id="h")
        elif how == "notice":
            await client.say(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": "h"})
        else:
            client.socket.transport.abort()
        await until(lambda: one.ended == ["cancelled"])
        if how != "disconnect":
            await client.say(jsonrpc="2.0", id=1, method="ping")
            await client.answer(1)
            assert len(client.heard) == 1


async def test_the_stream_of_a_tool_can_be_cancelled_by_its_own_id() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("flood", "f")
        start = await client.on_message()
        await client.say(type="cancel", id=start["id"])
        await until(lambda: one.ended == ["flood"])


async def test_a_tool_that_floods_stops_when_its_reader_leaves() -> None:
    one = Streaming()
    async with streaming(one.board) as client:
        await client.start("flood", "f")
        await client.on_message()
        client.socket.transport.abort()
        await until(lambda: one.ended == ["flood"])


async def test_silence_times_out() -> None:
    one = Streaming(unread_seconds=0.05)
    async with streaming(one.board) as client:
        await client.start("upload", "u")
        await client.text("u", 0, "x")
        error = await client.error("u")
    assert (error["code"], error["message"], error["data"]) == (-32000, "Stream timeout", {"timeout": 0.05})


async def test_a_writer_waits_for_a_tool_that_does_not_read_and_goes_on_when_it_does() -> None:
    one = Streaming(unread_bytes=100_000)
    async with await serve(one.board) as house:
        client = await house.connect(write_limit=1000)
        await client.start("slow", GUID, binary=True)
        await one.begun.wait()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for index in range(400):
                await client.bytes(GUID, index, bytes(50_000))
                sent += 1

        sending = asyncio.ensure_future(send())
        [visitor] = [one for one in house.endpoint._calls.followers if hasattr(one, "streams")]
        await until(lambda: visitor._paused)
        # The kernels' buffers take some megabytes; then the writer stands.
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 400
        held = visitor._held + sum(len(one) for one in visitor._waiting)
        assert held < 1_000_000
        one.go_on.set()
        await sending
        await client.done(GUID)
        assert (await client.result(GUID))["structuredContent"] == 20_000_000
        assert visitor._held == 0


async def test_a_tool_that_never_reads_loses_its_stream_so_that_the_others_go_on() -> None:
    one = Streaming(unread_bytes=1000, unread_seconds=0.5)
    async with streaming(one.board) as client:
        await client.start("hold", GUID, binary=True)
        await client.start("echo", OTHER, binary=True)
        await client.bytes(GUID, 0, bytes(2000))
        await client.bytes(OTHER, 0, b"x")
        await client.done(OTHER)
        error = await client.error(GUID)
        assert (error["message"], error["data"]) == ("Stream timeout", {"timeout": 0.5, "unread": 2000})
        await client.result(OTHER)
        await until(lambda: one.ended == ["cancelled"])


async def test_a_reader_that_is_slow_slows_the_tool() -> None:
    one = Streaming()
    async with await serve(one.board) as house:
        client = await house.connect(max_queue=1)
        await client.start("flood", "f")
        await client.on_message()
        before = -1
        while before != len(one.read):
            before = len(one.read)
            await asyncio.sleep(0.2)
        assert not one.ended
        # It writes on as it is read.
        for _ in range(400):
            await client.on_message()
        await until(lambda: len(one.read) > before)
        # It would wait for a goodbye that it does not read.
        client.socket.transport.abort()


async def test_a_server_that_ends_says_so_to_streams() -> None:
    one = Streaming()
    async with await serve(one.board) as house:
        client = await house.connect()
        await client.start("hold", "h")
        await one.begun.wait()
        await house.endpoint.drain(0, asyncio.Event())
        assert "shutting down" in (await client.error("h"))["message"]
        await client.start("hold", "late")
        assert "shutting down" in (await client.error("late"))["message"]
        await house.server.close()
        await client.socket.wait_closed()
        assert client.socket.close_code == 1001


COLOUR: ContextVar[str] = ContextVar("COLOUR", default="none")


async def test_no_call_sees_the_context_of_another_though_its_reading_lets_it_begin() -> None:
    one = Streaming(unread_bytes=10)
    seen: list[str] = []

    @one.board.tool
    async def paint(connector: ToolConnector) -> None:
        COLOUR.set("red")
        one.begun.set()
        await one.go_on.wait()
        async for _ in connector:
            pass

    @one.board.tool
    async def look(connector: ToolConnector) -> None:
        seen.append(COLOUR.get())

    async with streaming(one.board) as client:
        await client.start("paint", GUID, binary=True)
        await one.begun.wait()
        await client.bytes(GUID, 0, bytes(20))
        await client.start("look", "l")
        await client.done(GUID)
        await client.say(jsonrpc="2.0", id=1, method="ping")
        one.go_on.set()
        await client.result("l")
    assert seen == ["none"]


# -- whatever comes --------------------------------------------------------------------------------------------------

IDS = st.sampled_from([GUID, OTHER, "a", "b"])
KINDS = st.sampled_from(["start", "chunk", "done", "error", "cancel", "other"])
FRAMES = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "id": IDS | st.none() | st.integers(),
        "index": st.integers(-1, 2) | st.text(max_size=1),
        "data": st.none() | st.integers() | st.text(max_size=3),
        "meta": st.fixed_dictionaries(
            {},
            optional={
                "method": st.sampled_from(["upload", "echo", "plain", "nobody", "numbers"]),
                "binary": st.booleans() | st.none(),
                "arguments": st.just({"upto": 2}) | st.just([]),
                "totalSize": st.integers(0, 3),
            },
        ),
        "jsonrpc": st.just("2.0"),
        "method": st.sampled_from(["ping", "echo", "tools/call"]),
    },
).map(lambda value: json.dumps(value).encode())
BYTES = st.tuples(IDS, st.integers(-1, 2), st.binary(max_size=3)).map(
    lambda chunk: memoryview(stream_frames.header(stream_frames.key(chunk[0]), chunk[1]) + chunk[2])
)
MESSAGES = FRAMES | BYTES | st.binary(max_size=30) | st.binary(max_size=30).map(memoryview)


@given(st.lists(MESSAGES, max_size=12))
async def test_whatever_comes_the_next_message_is_served_and_nothing_is_left(
    messages: list[bytes | memoryview],
) -> None:
    one, socket = Streaming(), Held()
    service = Service(one.board.handler, one.board.info, one.board.limits, Subscribers(10), "ws")
    calls = CallsInFlight(one.board.limits, lambda: None)
    visitor = WebSocketConversation(service, socket, calls)
    for message in messages:
        if isinstance(message, memoryview):
            visitor.receive_bytes(bytes(message))
        else:
            visitor.receive_text(message)
        await asyncio.sleep(0)
    visitor.receive_text(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
    await until(lambda: any(line.get("id") == "last" and "result" in line for line in socket.lines))
    assert "Internal error" not in str(socket.lines)
    for stream_id in visitor.streams:
        visitor.receive_text(json.dumps({"type": "cancel", "id": stream_id}).encode())
    await until(lambda: not calls.running)
    assert (visitor._held, visitor.streams, visitor._keys, visitor._tasks) == (0, {}, {}, {})
    visitor.leave()
