"""The deadline of a call is one for all that it takes: retries, rounds of questions, resumed streams, a place to be sent from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pegboard import Client
from pegboard.errors import ResponseTimeout, Unreachable
from tests.client.fakes import Asked, data, faking, initialized, modern, reply, result, stream, text
from tests.client.process_leftovers import nothing_left
from tests.loops import skip
from tests.waiting import until


async def test_a_wait_that_would_outlast_the_deadline_is_not_begun() -> None:
    answer = modern(lambda asked, writer: reply(writer, b"", "503 Service Unavailable", Retry_After="4000"))
    async with nothing_left(), faking(answer) as fake, Client(fake.url) as client:
        with pytest.raises(Unreachable, match="answered 503"):
            await client.call("any", timeout=3000)
        assert fake.methods.count("tools/call") == 1


async def test_retries_share_one_deadline() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await skip(70)
        if fake.methods.count("resources/read") == 1:
            writer.close()

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        with pytest.raises(ResponseTimeout, match="no response to resources/read within 120 s"):
            await client.read("any://thing", timeout=120)
        assert fake.methods.count("resources/read") == 2


async def test_rounds_of_questions_share_one_deadline_less_the_time_to_answer() -> None:
    asks = {"it": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}}

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await skip(40)
        reply(writer, result(asked, {"resultType": "input_required", "inputRequests": asks}))

    async def think(asked: Any) -> dict[str, Any]:
        await skip(40)
        return {}

    async with nothing_left(), faking(modern(answer)) as fake:
        async with Client(fake.url, elicit=think, timeout=1000, max_timeout=100) as client:
            with pytest.raises(ResponseTimeout, match="no response to tools/call"):
                await client.call("any")
        assert fake.methods.count("tools/call") == 3


async def test_resumptions_of_a_stream_share_one_deadline() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.method, asked.message.get("method"):
            case "POST", "initialize":
                reply(writer, initialized(asked))
            case "POST", "tools/call":
                stream(writer, data({"jsonrpc": "2.0", "method": "notifications/x"}, "1"), b"retry: 50\n\n")
                writer.close()
            case "GET", _ if "last-event-id" in asked.headers:
                await skip(40)
                stream(writer, data({"jsonrpc": "2.0", "method": "notifications/x"}, "2"))
                writer.close()
            case "GET", _:
                reply(writer, b"", "405 Method Not Allowed")
            case _:
                reply(writer, b"", "202 Accepted")

    async with nothing_left(), faking(answer) as fake, Client(fake.url, version="2025-11-25") as client:
        with pytest.raises(ResponseTimeout):
            await client.call("any", timeout=100)
        assert sum("last-event-id" in asked.headers for asked in fake.asked) == 3


async def test_who_waits_for_a_connection_waits_no_longer_than_its_deadline() -> None:
    freed = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await freed.wait()
        reply(writer, text(asked, "done"))

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url, connections=2) as client:
        await client.list_tools()
        taken = [asyncio.create_task(client.call("any", timeout=20)) for _ in range(2)]
        await until(lambda: fake.methods.count("tools/call") == 2)
        with pytest.raises(ResponseTimeout):
            await client.call("any", timeout=0.2)
        freed.set()
        assert [one.text for one in await asyncio.gather(*taken)] == ["done", "done"]
        assert (await client.call("any")).text == "done"
        assert fake.connections <= 2
