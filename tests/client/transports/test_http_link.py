"""The link to a URL: eras found out and found out again, sessions, streams, and what a bad server does to a call."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Awaitable
from typing import Any

import pytest

from pegboard import Client
from pegboard.client.links import era_cache
from pegboard.errors import (
    ConnectionLost,
    InvalidParams,
    MalformedMessage,
    MethodNotFound,
    PegboardError,
    ResponseTimeout,
    ServerFault,
    SetupError,
    Unauthorized,
    Unreachable,
)
from tests.client.fakes import (
    LEGACY,
    MODERN,
    Answer,
    Asked,
    data,
    discovered,
    error,
    faking,
    initialized,
    legacy,
    modern,
    reply,
    result,
    stream,
    text,
)
from tests.client.process_leftovers import nothing_left
from tests.loops import skip
from tests.stalls import no_stalls  # noqa: F401 — it is on for every test here
from tests.waiting import until


def calling(told: Answer) -> Answer:
    return modern(told)


async def hang(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


# -- eras ----------------------------------------------------------------------------------------------------------


async def test_a_modern_server_is_asked_once_what_it_is() -> None:
    async with nothing_left(), faking(modern(lambda asked, writer: reply(writer, text(asked, "hi")))) as fake:
        for _ in range(2):
            async with Client(fake.url) as client:
                assert (await client.call("any")).text == "hi"
                assert client.version == MODERN
        assert fake.methods == ["server/discover", "tools/list", "tools/call", "tools/list", "tools/call"]


async def test_a_modern_request_says_who_sends_it_in_its_body_and_its_headers() -> None:
    async with faking(modern(lambda asked, writer: reply(writer, text(asked, "hi")))) as fake:
        async with Client(fake.url, name="me", headers={"X-Key": "k"}, roots=[]) as client:
            await client.call("añb", {"x": 1}, progress=lambda *_: None)
        asked = fake.asked[-1]
        assert asked.headers["mcp-protocol-version"] == MODERN
        assert asked.headers["mcp-method"] == "tools/call"
        assert asked.headers["mcp-name"] == "=?base64?YcOxYg==?="
        assert asked.headers["x-key"] == "k"
        assert asked.headers["accept"] == "application/json, text/event-stream"
        meta = asked.message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "me"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {"roots": {}}
        assert meta["progressToken"] == asked.message["id"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", b""),
        ("400 Bad Request", b"Bad Request: no session"),
        ("400 Bad Request", {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "not initialized"}}),
        ("404 Not Found", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such method"}}),
        ("406 Not Acceptable", b""),
        ("500 Internal Server Error", b"oops"),
        ("200 OK", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "what?"}}),
        ("200 OK", {"jsonrpc": "2.0", "id": 1, "result": {}}),
    ],
)
async def test_anything_but_a_modern_answer_means_a_handshake(status: str, body: Any) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        if asked.message.get("method") == "server/discover":
            told = {**body, "id": body["id"] and asked.message["id"]} if isinstance(body, dict) else body
            reply(writer, told, status)
            return None
        return legacy(lambda asked, writer: reply(writer, text(asked, "old")))(asked, writer)

    async with nothing_left(), faking(answer) as fake, Client(fake.url) as client:
        assert client.version == LEGACY
        assert (await client.call("any")).text == "old"
        assert fake.asked[-1].headers["mcp-session-id"] == "s1"
        assert fake.asked[-1].headers["mcp-protocol-version"] == LEGACY
        assert "_meta" not in fake.asked[-1].message["params"]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_modern_error_means_a_modern_server(code: int) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            reply(writer, error(asked, code, "mismatch"), "400 Bad Request")
        else:
            reply(writer, result(asked, {"tools": []}))

    async with faking(answer) as fake, Client(fake.url) as client:
        assert client.version == MODERN
        assert await client.list_tools() == []


async def test_a_server_may_name_the_version_it_wants() -> None:
    refused: list[Asked] = []

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        if asked.message.get("method") == "server/discover":
            refused.append(asked)
            about = {"supported": ["2025-06-18"], "requested": MODERN}
            reply(writer, error(asked, -32022, "Unsupported protocol version", about), "400 Bad Request")
            return None
        if asked.message.get("method") == "initialize":
            told = initialized(asked)
            told["result"]["protocolVersion"] = asked.message["params"]["protocolVersion"]
            reply(writer, told)
            return None
        return legacy(hang)(asked, writer)

    async with faking(answer) as fake, Client(fake.url) as client:
        assert client.version == "2025-06-18"
        assert len(refused) == 1


async def test_a_server_without_a_common_version_is_reported() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, error(asked, -32022, "no", {"supported": ["2031-01-01"]}), "400 Bad Request")

    async with nothing_left(), faking(answer) as fake:
        with pytest.raises(MalformedMessage, match="supports 2031-01-01; this client supports 2026-07-28"):
            async with Client(fake.url):
                pass


async def test_a_server_that_changed_its_era_is_found_out_again() -> None:
    served: dict[str, Answer] = {"now": modern(lambda asked, writer: reply(writer, text(asked, "new")))}
    old = legacy(lambda asked, writer: reply(writer, text(asked, "old")))
    async with nothing_left(), faking(lambda asked, writer: served["now"](asked, writer)) as fake:
        async with Client(fake.url) as client:
            assert (await client.call("any")).text == "new"

            def fall_back(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
                if (
                    asked.method == "POST"
                    and "mcp-session-id" not in asked.headers
                    and asked.message.get("method") != "initialize"
                ):
                    reply(writer, b"no session", "400 Bad Request")
                    return None
                return old(asked, writer)

            served["now"] = fall_back
            assert (await client.call("any")).text == "old"
            assert client.version == LEGACY
        assert era_cache.recall(fake.url) == LEGACY
        served["now"] = modern(lambda asked, writer: reply(writer, text(asked, "new again")))

        def only_modern(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
            if asked.message.get("method") == "initialize":
                reply(writer, error(asked, -32022, "no handshake", {"supported": [MODERN]}), "400 Bad Request")
                return None
            return modern(lambda asked, writer: reply(writer, text(asked, "new again")))(asked, writer)

        served["now"] = only_modern
        async with Client(fake.url) as client:
            assert (await client.call("any")).text == "new again"


async def test_a_version_can_be_pinned() -> None:
    async with faking(legacy(lambda asked, writer: reply(writer, text(asked, "old")))) as fake:
        async with Client(fake.url, version=LEGACY) as client:
            assert (await client.call("any")).text == "old"
        assert "server/discover" not in fake.methods
    with pytest.raises(SetupError, match="Unknown revision '1999'"):
        Client("http://127.0.0.1/mcp", version="1999")


# -- sessions and streams of the older revisions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("404 Not Found", b""),
        ("404 Not Found", {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}),
        (
            "400 Bad Request",
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No valid session ID"}},
        ),
    ],
)
async def test_an_expired_session_is_reopened_and_the_request_is_resent(status: str, body: Any) -> None:
    sessions = iter(["one", "two", "three"])
    known: set[str] = set()

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        if asked.message.get("method") == "initialize":
            session = next(sessions)
            known.add(session)
            reply(writer, initialized(asked), Mcp_Session_Id=session)
            return None
        if asked.message.get("method") == "tools/call" and asked.headers["mcp-session-id"] not in known:
            reply(writer, body, status)
            return None
        return legacy(lambda asked, writer: reply(writer, text(asked, asked.headers["mcp-session-id"])))(asked, writer)

    async with nothing_left(), faking(answer) as fake, Client(fake.url, version=LEGACY) as client:
        assert (await client.call("any")).text == "one"
        known.clear()
        told = await asyncio.gather(*(client.call("any") for _ in range(8)))
        assert {one.text for one in told} == {"two"}
        assert fake.methods.count("initialize") == 2


async def test_a_session_that_is_lost_immediately_again_does_not_cause_a_loop() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        if asked.message.get("method") == "tools/call":
            reply(writer, b"", "404 Not Found")
            return None
        return legacy(hang)(asked, writer)

    async with nothing_left(), faking(answer) as fake, Client(fake.url, version=LEGACY) as client:
        with pytest.raises(MalformedMessage, match="answered 404"):
            await client.call("any")
        assert fake.methods.count("initialize") == 2


async def test_the_session_is_ended_with_the_client() -> None:
    async with faking(legacy(hang)) as fake:
        async with Client(fake.url, version=LEGACY):
            pass
        assert fake.asked[-1].method == "DELETE"
        assert fake.asked[-1].headers["mcp-session-id"] == "s1"


async def test_a_stream_that_breaks_off_is_resumed_no_earlier_than_it_asks_for() -> None:
    broken: list[float] = []

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            assert asked.headers["last-event-id"] == "e-2"
            resumed.append(time.monotonic())
            call = next(one for one in fake.asked if one.message.get("method") == "tools/call")
            stream(writer, data(text(call, "after all"), "e-3"))
        else:
            told = {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": asked.message["id"], "progress": 1},
            }
            stream(writer, b"id: e-1\nretry: 150\ndata:\n\n", data(told, "e-2"))
            broken.append(time.monotonic())
        writer.close()

    resumed: list[float] = []
    steps: list[float] = []
    async with nothing_left(), faking(legacy(answer)) as fake, Client(fake.url, version=LEGACY) as client:
        told = await client.call("any", progress=lambda done, *_: steps.append(done))
        assert (told.text, steps) == ("after all", [1])
        assert resumed[0] - broken[0] >= 0.149


async def test_a_stream_that_cannot_be_resumed_is_a_lost_call() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(
            writer,
            data({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}),
        )
        writer.close()

    async with nothing_left(), faking(legacy(answer)) as fake, Client(fake.url, version=LEGACY) as client:
        with pytest.raises(ConnectionLost, match="ended its stream"):
            await client.call("any")
        assert fake.methods.count("tools/call") == 1


async def test_what_a_server_says_on_its_own_stream_is_heard_and_answered() -> None:
    answered: asyncio.Queue[Any] = asyncio.Queue()

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> Awaitable[None] | None:
        if asked.method == "GET":
            ask = {"jsonrpc": "2.0", "id": "q1", "method": "roots/list"}
            odd = {"jsonrpc": "2.0", "id": "q2", "method": "no/such"}
            ping = {"jsonrpc": "2.0", "id": "q3", "method": "ping"}
            stream(writer, data(ask), data(odd), data(ping))
            return asyncio.sleep(30)
        if asked.method == "POST" and "method" not in asked.message:
            answered.put_nowait(asked.message)
            reply(writer, b"", "202 Accepted")
            return None
        return legacy(hang)(asked, writer)

    async with faking(answer) as fake, Client(fake.url, version=LEGACY, roots=["file:///a"]):
        told = {one["id"]: one for one in [await answered.get() for _ in range(3)]}
        assert told["q1"]["result"] == {"roots": [{"uri": "file:///a"}]}
        assert told["q2"]["error"]["code"] == -32601
        assert told["q3"]["result"] == {}


# -- servers that let us down --------------------------------------------------------------------------------------


def raw(body: bytes) -> Answer:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        writer.close()

    return answer


BAD: dict[str, tuple[Answer, type[ServerFault]]] = {
    "closes at once": (raw(b""), ConnectionLost),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\nContent-Ty"), ConnectionLost),
    "half a body": (raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), ConnectionLost),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9\r\n"), MalformedMessage),
    "endless head": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000), MalformedMessage),
    "many lines": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"), MalformedMessage),
    "no JSON": (lambda asked, writer: reply(writer, b"<h1>hi</h1>"), MalformedMessage),
    "no message": (lambda asked, writer: reply(writer, {"answer": 42}), MalformedMessage),
    "another id": (lambda asked, writer: reply(writer, {"jsonrpc": "2.0", "id": 999, "result": {}}), MalformedMessage),
    "null result": (lambda asked, writer: reply(writer, result(asked, None)), MalformedMessage),
    "not UTF-8": (lambda asked, writer: reply(writer, b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}'), MalformedMessage),
    "accepted": (lambda asked, writer: reply(writer, b"", "202 Accepted"), MalformedMessage),
    "stream of nothing": (lambda asked, writer: (stream(writer, b": x\n\n"), writer.close())[1], ConnectionLost),
    "stream of garbage": (lambda asked, writer: (stream(writer, b"data: {\n\n"), writer.close())[1], MalformedMessage),
    "broken gzip": (lambda asked, writer: reply(writer, b"\x1f\x8bno", Content_Encoding="gzip"), MalformedMessage),
    "unknown coding": (lambda asked, writer: reply(writer, b"x", Content_Encoding="br"), MalformedMessage),
    "server error": (lambda asked, writer: reply(writer, b"oops", "500 Internal Server Error"), MalformedMessage),
    "busy": (lambda asked, writer: reply(writer, b"later", "503 Service Unavailable", Retry_After="60"), Unreachable),
    "locked": (lambda asked, writer: reply(writer, b"", "401 Unauthorized", WWW_Authenticate="Bearer x"), Unauthorized),
    "forbidden": (lambda asked, writer: reply(writer, b"", "403 Forbidden"), Unauthorized),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [modern, legacy], ids=["modern", "legacy"])
@pytest.mark.parametrize("name", BAD)
async def test_a_server_that_misbehaves_is_a_clear_error_and_leaves_nothing(name: str, wrap: Any) -> None:
    bad, kind = BAD[name]
    async with nothing_left(), faking(wrap(bad)) as fake:
        version = MODERN if wrap is modern else LEGACY
        async with Client(fake.url, version=version, timeout=5) as client:
            with pytest.raises(kind, match=r"127\.0\.0\.1"):
                await client.call("any")
        # What may have been worked on is not sent twice.
        assert fake.methods.count("tools/call") == 1


@pytest.mark.parametrize("name", [name for name, (_, kind) in BAD.items() if kind is not Unreachable])
async def test_a_server_that_misbehaves_from_the_start_is_a_clear_error_too(name: str) -> None:
    bad, _ = BAD[name]
    async with nothing_left(), faking(bad) as fake:
        with pytest.raises(PegboardError, match=r"127\.0\.0\.1"):
            async with Client(fake.url, connect_timeout=5):
                pass


@pytest.mark.parametrize("wrap", [modern, legacy], ids=["modern", "legacy"])
async def test_a_server_that_hangs_is_given_up_at_the_deadline(wrap: Any) -> None:
    async with nothing_left(), faking(wrap(hang)) as fake:
        version = MODERN if wrap is modern else LEGACY
        async with Client(fake.url, version=version) as client:
            with pytest.raises(ResponseTimeout, match=r"no response to tools/call within 0\.2 s"):
                await client.call("any", timeout=0.2)


async def test_a_server_that_hangs_from_the_start_is_given_up_too() -> None:
    async with nothing_left(), faking(hang) as fake:
        with pytest.raises(ResponseTimeout, match=r"no response to initialize within 0\.2 s"):
            async with Client(fake.url, connect_timeout=0.2):
                pass


async def test_progress_is_news_but_not_for_ever() -> None:
    async def crawl(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        for step in range(4):
            params = {"progressToken": asked.message["id"], "progress": step}
            writer.write(data({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
            await writer.drain()
            await until(lambda: len(steps) > step)  # noqa: B023 — it is called in this round
            await skip(20)

    steps: list[float] = []
    async with nothing_left(), faking(modern(crawl)) as fake:
        async with Client(fake.url, timeout=30, max_timeout=70) as client:
            with pytest.raises(ResponseTimeout):
                await client.call("any", progress=lambda done, *_: steps.append(done))
        assert steps == [0, 1, 2, 3]


async def test_progress_that_decreases_or_belongs_to_another_request_is_not_reported() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        token = asked.message["id"]
        told = [(token, 1), (token, 1), (token, 0.5), ("other", 7), (token, 2), (token, "3")]
        events = [
            data(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": key, "progress": far},
                }
            )
            for key, far in told
        ]
        stream(writer, *events, data(text(asked, "done")))
        writer.close()

    steps: list[float] = []
    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        await client.call("any", progress=lambda done, *_: steps.append(done))
        assert steps == [1, 2]


async def test_an_unreachable_server_is_reported() -> None:
    async with faking(hang) as fake:
        url = fake.url
    async with nothing_left():
        with pytest.raises(Unreachable, match="Is the server running"):
            async with Client(url):
                pass


async def test_a_list_that_got_lost_is_asked_for_again_and_a_call_is_not() -> None:
    lost: list[str] = []

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        method = asked.message["method"]
        if method == "server/discover":
            reply(writer, discovered(asked))
        elif method not in lost:
            lost.append(method)
            writer.close()
        elif method == "tools/list":
            reply(
                writer,
                result(asked, {"tools": [{"name": "safe", "annotations": {"readOnlyHint": True}}, {"name": "any"}]}),
            )
        elif method == "tools/call":
            reply(writer, text(asked, "done"))

    async with nothing_left(), faking(answer) as fake, Client(fake.url) as client:
        assert len(await client.list_tools()) == 2
        with pytest.raises(ConnectionLost):
            await client.call("any")
        lost.remove("tools/call")
        assert (await client.call("safe")).text == "done"


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    refused: list[float] = []

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if not refused:
            refused.append(time.monotonic())
            reply(writer, b"", "503 Service Unavailable", Retry_After="1")
        else:
            refused.append(time.monotonic())
            reply(writer, text(asked, "now"))

    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        assert (await client.call("any")).text == "now"
        assert refused[1] - refused[0] > 0.9


async def test_an_error_of_the_server_is_raised_with_its_own_code_and_data() -> None:
    codes = {"a": (-32601, MethodNotFound), "b": (-32602, InvalidParams), "c": (-32002, InvalidParams)}

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        code = codes.get(asked.message["params"]["name"], (1234, None))[0]
        reply(writer, error(asked, code, "its own words", {"why": 7}))

    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        for name, (code, kind) in codes.items():
            with pytest.raises(kind, match="its own words") as refused:
                await client.call(name)
            assert (refused.value.code, refused.value.data) == (code, {"why": 7})  # type: ignore[attr-defined]
        with pytest.raises(PegboardError) as other:
            await client.call("z")
        assert other.value.code == 1234  # type: ignore[attr-defined]


# -- rounds of questions -------------------------------------------------------------------------------------------


async def test_rounds_echo_the_state_exactly_and_end() -> None:
    state = 'opaque " \\ é'

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        params = asked.message["params"]
        if "requestState" not in params:
            ask = {
                "method": "elicitation/create",
                "params": {"message": "?", "requestedSchema": {"properties": {"n": {"default": 5}}}},
            }
            reply(
                writer,
                result(asked, {"resultType": "input_required", "inputRequests": {"k": ask}, "requestState": state}),
            )
        else:
            reply(writer, text(asked, json.dumps([params["requestState"], params["inputResponses"]])))

    async with faking(modern(answer)) as fake, Client(fake.url, elicit=lambda asked: {}) as client:
        told = json.loads((await client.call("any")).text)
        assert told == [state, {"k": {"action": "accept", "content": {"n": 5}}}]
        first, second = (one.message for one in fake.asked[-2:])
        assert first["id"] != second["id"]


async def test_a_server_that_never_stops_asking_is_given_up() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, result(asked, {"resultType": "input_required", "requestState": "again"}))

    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        with pytest.raises(MalformedMessage, match="still asks for input after 16 rounds"):
            await client.call("any")
        assert fake.methods.count("tools/call") == 16


async def test_the_time_a_person_takes_to_answer_is_not_the_servers() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if "inputResponses" in asked.message["params"]:
            reply(writer, text(asked, "thanks"))
        else:
            ask = {"method": "elicitation/create", "params": {"message": "?"}}
            reply(writer, result(asked, {"resultType": "input_required", "inputRequests": {"k": ask}}))

    async def think(asked: Any) -> dict[str, Any]:
        await skip(50)
        return {}

    async with faking(modern(answer)) as fake, Client(fake.url, elicit=think, timeout=20, max_timeout=40) as client:
        assert (await client.call("any")).text == "thanks"


# -- headers that repeat arguments ---------------------------------------------------------------------------------


async def test_a_tool_whose_headers_changed_is_listed_and_called_again() -> None:
    annotation = {"name": "Old"}

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match asked.message["method"]:
            case "server/discover":
                reply(writer, discovered(asked))
            case "tools/list":
                part = {"type": "string", "x-mcp-header": annotation["name"]}
                tool = {"name": "t", "inputSchema": {"type": "object", "properties": {"r": part}}}
                reply(writer, result(asked, {"tools": [tool], "ttlMs": 60_000}))
            case _ if asked.headers.get(f"mcp-param-{annotation['name'].lower()}") == "eu":
                reply(writer, text(asked, "routed"))
            case _:
                reply(writer, error(asked, -32020, "Header mismatch"), "400 Bad Request")

    async with faking(answer) as fake, Client(fake.url) as client:
        assert (await client.call("t", {"r": "eu"})).text == "routed"
        annotation["name"] = "New"
        assert (await client.call("t", {"r": "eu"})).text == "routed"
        assert fake.methods.count("tools/list") == 2


async def test_one_tool_with_a_bad_annotation_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        bad = {
            "name": "bad",
            "inputSchema": {"type": "object", "properties": {"r": {"type": "object", "x-mcp-header": "R"}}},
        }
        reply(
            writer,
            discovered(asked)
            if asked.message["method"] == "server/discover"
            else result(asked, {"tools": [bad, {"name": "good"}]}),
        )

    async with faking(answer) as fake, Client(fake.url) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["good"]
        assert "'bad'" in caplog.text


# -- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [modern, legacy], ids=["modern", "legacy"])
async def test_what_a_stream_should_not_carry_is_logged_ever_more_rarely(
    wrap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd = data({"jsonrpc": "2.0", "id": "nobody's", "result": {}})

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(writer, odd * 1000, data(text(asked, "end")))
        writer.close()

    async with faking(wrap(answer)) as fake, Client(fake.url, version=MODERN if wrap is modern else LEGACY) as client:
        assert (await client.call("any")).text == "end"
    assert 0 < len([one for one in caplog.records if one.levelname == "WARNING"]) <= 10


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_answer_is_unpacked(coding: str) -> None:
    pack = gzip.compress if coding == "gzip" else zlib.compress

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, pack(json.dumps(text(asked, "x" * 5_000_000)).encode()), Content_Encoding=coding)

    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        assert len((await client.call("any")).text) == 5_000_000


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 100_000_000)

    async with (
        nothing_left(),
        faking(modern(lambda asked, writer: reply(writer, bomb, Content_Encoding="gzip"))) as fake,
        Client(fake.url) as client,
    ):
        with pytest.raises(MalformedMessage, match="more than 16777216 bytes"):
            await client.call("any")


@pytest.mark.parametrize("line", [b":\n", b'data: {"jsonrpc":"2.0","method":"x"}\n\n'], ids=["comments", "events"])
async def test_a_compressed_stream_of_small_events_does_not_hold_the_event_loop(line: bytes) -> None:
    packed = gzip.compress(line * (4_000_000 // len(line)))

    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(writer, packed, Content_Encoding="gzip")
        writer.close()

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url) as client:
        # In a task of its own: what a test's own task does is not measured.
        (told,) = await asyncio.gather(asyncio.create_task(client.call("any")), return_exceptions=True)
        assert isinstance(told, ConnectionLost)


async def test_a_compressed_stream_is_read_as_it_comes() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(wbits=31)
        stream(writer, Content_Encoding="gzip")
        step = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": asked.message["id"], "progress": 1},
        }
        writer.write(packer.compress(data(step)) + packer.flush(zlib.Z_SYNC_FLUSH))
        await writer.drain()
        await heard.wait()
        writer.write(packer.compress(data(text(asked, "end"))) + packer.flush())
        writer.close()

    heard = asyncio.Event()
    async with faking(modern(answer)) as fake, Client(fake.url) as client:
        assert (await client.call("any", progress=lambda *_: heard.set())).text == "end"


async def test_a_long_event_in_small_pieces_is_read_in_time() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        stream(writer)
        whole = data(text(asked, "x" * 10_000_000))
        for start in range(0, len(whole), 16_384):
            writer.write(whole[start : start + 16_384])
            await writer.drain()
        writer.close()

    async with faking(modern(answer)) as fake, Client(fake.url, timeout=20) as client:
        assert len((await client.call("any")).text) == 10_000_000


async def test_connections_are_kept_and_bounded() -> None:
    answer = modern(lambda asked, writer: reply(writer, text(asked, "hi")))
    async with nothing_left(), faking(answer) as fake, Client(fake.url) as client:
        for _ in range(20):
            await client.call("any")
        assert fake.connections == 1
        await asyncio.gather(*(client.call("any") for _ in range(500)))
        assert fake.connections <= 100


async def test_a_connection_that_its_server_closed_meanwhile_is_not_used_again() -> None:
    def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, text(asked, "hi"))
        asyncio.get_running_loop().call_soon(writer.close)

    async with nothing_left(), faking(modern(answer)) as fake, Client(fake.url, retries=0) as client:
        for _ in range(5):
            assert (await client.call("any")).text == "hi"
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("answer", "method"), [(modern, "server/discover"), (legacy, "ping")])
async def test_a_ping_is_sent_each_time_in_both_eras(answer: Any, method: str) -> None:
    async with faking(answer(lambda asked, writer: reply(writer, result(asked, {})))) as fake:
        async with Client(fake.url) as client:
            for _ in range(2):
                await client.ping()
        assert fake.methods.count(method) >= 2
        # The server that is gone does not respond.
    with pytest.raises(Unreachable):
        async with Client(fake.url, retries=0) as client:
            await client.ping()
