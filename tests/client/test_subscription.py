"""Listening to a server that comes and goes: connections are made anew, and nothing that changed meanwhile is missed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from pegboard import Client
from pegboard.call import Change, Notification
from pegboard.client.list_cache import ListCache
from pegboard.client.subscription import MAX_CHANGES, ChangeQueue
from pegboard.errors import ConnectionLost, Refusal
from tests.client.fakes import Asked, data, error, faking, initialized, modern, reply, result, stream
from tests.client.process_leftovers import nothing_left
from tests.loops import skip

TOOLS = Change("tools")


def acknowledged(asked: Asked) -> bytes:
    return told(asked, "subscriptions/acknowledged", notifications=asked.message["params"]["notifications"])


def told(asked: Asked, method: str, **params: Any) -> bytes:
    meta = {"io.modelcontextprotocol/subscriptionId": asked.message["id"]}
    return data({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": meta}})


async def test_a_broken_stream_is_reopened_and_reports_all_changes_once() -> None:
    listens: list[Asked] = []

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        listens.append(asked)
        stream(writer, acknowledged(asked), told(asked, "tools/list_changed"))
        await writer.drain()
        if len(listens) == 1:
            await heard.wait()
            writer.close()
        else:
            await asyncio.sleep(30)

    heard = asyncio.Event()
    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        async with aclosing(client.listen(tools=True, uris=["memo://a"])) as changes:
            assert await anext(changes) == TOOLS
            heard.set()
            again = {await anext(changes), await anext(changes)}
            assert again == {TOOLS, Change("updated", "memo://a")}
        wanted = listens[0].message["params"]["notifications"]
        assert wanted["toolsListChanged"] is True
        assert wanted["resourceSubscriptions"] == ["memo://a"]


async def test_a_server_that_ends_it_in_good_order_ends_the_listening() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(writer, acknowledged(asked), told(asked, "tools/list_changed"), data(result(asked, {})))
        writer.close()

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        assert [change async for change in client.listen(tools=True)] == [TOOLS]


async def test_a_server_that_never_listens_is_an_error() -> None:
    def lose(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.close()

    def refuse(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, error(asked, -32601, "no such method"), "404 Not Found")

    for bad, kind in ((lose, ConnectionLost), (refuse, Refusal)):
        async with nothing_left(), faking(modern(bad)) as fake, Client(fake.url) as client:
            with pytest.raises(kind):
                [change async for change in client.listen(tools=True)]


async def test_a_reopened_session_subscribes_again_and_reports_all_changes_once() -> None:
    sessions = iter(["one", "two"])
    known: list[str] = []
    subscribed: list[tuple[str, str]] = []

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        session = asked.headers.get("mcp-session-id", "")
        match asked.method, asked.message.get("method"):
            case "POST", "initialize":
                known[:] = [next(sessions)]
                reply(writer, initialized(asked), Mcp_Session_Id=known[0])
            case "POST", _ if asked.message.get("id") is not None and session not in known:
                reply(writer, b"", "404 Not Found")
            case "POST", "resources/subscribe":
                subscribed.append((session, asked.message["params"]["uri"]))
                reply(writer, result(asked, {}))
                ready.set()
            case "POST", "tools/list":
                reply(writer, result(asked, {"tools": []}))
            case "GET", _:
                stream(writer)
                await writer.drain()
                await asyncio.sleep(30)
            case _:
                reply(writer, b"", "202 Accepted")

    ready = asyncio.Event()
    async with nothing_left(), faking(answer) as fake, Client(fake.url, version="2025-11-25") as client:
        async with aclosing(client.listen(uris=["memo://a"])) as changes:
            first = asyncio.ensure_future(anext(changes))
            await ready.wait()
            known.clear()
            await client.list_tools()
            assert await first == Change("updated", "memo://a")
        assert subscribed == [("one", "memo://a"), ("two", "memo://a")]


async def test_the_time_a_person_takes_is_not_counted_where_a_server_asks_beside_its_call() -> None:
    answered = asyncio.Event()
    called = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.method, asked.message.get("method"):
            case "POST", "initialize":
                reply(writer, initialized(asked))
            case "GET", _:
                stream(writer)
                await writer.drain()
                await called.wait()
                ask = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
                writer.write(data({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": ask}))
                await writer.drain()
                await asyncio.sleep(30)
            case "POST", "tools/call":
                called.set()
                await answered.wait()
                reply(writer, result(asked, {"content": [{"type": "text", "text": "thanks"}]}))
            case "POST", None:
                answered.set()
                reply(writer, b"", "202 Accepted")
            case _:
                reply(writer, b"", "202 Accepted")

    async def think(asked: Any) -> dict[str, Any]:
        await skip(50)
        return {}

    async with faking(answer) as fake, Client(fake.url, version="2025-11-25", elicit=think, timeout=40) as client:
        assert (await client.call("any")).text == "thanks"


async def test_many_may_listen_and_calls_still_go_through() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "subscriptions/listen":
            stream(writer, acknowledged(asked))
            await writer.drain()
            await asyncio.sleep(30)
        else:
            reply(writer, result(asked, {"content": []}))

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        listening = [asyncio.ensure_future(anext(client.listen(tools=True))) for _ in range(120)]
        async with asyncio.timeout(10):
            while fake.methods.count("subscriptions/listen") < 120:  # noqa: ASYNC110 — it is the fake that counts
                await asyncio.sleep(0.01)
            await client.call("any")
        for one in listening:
            one.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def test_no_method_can_end_its_header() -> None:
    async with (
        faking(modern(lambda asked, writer: reply(writer, result(asked, {})))) as fake,
        Client(fake.url) as client,
    ):
        for method in ("a\r\nX: y", "é", "a\0"):
            with pytest.raises(Refusal, match="no method"):
                await client.request(method)
        assert len(fake.asked) == 1


async def test_unconsumed_resource_changes_are_merged_into_one_for_all_resources() -> None:
    queue = ChangeQueue(ListCache())
    await queue.emit(Notification("notifications/tools/list_changed", {}))
    for number in range(2 * MAX_CHANGES):
        await queue.emit(Notification("notifications/resources/updated", {"uri": f"memo://{number}"}))
    await queue.emit(Notification("notifications/prompts/list_changed", {}))
    assert [await queue.next() for _ in range(3)] == [Change("tools"), Change("updated"), Change("prompts")]
    await queue.emit(Notification("notifications/resources/updated", {"uri": "memo://a"}))
    assert await queue.next() == Change("updated", "memo://a")


@pytest.mark.parametrize("uri", [None, 7, [], "x" * 10_000])
async def test_an_update_with_an_invalid_uri_counts_as_a_change_of_all_resources(uri: Any) -> None:
    queue = ChangeQueue(ListCache())
    await queue.emit(Notification("notifications/resources/updated", {"uri": uri}))
    assert await queue.next() == Change("updated")
