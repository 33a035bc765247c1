"""MCP over stdio, in both eras, against a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Limits
from pegboard.transports.stdio import LineDoor
from tests.child import MODERN, PEGBOARD, PLAIN_PEGBOARD, ROUGH, Child, StdioChild, modern
from tests.waiting import until, wait_until


@pytest.fixture(scope="module", params=[PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def shared(request: pytest.FixtureRequest) -> Iterator[StdioChild]:
    """One server for all tests that leave it as they found it."""
    with StdioChild(*request.param, "run", ROUGH, "--stdio") as child:
        yield child


# -- the modern era --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/base/base-supported", "modern/versioning/discover")
def test_a_modern_client_discovers_lists_and_calls_without_a_handshake(shared: StdioChild) -> None:
    found = shared.request("server/discover", modern())["result"]
    assert found["resultType"] == "complete"
    assert MODERN in found["supportedVersions"]
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "rough"
    listed = shared.request("tools/list", modern())["result"]
    assert "add" in {tool["name"] for tool in listed["tools"]}
    called = shared.request("tools/call", modern({"name": "add", "arguments": {"a": 1, "b": 2}}))["result"]
    assert called["structuredContent"] == 3
    assert not called.get("isError", False)


def test_a_modern_client_has_no_ping(shared: StdioChild) -> None:
    assert shared.request("ping", modern())["error"]["code"] == -32601


@pytest.mark.requirement("modern/versioning/unsupported")
def test_a_revision_we_do_not_speak_is_refused_with_those_we_do(shared: StdioChild) -> None:
    params = {"_meta": {**modern()["_meta"], "io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    error = shared.request("tools/list", params)["error"]
    assert error["code"] == -32022
    assert MODERN in error["data"]["supported"]


def test_progress_comes_before_the_answer_and_under_its_token(shared: StdioChild) -> None:
    before = len(shared.messages)
    request_id = shared.start_call("steps", upto=3, token="t-1")
    shared.answer(request_id)
    *notices, answer = shared.messages[before:]
    assert [notice["params"]["progress"] for notice in notices] == [1, 2, 3]
    assert {notice["params"]["progressToken"] for notice in notices} == {"t-1"}
    assert answer["id"] == request_id


def test_nothing_is_told_to_a_caller_that_did_not_ask(shared: StdioChild) -> None:
    before = len(shared.messages)
    shared.answer(shared.start_call("steps", upto=3))
    assert len(shared.messages) == before + 1


@pytest.mark.requirement("modern/base/result-id", "modern/stdio/lines")
def test_ids_come_back_as_they_were_sent(shared: StdioChild) -> None:
    for request_id in ("a string", "7", 7, 0, -3, "", 2**60, 'quoted "id"\n', "日本"):
        answer = shared.answer(shared.start_call("add", a=1, b=1, as_id=request_id))
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)


# -- the legacy era --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("legacy/base/base-supported", "legacy/lifecycle/version-agreed", "legacy/ping/answered")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_legacy_client_shakes_hands_lists_calls_and_pings(shared: StdioChild, version: str) -> None:
    answer = shared.initialize(version)["result"]
    assert answer["protocolVersion"] == version
    assert answer["serverInfo"]["name"] == "rough"
    assert answer["instructions"] == "Handle with care."
    assert shared.request("ping")["result"] == {}
    assert shared.request("tools/list")["result"]["tools"]
    called = shared.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})["result"]
    assert called["content"] == [{"type": "text", "text": "3"}]
    assert "resultType" not in called
    assert ("structuredContent" in called) == (version >= "2025-06-18")


@pytest.mark.requirement("legacy/lifecycle/initialize-first")
def test_a_legacy_request_before_the_handshake_is_told_what_to_do() -> None:
    with StdioChild() as child:
        for method, params in (("tools/list", None), ("tools/call", {"name": "add"}), ("server/discover", None)):
            error = child.request(method, params)["error"]
            assert error["code"] == -32600
            assert "Send initialize first" in error["message"]
            assert MODERN in error["message"]
        assert child.request("ping")["result"] == {}
        child.initialize()
        assert child.request("tools/list")["result"]["tools"]


def test_both_eras_share_one_pipe(shared: StdioChild) -> None:
    shared.initialize()
    assert shared.call("add", a=1, b=2) == "3"
    assert shared.request("ping")["result"] == {}
    assert "resultType" not in shared.request("tools/list")["result"]
    assert shared.request("tools/list", modern())["result"]["resultType"] == "complete"


@pytest.mark.requirement("legacy/lifecycle/version-offered")
def test_an_unknown_revision_is_answered_with_our_newest_legacy_one(shared: StdioChild) -> None:
    assert shared.initialize("2031-01-01")["result"]["protocolVersion"] == "2025-11-25"


def test_batches_are_served_where_the_revision_has_them(shared: StdioChild) -> None:
    batch = [{"jsonrpc": "2.0", "id": f"b{number}", "method": "ping"} for number in range(3)]
    line = json.dumps([*batch, {"jsonrpc": "2.0", "method": "notifications/initialized"}, 5]).encode() + b"\n"
    shared.initialize("2025-03-26")
    shared.write(line)
    for one in batch:
        assert shared.answer(one["id"])["result"] == {}
    assert shared.next()["error"]["code"] == -32600
    shared.initialize("2025-11-25")
    shared.write(line)
    assert shared.next()["error"]["code"] == -32600


# -- many at once ----------------------------------------------------------------------------------------------------


def test_sixty_four_calls_are_in_flight_and_answered_in_any_order(shared: StdioChild) -> None:
    ids = [shared.start_call("hold" if n % 2 else "hold_thread", key=f"many-{n}") for n in range(64) if n % 2 or n < 40]
    assert shared.call("add", a=2, b=2) == "4"
    order = list(zip(ids, [n for n in range(64) if n % 2 or n < 40], strict=True))
    random.Random(3).shuffle(order)
    for request_id, n in order:
        shared.call("release", key=f"many-{n}")
        assert shared.answer(request_id)["result"]["content"][0]["text"].startswith(f"held many-{n}")


def test_an_id_in_flight_is_refused_and_its_call_goes_on(shared: StdioChild) -> None:
    shared.start_call("hold", key="twice", as_id="same")
    shared.call("begun", key="twice")
    shared.start_call("add", a=1, b=1, as_id="same")
    error = shared.next()
    assert error["id"] == "same"
    assert error["error"]["code"] == -32600
    assert "in flight" in error["error"]["message"]
    shared.messages.clear()
    shared.call("release", key="twice")
    assert shared.answer("same")["result"]["content"][0]["text"] == "held twice"
    shared.messages.clear()
    assert shared.answer(shared.start_call("add", a=1, b=1, as_id="same"))["result"]["structuredContent"] == 2
    shared.messages.clear()


@pytest.mark.requirement("modern/stdio/cancelled-silent")
@pytest.mark.parametrize("tool", ["hold", "hold_thread"])
def test_a_cancelled_call_is_not_answered(shared: StdioChild, tool: str) -> None:
    request_id = shared.start_call(tool, key=f"cancel-{tool}")
    shared.call("begun", key=f"cancel-{tool}")
    shared.notify("notifications/cancelled", {"requestId": request_id, "reason": "enough"})
    before = len(shared.messages)
    shared.call("release", key=f"cancel-{tool}")
    if tool == "hold_thread":
        shared.call("ended", key=f"cancel-{tool}")
    # Its id is free again, which says that the call is over.
    assert shared.answer(shared.start_call("add", a=1, b=1, as_id="after"))["result"]["structuredContent"] == 2
    assert request_id not in {message.get("id") for message in shared.messages[before:]}
    shared.messages.clear()


@pytest.mark.requirement("modern/stdio/cancelled-silent", "modern/progress/stops")
def test_a_thread_that_goes_on_after_its_call_was_cancelled_is_not_heard(shared: StdioChild) -> None:
    request_id = shared.start_call("chatter", key="chatter", token="chat")
    shared.call("begun", key="chatter")
    shared.notify("notifications/cancelled", {"requestId": request_id})
    assert shared.call("ended", key="chatter") == "true"
    assert shared.call("add", a=1, b=1) == "2"
    assert "chat" not in {message.get("params", {}).get("progressToken") for message in shared.messages}


@pytest.mark.requirement("modern/cancellation/late")
@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": 424242}, {"requestId": [1]}])
def test_a_cancellation_of_nothing_is_ignored(shared: StdioChild, params: dict[str, Any]) -> None:
    shared.notify("notifications/cancelled", params)
    before = len(shared.messages)
    assert shared.call("add", a=1, b=1) == "2"
    assert len(shared.messages) == before + 1


# -- the wire is ours ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern/stdio/stdout-clean", "legacy/stdio/stdout-clean")
@pytest.mark.parametrize("how", ["print", "system", "fd", "c", "original"])
def test_what_a_tool_writes_to_stdout_goes_to_stderr(shared: StdioChild, how: str) -> None:
    before = len(shared.messages)
    assert shared.call("noise", how=how) == "quiet"
    assert shared.call("add", a=1, b=1) == "2"
    assert len(shared.messages) == before + 2
    wait_until(lambda: "noise from" in shared.said())


def test_a_tool_that_reads_stdin_finds_nothing_there(shared: StdioChild) -> None:
    assert shared.call("ask_stdin") == "nothing there"


@pytest.mark.parametrize("tool", ["leave", "leave_async", "leave_behind"])
@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_a_tool_cannot_end_the_process(shared: StdioChild, tool: str, how: str) -> None:
    shared.call(tool, how=how)
    assert shared.call("add", a=1, b=1) == "2"
    assert shared.process.poll() is None


def test_the_text_of_an_exception_is_in_the_log_and_not_on_the_wire(shared: StdioChild) -> None:
    text = shared.call("fail", text="password=hunter2")
    assert "hunter2" not in text
    error_id = text.rpartition(" ")[2]
    wait_until(lambda: error_id in shared.said())
    assert "hunter2" in shared.said()
    assert shared.call("fail", text="no such user", told=True) == "no such user"


# -- bad lines -------------------------------------------------------------------------------------------------------

BAD = {
    "junk": (b"hello there", -32700),
    "half an object": (b'{"jsonrpc":"2.0","id":1', -32700),
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    "a number too long": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}",
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "id a list": (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
    "no version": (b'{"id":1,"method":"ping"}', -32600),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
    "params that are a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
    "a string": (b'"ping"', -32600),
    "a number": (b"17", -32600),
    "an array": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "a member twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
    "a line too long": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * 1_200_000 + b'"}}', -32600),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_answered_and_the_next_is_served(shared: StdioChild, name: str) -> None:
    line, code = BAD[name] if isinstance(BAD[name], tuple) else (BAD[name], -32700)
    shared.initialize("2025-11-25")
    shared.write(line + b"\n")
    answer = shared.next()
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert answer.get("id", 1) in (1, 2)
    assert shared.call("add", a=1, b=1) == "2"
    shared.messages.clear()


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\t"])
def test_empty_lines_and_carriage_returns_do_no_harm(shared: StdioChild, line: bytes) -> None:
    before = len(shared.messages)
    shared.write(line + b"\n" + json.dumps({"jsonrpc": "2.0", "id": "crlf", "method": "ping"}).encode() + b"\r\n")
    assert shared.answer("crlf")["result"] == {}
    assert len(shared.messages) == before + 1
    shared.messages.clear()


def test_lines_may_come_in_pieces_and_together(shared: StdioChild) -> None:
    lines = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping", "params": {"text": "ü" * number}}).encode()
        + b"\n"
        for number in range(40)
    )
    for start in range(0, len(lines), 37):
        shared.write(lines[start : start + 37])
    for number in range(40):
        assert shared.answer(f"p{number}")["result"] == {}


def test_long_lines_are_thrown_away_and_memory_stays_flat() -> None:
    with StdioChild() as child:
        child.call("add", a=1, b=1)
        child.write(b'"' + b"x" * 20_000_000 + b'"\n')
        assert child.next()["error"]["code"] == -32600
        before = int(child.call("memory"))
        for _ in range(4):
            child.write(b'"' + b"x" * 20_000_000 + b'"\n')
            assert child.next()["error"]["code"] == -32600
        assert int(child.call("memory")) - before < 8_000_000


# -- back-pressure ---------------------------------------------------------------------------------------------------


def test_a_peer_that_does_not_read_is_not_read_either() -> None:
    with StdioChild(read=False) as child:
        assert child.process.stdin is not None
        os.set_blocking(child.process.stdin.fileno(), False)
        line = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "tools/call",
                "params": modern({"name": "big", "arguments": {"size": 10_000}}),
            }
        )
        sent, partial, quiet_since = 0, b"", time.monotonic()
        # A second without a byte taken: the server has stopped reading.
        while time.monotonic() - quiet_since < 1.0:
            assert sent < 20_000, "requests are taken without end from a peer that reads nothing"
            data = partial or line.replace('"id": 0', f'"id": {sent}').encode() + b"\n"
            try:
                partial = data[os.write(child.process.stdin.fileno(), data) :]
            except BlockingIOError:
                partial = data
                time.sleep(0.005)
                continue
            quiet_since = time.monotonic()
            sent += not partial
        os.set_blocking(child.process.stdin.fileno(), True)
        child.read()
        if partial:
            child.write(partial)
            sent += 1
        for number in range(sent):
            assert len(child.answer(number)["result"]["content"][0]["text"]) == 10_000


# -- the end ---------------------------------------------------------------------------------------------------------


def test_the_end_of_stdin_ends_the_process_once_all_is_answered() -> None:
    with StdioChild() as child:
        ids = [child.start_call("big", size=200_000) for _ in range(20)]
        waiting = child.start_call("hold", key="end")
        child.start_call("release", key="end")
        child.hang_up()
        answers = {message["id"]: message for message in child.rest()}
        assert {*ids, waiting} <= answers.keys()
        assert all("result" in answer for answer in answers.values())
        assert child.wait() == 0


def test_the_last_line_needs_no_line_break() -> None:
    with StdioChild() as child:
        child.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        child.hang_up()
        assert child.rest() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        assert child.wait() == 0


def test_a_call_that_outlives_the_drain_is_answered_with_an_error() -> None:
    with StdioChild(ROUGH_DRAIN="0.2") as child:
        ids = [child.start_call("hold", key="never"), child.start_call("hold_thread", key="never")]
        child.call("begun", key="never")
        child.hang_up()
        answers = {message["id"]: message for message in child.rest()}
        assert set(answers) == set(ids)
        assert all("shutting down" in answer["error"]["message"] for answer in answers.values())
        assert child.wait() == 0


def test_sigterm_drains_and_refuses_what_comes_after() -> None:
    with StdioChild() as child:
        waiting = child.start_call("hold", key="drain")
        child.call("begun", key="drain")
        child.signal(signal.SIGTERM)

        def refused() -> bool:
            return "error" in child.answer(child.start_call("add", a=1, b=1))

        wait_until(refused)
        child.signal(signal.SIGTERM)
        answers = {message["id"]: message for message in child.rest()}
        assert "shutting down" in answers[waiting]["error"]["message"]
        assert child.wait() == 0


def test_a_peer_that_stops_listening_ends_the_process() -> None:
    with StdioChild(read=False) as child:
        child.start_call("hold", key="nobody")
        assert child.process.stdout is not None
        child.process.stdout.close()
        child.start_call("big", size=10)
        child.hang_up()
        assert child.wait() == 0


def test_stdin_may_be_a_file_and_stdout_too(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    lines = [
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": n,
                "method": "tools/call",
                "params": modern({"name": "add", "arguments": {"a": n, "b": 1}}),
            }
        )
        for n in range(2000)
    ]
    source.write_text("\n".join([*lines, "junk"]))
    with (
        source.open("rb") as read,
        target.open("wb") as written,
        Child(*PEGBOARD, "run", ROUGH, "--stdio", stdin=read, stdout=written) as child,
    ):
        assert child.wait() == 0
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(answers) == 2001
    assert {a["id"]: a["result"]["structuredContent"] for a in answers if "id" in a} == {n: n + 1 for n in range(2000)}


def test_nothing_on_stdin_ends_at_once() -> None:
    with Child(*PEGBOARD, "run", ROUGH, "--stdio", stdin=subprocess.DEVNULL) as child:
        assert child.wait() == 0


def test_a_board_that_runs_itself_serves_stdio_on_a_pipe_and_says_so() -> None:
    with StdioChild(sys.executable, ROUGH) as child:
        assert child.call("add", a=1, b=2) == "3"
        assert "serving stdio" in child.said()
        child.hang_up()
        assert child.wait() == 0


# -- whatever comes --------------------------------------------------------------------------------------------------


class Pipe(asyncio.WriteTransport):
    """A pipe that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def write(self, data: Any) -> None:
        self.lines.append(json.loads(bytes(data)))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


WORDS = st.sampled_from(["jsonrpc", "id", "method", "params", "name", "arguments", "_meta", "cursor", "requestId", "x"])

SCRAPS = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0")},
        optional={
            "id": st.integers() | st.text(max_size=4) | st.none() | st.floats(),
            "method": st.sampled_from(["ping", "initialize", "tools/list", "tools/call", "notifications/cancelled"]),
            "params": st.dictionaries(
                WORDS, st.none() | st.integers() | st.text(max_size=4) | st.just(modern()["_meta"])
            ),
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(SCRAPS, max_size=6), st.integers(1, 50))
async def test_whatever_comes_the_next_line_is_served(scraps: list[bytes], size: int) -> None:
    loop = asyncio.get_running_loop()
    board, pipe = Board(), Pipe()
    door = LineDoor(board.handler, board.info, Limits(json_depth=8), loop)
    door.line.connection_made(pipe)
    sent = b"".join(scrap + b"\n" for scrap in scraps) + b'{"jsonrpc":"2.0","id":"last","method":"ping"}\n'
    for start in range(0, len(sent), size):
        door.data_received(sent[start : start + size])
    await until(lambda: any(line.get("id") == "last" for line in pipe.lines))
    assert len(pipe.lines) <= len(scraps) + 1
    assert all(("result" in line) != ("error" in line) for line in pipe.lines)
    assert "Internal error" not in str(pipe.lines)
