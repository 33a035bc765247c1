"""The deadline of a call is one for all that it takes: retries, rounds of questions, resumed streams, a place to be sent from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Client
from pegboard.client.patience import Patience, held
from pegboard.errors import NoAnswer, Unreachable
from tests.client.fakes import Asked, data, faking, initialized, modern, reply, result, stream, text
from tests.client.leftovers import nothing_left
from tests.waiting import until


@asynccontextmanager
async def within(least: float, most: float) -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    assert least <= time.monotonic() - began < most


async def test_news_begin_the_wait_anew_but_not_beyond_the_end() -> None:
    loop = asyncio.get_running_loop()
    patience = Patience(10, 15)
    with patience:
        began = loop.time()
        assert patience.left() == pytest.approx(10, abs=1)
        patience.news()
        assert patience.left() == pytest.approx(10, abs=1)
        patience._quiet = 100
        patience.news()
        assert patience.left() == pytest.approx(15 - (loop.time() - began), abs=1)


async def test_what_is_held_stands_still_and_goes_on_with_what_was_left() -> None:
    patience = Patience(10, 15)
    with patience:
        with held([patience]), held([patience]):
            assert patience.left() == float("inf")
            patience.news()
            assert patience.left() == float("inf")
        assert patience.left() == pytest.approx(10, abs=1)


async def test_a_deadline_that_passes_ends_the_wait_and_leaves_no_cancellation_behind() -> None:
    with pytest.raises(TimeoutError), Patience(0.01, 10):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_that_moves_on_is_the_one_that_counts() -> None:
    async def hear() -> None:
        with Patience(0.05, 0.3) as patience:
            while True:
                patience.news()
                await asyncio.sleep(0.01)

    async with within(0.25, 2):
        with pytest.raises(TimeoutError):
            await hear()


async def test_a_deadline_that_passed_while_held_counts_from_the_release() -> None:
    async def answer() -> None:
        with Patience(0.05, 0.05) as patience:
            with held([patience]):
                await asyncio.sleep(0.2)
            assert patience.left() > 0
            await asyncio.Event().wait()

    async with within(0.2, 2):
        with pytest.raises(TimeoutError):
            await answer()


async def test_the_cancellation_of_others_is_not_taken_for_a_deadline() -> None:
    async def wait() -> None:
        with Patience(10, 10):
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_a_deadline_and_a_cancellation_are_a_cancellation() -> None:
    async def wait() -> None:
        with patience:
            try:
                await asyncio.Event().wait()
            finally:
                assert task.cancel()

    patience = Patience(0.01, 0.01)
    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_that_would_outlast_the_deadline_is_not_begun() -> None:
    answer = modern(lambda asked, writer: reply(writer, b"", "503 Service Unavailable", Retry_After="4"))
    async with nothing_left(), faking(answer) as fake, Client(fake.url) as client:
        async with within(0, 2.5):
            with pytest.raises(Unreachable, match="answered 503"):
                await client.call("any", timeout=3)
        assert fake.methods.count("tools/call") == 1


async def test_retries_share_one_deadline() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if fake.methods.count("resources/read") == 1:
            writer.close()

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        async with within(0.4, 2):
            with pytest.raises(NoAnswer, match=r"no answer to resources/read within 0\.5 s"):
                await client.read("any://thing", timeout=0.5)
        assert fake.methods.count("resources/read") == 2


async def test_rounds_of_questions_share_one_deadline_less_the_time_to_answer() -> None:
    asks = {"it": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}}

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        reply(writer, result(asked, {"resultType": "input_required", "inputRequests": asks}))

    async def think(asked: Any) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        return {}

    async with nothing_left(), faking(modern(answer)) as fake:
        async with Client(fake.url, elicit=think, timeout=30, max_timeout=0.7) as client, within(0.9, 3):
            with pytest.raises(NoAnswer, match="no answer to tools/call"):
                await client.call("any")
        assert 2 <= fake.methods.count("tools/call") <= 4


async def test_resumptions_of_a_stream_share_one_deadline() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.method, asked.message.get("method"):
            case "POST", "initialize":
                reply(writer, initialized(asked))
            case "POST", "tools/call":
                stream(writer, data({"jsonrpc": "2.0", "method": "notifications/x"}, "1"), b"retry: 50\n\n")
                writer.close()
            case "GET", _ if "last-event-id" in asked.headers:
                stream(writer, data({"jsonrpc": "2.0", "method": "notifications/x"}, "2"))
                writer.close()
            case "GET", _:
                reply(writer, b"", "405 Method Not Allowed")
            case _:
                reply(writer, b"", "202 Accepted")

    async with nothing_left(), faking(answer) as fake, Client(fake.url, version="2025-11-25") as client:
        async with within(0.5, 2.5):
            with pytest.raises(NoAnswer):
                await client.call("any", timeout=0.6)
        assert sum("last-event-id" in asked.headers for asked in fake.asked) >= 2


async def test_who_waits_for_a_connection_waits_no_longer_than_its_deadline() -> None:
    freed = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await freed.wait()
        reply(writer, text(asked, "done"))

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url, connections=2) as client:
        await client.list_tools()
        taken = [asyncio.create_task(client.call("any", timeout=20)) for _ in range(2)]
        await until(lambda: fake.methods.count("tools/call") == 2, 5)
        async with within(0.1, 2):
            with pytest.raises(NoAnswer):
                await client.call("any", timeout=0.2)
        freed.set()
        assert [one.text for one in await asyncio.gather(*taken)] == ["done", "done"]
        assert (await client.call("any")).text == "done"
        assert fake.connections <= 2
