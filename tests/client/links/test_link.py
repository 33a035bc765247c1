"""A link by itself, as a gateway uses it: what comes is passed on as it came, and nobody hears what is another's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from pegboard import Client
from pegboard.call import NULL_CHANNEL, Json, Notification, Question
from pegboard.client.links.link import Identity, LinkOptions, OutgoingRequest, RequestMetadata, ServerLink
from pegboard.client.links.server_messages import read_members
from pegboard.client.target import open_link
from pegboard.client.transports.stdio_link import StdioLink
from pegboard.errors import ConnectionLost, MalformedMessage
from tests.client.fakes import Asked, data, faking, legacy, modern, reply, result, script, stream, text
from tests.client.process_leftovers import nothing_left
from tests.waiting import until

pytestmark = pytest.mark.process

ME = Identity({"name": "gateway", "version": "1"}, {"elicitation": {}})

# Numbers that a reader would round, a member that nobody knows, an escape that a writer would spell otherwise.
RESULT = (
    '{"content":[{"type":"text","text":"\\u0061","of":"tomorrow"}],"structuredContent":{"sum":1.10,"big":12345678901234567890123,'
    '"near":0.1000000000000000055511151231257827},"_meta":{"x/y": {"b":1,"a":2}},"unheard":[1e2]}'
)
MEMBERS = {
    "content": '[{"type":"text","text":"\\u0061","of":"tomorrow"}]',
    "structuredContent": '{"sum":1.10,"big":12345678901234567890123,"near":0.1000000000000000055511151231257827}',
    "_meta": '{"x/y": {"b":1,"a":2}}',
    "unheard": "[1e2]",
}


class Ear:
    """A channel that keeps what it hears, and answers what it is told to."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.heard: list[Notification] = []
        self.asked: list[Question] = []
        self.closed: list[int] = []

    async def emit(self, notice: Notification) -> None:
        self.heard.append(notice)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        self.asked += asks.values()
        return {key: {"action": "accept", "content": {"by": self.name}} for key in asks}

    async def close_stream(self, retry_ms: int) -> None:
        self.closed.append(retry_ms)


def link_to(target: Any, unattributed: Ear | None = None, **options: Any) -> ServerLink:
    return open_link(target, ME, unattributed or Ear(), LinkOptions(**options))


def tool_call(name: str = "any", **more: Any) -> OutgoingRequest:
    return OutgoingRequest(
        **{"method": "tools/call", "params": {"name": name, "arguments": Raw(b"{}")}, "channel": NULL_CHANNEL, **more}
    )


async def check_members(link: ServerLink) -> None:
    try:
        told = await link.request(tool_call(read=read_members))
    finally:
        await link.close()
    assert {name: bytes(value).decode() for name, value in told.items()} == MEMBERS


@pytest.mark.parametrize("era", [modern, legacy])
async def test_a_result_passes_byte_by_byte_over_http(era: Any) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (asked.message["id"], RESULT.encode()))

    async with nothing_left(), faking(era(answer)) as fake:
        await check_members(link_to(fake.url))


async def test_a_result_passes_byte_by_byte_over_stdio() -> None:
    body = f"""
shake_hands()
asked = read()
sys.stdout.write('{{"jsonrpc":"2.0","id":%d,"result":%s}}\\n' % (asked["id"], {RESULT!r})); sys.stdout.flush()
read()
"""
    async with nothing_left():
        await check_members(link_to(script(body)))


async def test_a_non_object_result_is_malformed_when_read_by_members_too() -> None:
    async with faking(modern(lambda asked, writer: reply(writer, result(asked, [1])))) as fake:
        link = link_to(fake.url)
        with pytest.raises(MalformedMessage, match="result must be an object"):
            await link.request(tool_call(read=read_members))
        await link.close()


async def test_a_modern_server_receives_the_capabilities_of_the_caller() -> None:
    async with faking(modern(lambda asked, writer: reply(writer, result(asked, {})))) as fake:
        link = link_to(fake.url)
        theirs = Identity({"name": "them", "version": "2"}, {"sampling": {}}, "debug")
        await link.request(tool_call(identity=theirs))
        await link.request(tool_call())
        await link.close()
        told = [asked.message["params"]["_meta"] for asked in fake.asked[-2:]]
    prefix = "io.modelcontextprotocol/"
    assert [meta[prefix + "clientCapabilities"] for meta in told] == [{"sampling": {}}, {"elicitation": {}}]
    assert [meta[prefix + "clientInfo"]["name"] for meta in told] == ["them", "gateway"]
    assert [meta.get(prefix + "logLevel") for meta in told] == ["debug", None]


# A legacy child that asks as soon as it is told to, whoever may be waiting.
ASKING = """
shake_hands()
number = 0
while True:
    got = read()
    if got.get("method") == "notifications/cancelled":
        number += 1
    elif got.get("method") == "tools/call" and got["params"]["name"] == "ask":
        say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {}}})
        said = read()
        while said.get("id") != "q": said = read()
        text(got, said["result"]["content"]["by"])
    elif got.get("method") == "tools/call" and got["params"]["name"] == "count":
        text(got, str(number))
"""


async def asked_for(link: ServerLink, owner: str) -> str:
    told = await link.request(tool_call("ask", channel=Ear(owner), owner=owner))
    return str(told["content"][0]["text"])


async def test_a_question_that_names_no_call_is_for_the_only_one_under_way_and_else_for_the_lobby() -> None:
    async with nothing_left():
        link = link_to(script(ASKING), Ear("lobby"))
        try:
            assert await asked_for(link, "ada") == "ada"
            silent = asyncio.create_task(link.request(tool_call("never", owner="bob")))
            await asyncio.sleep(0)
            assert await asked_for(link, "ada") == "lobby"
            silent.cancel()
            await asyncio.wait([silent])
        finally:
            await link.close()


async def test_a_question_may_be_of_a_call_that_somebody_else_gave_up() -> None:
    async with nothing_left():
        link = link_to(script(ASKING), Ear("lobby"))
        try:
            given_up = asyncio.create_task(link.request(tool_call("never", owner="bob")))
            await asyncio.sleep(0)
            await link.request(tool_call("count"))
            given_up.cancel()
            await asyncio.wait([given_up])
            assert (await link.request(tool_call("count")))["content"][0]["text"] == "1"
            assert await asked_for(link, "ada") == "lobby"
            assert await asked_for(link, "bob") == "bob"
        finally:
            await link.close()


async def test_the_death_of_a_child_process_fails_the_listener_and_the_link_can_reopen() -> None:
    async with nothing_left():
        link = link_to(script(ASKING))
        assert isinstance(link, StdioLink)
        await link.open()
        assert link.is_open
        heard = Ear()
        listening = asyncio.create_task(
            link.request(OutgoingRequest(method="subscriptions/listen", params={"notifications": {}}, channel=heard))
        )
        await until(lambda: bool(heard.heard))
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ConnectionLost, match="SIGKILL"):
            await listening
        assert not link.is_open
        await link.open()
        assert link.is_open
        assert link.pid != first
        await link.close()


def test_what_a_caller_can_do_is_written_once_for_all_of_its_requests() -> None:
    envelope = RequestMetadata(ME, "2026-07-28")
    ann = Identity(ME.client, {"sampling": {}}, "debug")
    plain = OutgoingRequest(method="tools/call", params={"name": "x"}, channel=NULL_CHANNEL, identity=ann)
    first, second = (json.loads(envelope.write(plain, number))["params"] for number in (1, 2))
    assert first == second
    assert len(envelope._by_identity) == 1
    told = first["_meta"]
    assert told["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}
    assert told["io.modelcontextprotocol/logLevel"] == "debug"
    tracing = OutgoingRequest(
        method="tools/call",
        params={"_meta": {"traceparent": "1"}},
        channel=NULL_CHANNEL,
        identity=ann,
        wants_progress=True,
    )
    assert json.loads(envelope.write(tracing, 7))["params"]["_meta"] == {
        **told,
        "traceparent": "1",
        "progressToken": 7,
    }


def test_the_number_of_cached_identities_is_bounded_and_each_caller_sends_its_own() -> None:
    envelope = RequestMetadata(ME, "2026-07-28")
    for number in range(1000):
        someone = Identity(ME.client, {"experimental": {"n": number}})
        out = OutgoingRequest(method="x", params={}, channel=NULL_CHANNEL, identity=someone)
        meta = json.loads(envelope.write(out, 1))["params"]["_meta"]
        assert meta["io.modelcontextprotocol/clientCapabilities"]["experimental"]["n"] == number
    assert len(envelope._by_identity) == 256


async def test_the_end_of_a_process_is_reported_to_the_waiter_and_starts_are_counted() -> None:
    link = StdioLink(script("shake_hands()\nread()"), ME, NULL_CHANNEL, LinkOptions(restarts=None))
    async with nothing_left():
        for number in range(1, 8):
            await link.open()
            assert link.spawns == number
            assert link.pid is not None
            os.kill(link.pid, signal.SIGKILL)
            with pytest.raises(ConnectionLost, match="SIGKILL"):
                await link.until_lost()
        await link.close()


async def test_a_list_beside_a_call_does_not_make_its_question_anybodys() -> None:
    server = script(
        "shake_hands()\n"
        "first, second = read(), read()\n"
        "say({'jsonrpc': '2.0', 'id': 'q', 'method': 'elicitation/create', 'params': {}})\n"
        "while True:\n"
        "    got = read()\n"
        "    if got.get('id') == 'q': break\n"
        "text(first, json.dumps(got['result'])); result(second, {'tools': []})\n"
        "read()"
    )
    link = StdioLink(server, ME, NULL_CHANNEL)
    ear = Ear("ann")
    async with nothing_left():
        calling = asyncio.create_task(
            link.request(OutgoingRequest(method="tools/call", params={"name": "x"}, channel=ear))
        )
        await until(lambda: link.is_open)
        await asyncio.gather(
            calling, link.request(OutgoingRequest(method="tools/list", params={}, channel=NULL_CHANNEL))
        )
        assert "ann" in calling.result()["content"][0]["text"]
        await link.close()


async def test_a_waiting_caller_is_released_while_a_server_makes_the_client_reconnect_for_the_rest() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            called = next(one for one in fake.asked if one.message.get("method") == "tools/call")
            stream(writer, data(text(called, "after all"), "e-2"))
        else:
            stream(writer, b"id: e-1\nretry: 60\ndata:\n\n")
        writer.close()

    ear = Ear()
    async with nothing_left(), faking(legacy(answer)) as fake:
        link = link_to(fake.url, version="2025-11-25")
        await link.open()
        told = await link.request(tool_call(channel=ear))
        await link.close()

    assert told["content"][0]["text"] == "after all"
    assert ear.closed == [60]


async def test_who_is_cancelled_while_it_says_goodbye_leaves_all_the_same() -> None:
    served = legacy(lambda asked, writer: reply(writer, result(asked, {})))
    parting = asyncio.Event()

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Any:
        if asked.method == "DELETE":
            parting.set()
            return asyncio.Event().wait()
        return served(asked, writer)

    async with nothing_left(), faking(answer) as fake:
        link = link_to(fake.url, version="2025-11-25")
        await link.request(tool_call())
        leaving = asyncio.ensure_future(link.close())
        await parting.wait()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert not link.is_open
        assert link._pool._closed  # type: ignore[attr-defined]  # no connection is left, or will be made


async def test_an_error_without_an_id_does_not_end_a_subscription_to_a_legacy_server(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    body = (
        "shake_hands()\n"
        "text(read(), 'one')\n"
        # Once this is answered, the call is over, and the subscription alone waits.
        "say({'jsonrpc': '2.0', 'id': 1, 'method': 'ping'})\n"
        "read()\n"
        "say({'jsonrpc': '2.0', 'error': {'code': -32700, 'message': 'what?'}})\n"
        "say({'jsonrpc': '2.0', 'id': 2, 'method': 'ping'})\n"
        f"read(); open({str(heard)!r}, 'w').close()\n"
        "text(read(), 'two')\n"
        "read()\n"
    )
    async with nothing_left(), Client(script(body), version="2025-11-25") as client:
        changes = client.listen(tools=True)
        following = asyncio.ensure_future(anext(changes))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (await client.call("any")).text == "one"
        await until(heard.exists)
        assert (await client.call("any")).text == "two"
        assert not following.done()
        following.cancel()
        await asyncio.wait([following])
