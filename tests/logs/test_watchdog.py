"""The watchdog of the event loop: it reports what held the loop, and leaves out what this process did not cause."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pegboard import Board, Client, Gateway
from pegboard.logs.watchdog import Delay, Tally, Watchdog, judge
from tests.gateway.test_gateway import configured, server
from tests.server_processes import PEGBOARD, PLAIN_PEGBOARD, ROOT, HttpChild
from tests.waiting import wait_until

HELD = re.compile(r"the event loop was blocked for (\S+) s .*")


class StallingChild(HttpChild):
    may_stall = True

    def __init__(self, *more: str, command: tuple[str, ...] = PEGBOARD) -> None:
        super().__init__(*more, target=ROOT / "tests" / "stalling_board.py", command=command)


def stalls(child: HttpChild) -> int:
    count: int = json.loads(child.get("/health")[1])["stalls"]["count"]
    return count


@pytest.fixture(scope="module", params=[PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    chosen: tuple[str, ...] = request.param
    return chosen


def held(child: HttpChild, tool: str, seconds: float = 0.6) -> str:
    """What is logged when a tool holds the loop."""
    child.text(tool, seconds=seconds)
    wait_until(lambda: HELD.search(child.said()) is not None)
    found = HELD.search(child.said())
    assert found is not None
    return found[0]


@pytest.mark.process
def test_a_tool_that_computes_on_the_loop_is_logged_counted_and_shown(command: tuple[str, ...]) -> None:
    with StallingChild(command=command) as child:
        assert stalls(child) == 0
        line = held(child, "compute")
        used = re.search(r"\(busy; ([\d.]+) s of CPU\)", line)
        assert used is not None, line
        assert float(used[1]) >= 0.6
        assert "by tool compute" in line
        assert re.search(r"tests/stalling_board\.py:\d+ compute", line)
        assert re.search(r"pegboard/execution/run\.py:\d+ Runner\.handler", line)
        assert "\n" not in line
        assert stalls(child) == 1
        shown = json.loads(child.get("/health")[1])["stalls"]
        assert shown["longest_seconds"] >= 0.6
        assert "\npegboard_loop_stalls_total 1\n" in child.text("scrape")


@pytest.mark.process
def test_a_tool_that_blocks_the_loop_is_said_to_wait() -> None:
    with StallingChild() as child:
        line = held(child, "wait", 1.0)
        assert "(waiting in a blocking call; 0.0" in line
        assert re.search(r"tests/stalling_board\.py:\d+ wait", line)


@pytest.mark.process
def test_a_tool_that_keeps_the_interpreter_lock_is_reported_too() -> None:
    with StallingChild() as child:
        line = held(child, "match", 0.3)
        assert "(busy; " in line
        assert "by tool match" in line
        assert re.search(r"tests/stalling_board\.py:\d+ backtrack", line)


@pytest.mark.process
def test_a_thread_that_holds_the_interpreter_lock_is_distinguished_from_the_loop() -> None:
    with StallingChild() as child:
        line = held(child, "match_in_thread", 0.3)
        assert "(waiting for another thread, which held the interpreter lock" in line


@pytest.mark.process
def test_a_process_that_was_stopped_did_not_stall() -> None:
    with StallingChild() as child:
        child.signal(signal.SIGSTOP)
        resumed = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > resumed)
        child.signal(signal.SIGCONT)
        # The watchdog judges in order: when this is counted, the time before was judged.
        held(child, "wait", 1.0)
        assert stalls(child) == 1
        assert len(HELD.findall(child.said())) == 1


@pytest.mark.process
def test_reports_are_few_and_every_stall_is_counted() -> None:
    with StallingChild() as child:
        for count in range(1, 4):
            child.text("wait", seconds=1.0)
            wait_until(lambda: stalls(child) == count)  # noqa: B023 — it is called at once
        assert len(HELD.findall(child.said())) == 1


@pytest.mark.process
def test_each_worker_watches_its_own_loop() -> None:
    with StallingChild("--workers", "2") as child:
        assert "by tool wait" in held(child, "wait", 1.0)


@pytest.mark.parametrize(
    ("delay", "overslept", "kind", "seconds"),
    [
        (Delay(1.0, 0.9, 0.9, 0.0), 0.0, "busy", 1.0),
        (Delay(1.0, 0.9, 0.9, 0.0), 0.9, "busy", 0.9),
        (Delay(1.0, 0.0, 0.0, 0.0), 0.0, "blocked", 1.0),
        (Delay(1.0, 0.0, 1.0, 0.0), 0.9, "locked", 1.0),
        # Stopped, suspended, or without a CPU.
        (Delay(9.0, 0.0, 0.0, 0.0), 8.9, None, 0),
        (Delay(1.0, 0.1, 0.1, 0.9), 0.1, None, 0),
        # Stopped, and then without a CPU.
        (Delay(1.6, 0.0, 0.0, 0.3), 1.1, None, 0),
        # Stopped for a part, and no other thread ran: nothing held the interpreter lock.
        (Delay(1.0, 0.0, 0.0, 0.0), 0.6, "blocked", 0.4),
        # Half of it is the machine's, and the rest is long enough.
        (Delay(1.0, 0.5, 0.5, 0.5), 0.1, "busy", 0.5),
    ],
)
def test_what_the_process_could_not_help_is_subtracted(
    delay: Delay, overslept: float, kind: str | None, seconds: float
) -> None:
    stall = judge(delay, None, overslept, 0.25)
    if kind is None:
        assert stall is None
    else:
        assert stall is not None
        assert (stall.kind, round(stall.seconds, 3)) == (kind, pytest.approx(seconds, abs=0.11))


class Script:
    """The clocks of a watchdog and its sleeps: each ends at a given time, after the heartbeats that come meanwhile."""

    def __init__(self, *sleeps: tuple[list[float], float]) -> None:
        self._sleeps = list(sleeps)
        self.now = 0.0
        self.beat: Callable[[], None] = lambda: None

    def wait(self, _pause: float) -> bool:
        if not self._sleeps:
            return True
        beats, end = self._sleeps.pop(0)
        for self.now in beats:
            self.beat()
        self.now = end
        return False

    def set(self) -> None:
        """The script ends by itself."""

    def monotonic(self) -> float:
        return self.now

    process_time = monotonic  # Another thread is busy all the time.

    def thread_time(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    "sleeps",
    [
        # A thread holds the lock from 0.16 to 0.6. The watchdog is due at 0.25.
        pytest.param([([0.05, 0.1], 0.125), ([0.15, 0.6], 0.601), ([0.65], 0.7)], id="the loop runs first"),
        pytest.param([([0.05, 0.1], 0.125), ([0.15], 0.6), ([0.601], 0.65)], id="the watchdog runs first"),
        # The same in two parts: the watchdog, and not the loop, runs between them.
        pytest.param([([0.05, 0.1], 0.125), ([0.15], 0.4), ([], 0.8), ([0.801], 0.85)], id="twice"),
    ],
)
async def test_a_thread_that_holds_the_lock_is_recognized_whoever_gets_it_next(
    sleeps: list[tuple[list[float], float]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(*sleeps)
    monkeypatch.setattr("pegboard.logs.watchdog.time", script)
    monkeypatch.setattr("pegboard.logs.watchdog._open_scheduling", lambda: None)
    watchdog = Watchdog(asyncio.get_running_loop(), 0.25, Tally())
    monkeypatch.setattr(watchdog, "_stopped", script)
    script.beat = watchdog._beat
    with watchdog:
        watchdog._thread.join()
    [line] = caplog.messages
    assert "(waiting for another thread, which held the interpreter lock" in line


async def test_the_server_behind_a_gateway_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.logs.watchdog.STILL_SECONDS", 0.3)
    board = Board("slow")

    @board.tool
    async def block() -> str:
        """Blocks the loop until the report is there."""
        wait_until(lambda: any("tool block, server calc" in message for message in caplog.messages))
        return "blocked"

    gateway = Gateway(configured(server("calc")), boards={"calc": board})
    await gateway.start()
    try:
        with Watchdog(asyncio.get_running_loop(), 0.1, Tally()):
            async with Client(gateway) as client:
                assert (await client.call("dev__calc__block", {})).text == "blocked"
    finally:
        await gateway.stop()


async def test_a_stall_that_does_not_end_is_reported_while_it_lasts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.logs.watchdog.STILL_SECONDS", 0.3)
    with Watchdog(asyncio.get_running_loop(), 0.1, Tally()):
        # Holds the loop until the report is there.
        wait_until(lambda: len(caplog.messages) > 0)
    assert re.match(
        r"the event loop has been blocked for \d+ s by task .*: .*waiting\.py:\d+ wait_until", caplog.messages[0]
    )


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nothing_is_left_when_it_stops() -> None:
    files = open_descriptors()
    with Watchdog(asyncio.get_running_loop(), 0.25, Tally()):
        assert "pegboard-watchdog" in {thread.name for thread in threading.enumerate()}
    assert "pegboard-watchdog" not in {thread.name for thread in threading.enumerate()}
    assert open_descriptors() == files
