"""A listening server under hostile and unusual clients, from outside: bytes in, bytes out, read by a foreign parser."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import h11
import pytest

from pegboard import Board, Context
from pegboard.limits import Limits
from pegboard.protocol.framing.sse import EventReader
from pegboard.protocol.revisions import MODERN
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from tests.server.fake_sink import BOTH, envelope, mirror, notification, request
from tests.server.http_clients import Line, Reply
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import SOON

ORIGIN = "http://localhost:6274"


class Seen:
    """What became of the slow tools of a house."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()


def make_board(seen: Seen, limits: Limits) -> Board:
    board = Board("battery", version="1", limits=limits)

    @board.tool
    async def echo(text: str) -> str:
        """Says it back."""
        return text

    @board.tool
    async def count(to: int, ctx: Context) -> int:
        """Counts, telling how far it is; it also says numbers that do not increase."""
        for number in range(1, to + 1):
            await ctx.progress(number, to, f"at {number}")
            await ctx.progress(number - 1, to)
        return to

    @board.tool
    async def tell_and_wait(ctx: Context) -> str:
        """Tells of its start, waits to be released, tells of that."""
        await ctx.progress(1)
        seen.started.set()
        await seen.release.wait()
        await ctx.progress(2)
        return "done"

    @board.tool
    async def slow() -> str:
        """Waits to be released."""
        seen.started.set()
        try:
            await seen.release.wait()
        except asyncio.CancelledError:
            seen.cancelled.set()
            raise
        return "done"

    @board.tool
    def leave() -> str:
        """Ends more than it may."""
        sys.exit("a secret")

    @board.tool
    async def fail() -> str:
        """Fails."""
        raise ValueError("a secret")

    @board.tool
    async def surrogate() -> str:
        """Says what UTF-8 cannot."""
        return "\ud800"

    @board.tool
    async def endless() -> float:
        """Says what JSON cannot."""
        return float("inf")

    return board


class House:
    """A server and the ways to reach it."""

    def __init__(self, port: int, seen: Seen, endpoint: HttpEndpoint) -> None:
        self.port = port
        self.seen = seen
        self.endpoint = endpoint
        self._lines: list[Line] = []

    async def connect(self) -> Line:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        self._lines.append(line)
        return line

    def post(self, body: bytes, headers: Mapping[str, str | None] | None = None, method: str = "POST") -> bytes:
        sent: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": BOTH,
            "Content-Length": str(len(body)),
        }
        given = {name.lower(): value for name, value in (headers or {}).items()}
        lines = [f"{method} /mcp HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items() if name.lower() not in given]
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def modern(self, method: str, params: Mapping[str, Any] | None = None, **headers: str | None) -> bytes:
        meta = {**envelope(), **(params or {}).get("_meta", {})}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.post(request(method, {**(params or {}), "_meta": meta}), {**mirror(method, params), **names})

    def call(self, name: str, arguments: Any = None, token: Any = None, **headers: str | None) -> bytes:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.modern("tools/call", params, **headers)

    async def ask(self, raw: bytes, method: str = "POST") -> Reply:
        """The response to bytes on a connection of their own."""
        line = await self.connect()
        return await line.ask(raw, method)

    async def open_session(self, version: str = "2025-11-25") -> dict[str, str | None]:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        reply = await self.ask(self.post(request("initialize", params)))
        assert reply.status == 200, reply.body
        return {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": version}

    async def is_alive(self) -> bool:
        reply = await self.ask(self.call("echo", {"text": "still here"}))
        return reply.status == 200 and reply.json["result"]["content"][0]["text"] == "still here"

    def close(self) -> None:
        for line in self._lines:
            line.hang_up()


@asynccontextmanager
async def house(limits: Limits | None = None) -> AsyncIterator[House]:
    limits = limits or Limits()
    seen = Seen()
    board = make_board(seen, limits)
    endpoint = HttpEndpoint(board.handler, board.info, limits=limits, guard=Guard(origins=[ORIGIN]))
    server = await listen(endpoint, limits)
    one = House(server.port, seen, endpoint)
    try:
        yield one
    finally:
        one.close()
        await server.close()
        await board.stop()


# -- bad input ---------------------------------------------------------------------------------------------------------

LIST = request("tools/list", {"_meta": envelope()})
PLAIN = request("tools/list")
IN_MODERN = dict(mirror("tools/list"))

HOSTILE: list[tuple[str, dict[str, str | None], bytes, int, int | None]] = [
    ("malformed JSON", {}, b"{", 400, -32700),
    ("no body", {}, b"", 400, -32700),
    ("a body of zeros", {}, bytes(1000), 400, -32700),
    ("invalid UTF-8", {}, LIST[:-1] + b',"x":"\xff"}', 400, -32700),
    ("UTF-16", {}, LIST.decode().encode("utf-16"), 400, -32700),
    ("an encoded surrogate", {}, LIST[:-1] + b',"x":"\xed\xa0\x80"}', 400, -32700),
    ("a lone surrogate", {}, LIST[:-1] + b',"x":"\\udfff"}', 400, -32700),
    ("NaN", {}, LIST[:-1] + b',"x":NaN}', 400, -32700),
    ("Infinity", {}, LIST[:-1] + b',"x":-Infinity}', 400, -32700),
    ("too deep", {}, LIST[:-1] + b',"x":' + b"[" * 127 + b"]" * 127 + b',"y":' + b"[" * 128 + b"]" * 128 + b"}", 400, -32700),
    ("a bottomless pit", {}, b"[" * 1_000_000, 400, -32700),
    ("a string that never ends", {}, b"[" * 200 + b'"' + b'\\"' * 500_000, 400, -32700),
    ("a huge integer", {}, LIST[:-1] + b',"x":' + b"9" * 401 + b"}", 400, -32700),
    ("two ids", {}, LIST[:-1] + b',"id":2}', 400, -32600),
    ("two methods", {}, LIST[:-1] + b',"method":"tools/call"}', 400, -32600),
    ("two params", {}, LIST[:-1] + b',"params":{}}', 400, -32600),
    ("a number", {}, b"1", 400, -32600),
    ("an array", {}, b"[" + LIST + b"]", 400, -32600),
    ("an empty array", {}, b"[]", 400, -32600),
    *((f"the id {text}", {}, LIST.replace(b'"id": 1', b'"id": ' + text.encode()), 400, -32600) for text in ("null", "true", "1.5", "{}", "[]")),
    ("text", {"content-type": "text/plain"}, LIST, 415, -32600),
    ("a form", {"content-type": "application/x-www-form-urlencoded"}, LIST, 415, -32600),
    ("no content type", {"content-type": None}, LIST, 415, -32600),
    ("a compressed body", {"content-encoding": "gzip"}, LIST, 415, None),
    ("a wish for HTML", {"accept": "text/html"}, LIST, 406, -32600),
    ("a page from elsewhere", {"origin": "http://evil.example"}, LIST, 403, -32600),
    ("a page from nowhere", {"origin": "null"}, LIST, 403, -32600),
    ("a prefix of ours", {"origin": "http://localhost.evil"}, LIST, 403, -32600),
    ("another host", {"host": "evil.example"}, LIST, 421, -32600),
    ("an id too long", {}, LIST.replace(b'"id": 1', b'"id": "%b"' % (b"i" * 5000)), 400, -32600),
    ("a body too large", {"content-length": str(5 * 1024 * 1024)}, LIST, 413, None),
]  # fmt: skip


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    ("headers", "body", "status", "code"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
async def test_bad_input_is_refused_with_a_reason_and_the_next_request_is_served(
    era: str, headers: dict[str, str | None], body: bytes, status: int, code: int | None
) -> None:
    async with house() as one:
        ours = IN_MODERN if era == "modern" else await one.open_session()
        line = await one.connect()
        reply = await line.ask(one.post(body, {**ours, **headers}))
        assert reply.status == status, reply.body
        if code is None:
            assert reply.body.strip()
        else:
            assert reply.json["error"]["code"] == code
            assert len(reply.json["error"]["message"]) > 10
        if reply.headers.get("connection") == "close":
            assert await line.is_closed()
        else:
            again = await line.ask(one.call("echo", {"text": "hello"}))
            assert again.status == 200
        assert await one.is_alive()


TWO_HEADERS = [
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Param-X",
    "Authorization",
    "Origin",
]


@pytest.mark.parametrize("name", [*TWO_HEADERS, "Host"])
async def test_a_header_that_identifies_comes_once_or_not_at_all(name: str) -> None:
    async with house() as one:
        line = f"{name}: {ORIGIN if name == 'Origin' else 'a'}\r\n".encode()
        raw = one.call("echo", {"text": "x"}).replace(b"Content-Type", line + line.lower() + b"Content-Type", 1)
        assert (await one.ask(raw)).status == 400
        assert await one.is_alive()


@pytest.mark.requirement("modern/headers/case-insensitive-names")
async def test_names_of_headers_have_no_case_and_values_no_space_around_them() -> None:
    async with house() as one:
        raw = one.call("echo", {"text": "x"}, mcp_name="  echo  ")
        assert (await one.ask(raw)).status == 200
        assert (await one.ask(raw.replace(b"mcp-method", b"MCP-METHOD"))).status == 200


@pytest.mark.requirement("modern/headers/match")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp_method": None}, -32020),
        ({"mcp_method": "TOOLS/CALL"}, -32020),
        ({"mcp_name": None}, -32020),
        ({"mcp_name": "Echo"}, -32020),
        ({"mcp_name": "=?base64?ZWNobw?="}, -32020),
        ({"mcp_name": "=?BASE64?ZWNobw==?="}, -32020),
        ({"mcp_name": "ech\xf6"}, -32020),
        ({"mcp_protocol_version": None}, -32020),
        ({"mcp_protocol_version": "v999"}, -32020),
        ({"mcp_protocol_version": "2025-11-25"}, -32020),
    ],
)
async def test_mirrored_headers_have_to_agree_with_the_body(headers: dict[str, str | None], code: int) -> None:
    async with house() as one:
        reply = await one.ask(one.call("echo", {"text": "x"}, **headers))
        assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (400, code, 1)
        assert await one.is_alive()


async def test_base64_in_a_mirrored_header_is_decoded() -> None:
    async with house() as one:
        assert (await one.ask(one.call("echo", {"text": "x"}, mcp_name="=?base64?ZWNobw==?="))).status == 200


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "unknown/method"])
async def test_what_the_revision_does_not_have_is_404_in_modern_and_an_answer_in_legacy(method: str) -> None:
    async with house() as one:
        reply = await one.ask(one.modern(method))
        assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (404, -32601, 1)
        session = await one.open_session()
        if method == "unknown/method":
            reply = await one.ask(one.post(request(method), session))
            assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (200, -32601, 1)
        assert (await one.ask(one.post(request("ping"), session))).json["result"] == {}


@pytest.mark.parametrize("verb", ["PUT", "HEAD"])
async def test_other_verbs_are_not_allowed(verb: str) -> None:
    async with house() as one:
        reply = await one.ask(one.post(b"", {"accept": "text/event-stream", "origin": ORIGIN}, verb), verb)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, POST, DELETE, OPTIONS")
        assert reply.headers["access-control-allow-origin"] == ORIGIN


async def test_a_page_that_is_allowed_may_ask_send_and_read() -> None:
    async with house() as one:
        asked = {"origin": ORIGIN, "access-control-request-headers": "mcp-session-id", "content-type": None}
        reply = await one.ask(one.post(b"", asked, "OPTIONS"), "OPTIONS")
        assert reply.status == 204
        assert reply.headers["access-control-allow-headers"] == "mcp-session-id"
        reply = await one.ask(one.call("echo", {"text": "x"}, origin=ORIGIN))
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        assert "Mcp-Session-Id" in reply.headers["access-control-expose-headers"]


@pytest.mark.requirement("modern/tools/outputs-sanitized", "legacy/tools/outputs-sanitized")
@pytest.mark.parametrize("tool", ["fail", "leave", "surrogate", "endless"])
async def test_a_tool_that_fails_is_answered_once_and_its_secret_stays(tool: str) -> None:
    async with house() as one:
        session = await one.open_session()
        for raw in (one.call(tool), one.post(request("tools/call", {"name": tool}), session)):
            reply = await one.ask(raw)
            assert reply.status == 200
            assert "error" in reply.json or reply.json["result"]["isError"]
            assert b"secret" not in reply.body
        assert await one.is_alive()


@pytest.mark.parametrize(
    "arguments", ["NaN", '"\\ud800"', "1e999", "9" * 400, '{"a":1,"a":2}', "null", "[]", '""', "true"]
)
async def test_whatever_a_tool_is_given_it_is_answered(arguments: str) -> None:
    async with house() as one:
        body = one.call("echo", {"text": "HERE"})
        for old, new in ((b'"HERE"', arguments.encode()), (b'{"text": "HERE"}', arguments.encode())):
            changed = body.replace(old, new)
            length = len(changed.partition(b"\r\n\r\n")[2])
            head, _, rest = changed.partition(b"\r\n\r\n")
            head = b"\r\n".join(
                b"Content-Length: %d" % length if line.startswith(b"Content-Length") else line
                for line in head.split(b"\r\n")
            )
            reply = await one.ask(head + b"\r\n\r\n" + rest)
            assert reply.status in (200, 400)
            assert reply.json.get("id", 1) == 1
        assert await one.is_alive()


# -- streams, leaving, silence -----------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "modern/progress/increases",
    "legacy/progress/increases",
    "modern/progress/token-of-the-request",
    "legacy/progress/token-of-the-request",
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_increases_and_the_answer_is_the_last_event(era: str) -> None:
    async with house() as one:
        if era == "modern":
            raw = one.call("count", {"to": 3}, token="t")
        else:
            params = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "t"}}
            raw = one.post(request("tools/call", params), await one.open_session())
        line = await one.connect()
        reply = await line.ask(raw)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        assert [message["params"]["progress"] for message in reply.messages[:-1]] == [1, 2, 3]
        assert {message["params"]["progressToken"] for message in reply.messages[:-1]} == {"t"}
        assert reply.messages[-1]["id"] == 1
        assert (await line.ask(one.call("echo", {"text": "x"}))).status == 200, "the connection is kept"


async def test_an_event_reaches_the_client_while_its_call_still_waits() -> None:
    async with house() as one, asyncio.timeout(SOON):
        line = await one.connect()
        await line.say(one.call("tell_and_wait", {}, token="t"))
        heard = b""
        async for event in line.events():
            heard += bytes(event.data) if isinstance(event, h11.Data) else b""
            if b'"progress":1' in heard and not one.seen.release.is_set():
                assert b'"result"' not in heard
                one.seen.release.set()
        assert b'"progress":2' in heard
        assert b'"result"' in heard


@pytest.mark.requirement("modern/progress/token-of-the-request")
async def test_without_a_token_nothing_is_said_before_the_answer() -> None:
    async with house() as one:
        reply = await one.ask(one.call("count", {"to": 3}))
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("accept", "kind"), [("application/json", "application/json"), ("text/event-stream", "text/event-stream")]
)
async def test_the_form_of_the_answer_is_the_one_that_is_taken(accept: str, kind: str) -> None:
    async with house() as one:
        for raw in (one.call("count", {"to": 2}, token=1, accept=accept), one.modern("tools/list", accept=accept)):
            reply = await one.ask(raw)
            assert (reply.status, reply.headers["content-type"]) == (200, kind)
            assert reply.json["id"] == 1


@pytest.mark.requirement("modern/http/disconnect-cancels")
async def test_a_modern_client_that_hangs_up_cancels_its_call_within_a_second() -> None:
    async with house() as one:
        line = await one.connect()
        await line.say(one.call("slow"))
        await one.seen.started.wait()
        line.hang_up()
        await one.seen.cancelled.wait()
        assert await one.is_alive()


async def test_a_legacy_client_that_hangs_up_cancels_nothing_but_its_notice_does() -> None:
    async with house() as one:
        session = await one.open_session()
        line = await one.connect()
        await line.say(one.post(request("tools/call", {"name": "slow"}, 7), session))
        await one.seen.started.wait()
        line.hang_up()
        assert await line.is_closed()
        # The id is still in flight, so the call is.
        reply = await one.ask(one.post(request("ping", request_id=7), session))
        assert (reply.status, reply.json["error"]["code"]) == (409, -32600)
        assert not one.seen.cancelled.is_set()
        reply = await one.ask(one.post(notification("notifications/cancelled", {"requestId": 7}), session))
        assert (reply.status, reply.body) == (202, b"")
        await one.seen.cancelled.wait()


async def test_delete_ends_a_session_and_its_calls() -> None:
    async with house() as one:
        session = await one.open_session()
        line = await one.connect()
        await line.say(one.post(request("tools/call", {"name": "slow"}, 7), session))
        await one.seen.started.wait()
        assert (await one.ask(one.post(b"", session, "DELETE"), "DELETE")).status == 204
        await one.seen.cancelled.wait()
        assert (await line.on_message()).messages == []
        assert (await one.ask(one.post(request("ping"), session))).status == 404


async def test_a_silent_call_opens_its_stream_and_is_kept_alive() -> None:
    async with house(Limits(quiet_seconds=0.1)) as one:
        line = await one.connect()
        await line.say(one.call("slow"))
        parts = line.events()
        start = await anext(parts)
        assert isinstance(start, h11.Response)
        assert dict(start.headers)[b"content-type"] == b"text/event-stream"
        first = await anext(parts)
        assert bytes(first.data).startswith(b":")
        one.seen.release.set()
        rest = b"".join([bytes(part.data) async for part in parts])
        assert [json.loads(event.data)["id"] for event in EventReader().feed(rest)] == [1]


async def test_calls_wait_for_no_other_call() -> None:
    async with house() as one:
        slow = await one.connect()
        await slow.say(one.call("slow"))
        await one.seen.started.wait()
        session = await one.open_session()
        replies = await asyncio.gather(
            *(one.ask(one.post(request("tools/list", request_id=n), session)) for n in range(1000, 1003))
        )
        assert [reply.status for reply in replies] == [200] * 3
        one.seen.release.set()
        assert (await slow.on_message()).json["result"]["content"][0]["text"] == "done"


async def test_a_draining_house_finishes_what_runs_and_refuses_what_comes() -> None:
    async with house() as one:
        line = await one.connect()
        await line.say(one.call("slow"))
        await one.seen.started.wait()
        draining = asyncio.ensure_future(one.endpoint.drain(30, asyncio.Event()))
        reply = await one.ask(one.call("echo", {"text": "x"}))
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        one.seen.release.set()
        assert (await line.on_message()).json["result"]["content"][0]["text"] == "done"
        await draining


async def test_the_same_bytes_in_any_pieces_are_the_same_request() -> None:
    async with house() as one:
        raw = one.call("echo", {"text": "pieces"})
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        for start in range(0, len(raw), 7):
            writer.write(raw[start : start + 7])
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()


@pytest.mark.requirement("modern/http/version-header-unsupported", "legacy/http/version-header-400")
async def test_an_unknown_version_is_rejected_with_the_supported_ones_in_both_eras() -> None:
    async with house() as one:
        raw = one.post(request("tools/list", {"_meta": envelope("v999")}), mirror("tools/list", version="v999"))
        session = {**await one.open_session(), "mcp-protocol-version": "v999"}
        for ask in (raw, one.post(PLAIN, session)):
            reply = await one.ask(ask)
            assert (reply.status, reply.json["error"]["code"]) == (400, -32022)
            assert MODERN in reply.json["error"]["data"]["supported"]
            assert reply.json["error"]["data"]["requested"] == "v999"
