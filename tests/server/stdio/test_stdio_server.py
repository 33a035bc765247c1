"""MCP over stdio, in both eras, against a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
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
from pegboard.server.stdio.stdio_server import StdioServer
from tests.server_processes import PEGBOARD, PLAIN_PEGBOARD, ROUGH, Child, StdioChild, modern
from tests.waiting import until, wait_until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=[PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def shared(request: pytest.FixtureRequest) -> Iterator[StdioChild]:
    """One server for all tests that leave it as they found it."""
    with StdioChild(*request.param, "run", ROUGH, "--stdio") as child:
        yield child


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

# What another transport answers in its own way.
BAD = {
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700),
    "a line too long": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * 1_200_000 + b'"}}', -32600),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_answered_and_the_next_is_served(shared: StdioChild, name: str) -> None:
    line, code = BAD[name]
    shared.write(line + b"\n")
    assert shared.next()["error"]["code"] == code
    assert shared.call("add", a=1, b=1) == "2"
    shared.messages.clear()


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


@pytest.mark.parametrize("end", ["end of input", "SIGTERM"])
def test_a_call_in_flight_does_not_keep_the_process_for_long(end: str) -> None:
    with StdioChild(ROUGH_DRAIN="600") as child:
        held = child.start_call("hold", key="never")
        child.call("begun", key="never")
        if end == "SIGTERM":
            child.signal(signal.SIGTERM)
        else:
            child.hang_up()
        answers = {message["id"]: message for message in child.rest()}
        assert "shutting down" in answers[held]["error"]["message"]
        assert child.wait() == 0


def test_the_time_to_finish_calls_is_an_option() -> None:
    with StdioChild(PEGBOARD_DRAIN="600") as child:
        held = child.start_call("pause", key="late", seconds=4)
        child.call("begun", key="late")
        child.hang_up()
        assert {message["id"]: message for message in child.rest()}[held]["result"]["content"][0]["text"] == "paused"
        assert child.wait() == 0


def test_sigterm_drains_and_refuses_what_comes_after() -> None:
    with StdioChild(PEGBOARD_DRAIN="600") as child:
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
    door = StdioServer(board.handler, board.info, Limits(json_depth=8), loop)
    door.line.connection_made(pipe)
    sent = b"".join(scrap + b"\n" for scrap in scraps) + b'{"jsonrpc":"2.0","id":"last","method":"ping"}\n'
    for start in range(0, len(sent), size):
        door.data_received(sent[start : start + size])
    await until(lambda: any(line.get("id") == "last" for line in pipe.lines))
    assert len(pipe.lines) <= len(scraps) + 1
    assert all(("result" in line) != ("error" in line) for line in pipe.lines)
    assert "Internal error" not in str(pipe.lines)
