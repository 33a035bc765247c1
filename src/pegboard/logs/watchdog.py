"""Watches an event loop from a thread and reports what blocked it.

Theory of operation. The loop runs a timer, the beat, a few times per `seconds`. A daemon thread checks that the beat is on
time. When it is late, the thread samples the stack of the loop's thread, so the code that holds the loop is seen while it
runs. When the beat runs again, it leaves a record of the delay: wall time, CPU time of the loop's thread and of the process,
and the time for which the loop's thread was ready but had no CPU. The thread judges the record and reports it.

Not every delay is a stall. A process that was stopped, on a machine that was suspended or overloaded, did not run at all: the
watchdog's own sleep was too long, and the kernel counted the wait of the loop's thread for a CPU. Both are subtracted (the
watchdog's own wait for a CPU is not part of what it overslept, or it would be subtracted twice), unless the process used
CPU time meanwhile: then another part of it (a C function that keeps the interpreter lock, a thread) delayed the watchdog too.
A C function that waits without CPU and without releasing the interpreter lock looks like a stopped process, and is not counted.

A call pays nothing for this. The beat takes a few microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct

from pegboard.call import Call

_log = logging.getLogger("pegboard.logs.watchdog")

Kind: TypeAlias = Literal["busy", "blocked", "locked"]

BEATS: Final = 5
"""Heartbeats per stall threshold; more of them detect stalls more precisely and cost more."""
LONGEST_PERIOD: Final = 1.0
STILL_SECONDS: Final = 5.0
"""A stall that lasts longer is reported before it ends, because it may never end."""
REPORT_SECONDS: Final = 10.0
"""At most one report in this time; the next one says how many were omitted."""
FRAMES: Final = 12
DEPTH: Final = 300
THREADS: Final = 4
NAME_LENGTH: Final = 100
JOIN_SECONDS: Final = 1.0

_HOME: Final = str(Path(__file__).parents[1])
_IDLE: Final = ("threading.py", "thread.py", "queue.py", "selectors.py")
"""Files of the standard library in which threads block."""
_KINDS: Final[dict[Kind, str]] = {
    "busy": "busy",
    "blocked": "waiting in a blocking call",
    "locked": "waiting for another thread, which held the interpreter lock",
}


class Tally:
    """The stalls of all watched loops of this process."""

    def __init__(self) -> None:
        self.watchers = 0
        self.count = 0
        self.seconds = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


TALLY: Final = Tally()


class StackSample(Struct, frozen=True):
    """What the loop's thread was doing at one moment, innermost frame first."""

    task: str
    tool: str
    server: str
    frames: tuple[str, ...]
    threads: tuple[str, ...]


class Delay(Struct, frozen=True):
    """The time between two heartbeats that came later than planned."""

    seconds: float
    cpu: float
    process_cpu: float
    unscheduled: float


class Stall(Struct, frozen=True):
    """A delay that was caused by this process."""

    seconds: float
    cpu: float
    kind: Kind
    sample: StackSample | None


class _Beat(Struct, frozen=True):
    number: int
    at: float
    cpu: float
    process_cpu: float
    unscheduled: float


class Watchdog:
    """Watches the loop that runs in the current thread, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, tally: Tally = TALLY) -> None:
        self._loop = loop
        self._seconds = seconds
        self._period = min(seconds / BEATS, LONGEST_PERIOD)
        self._tally = tally
        self._delays: deque[Delay] = deque(maxlen=100)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pegboard-watchdog", daemon=True)
        self._reported = -REPORT_SECONDS
        self._left_out = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start watching; called in the thread that will run the loop."""
        self._loop_thread = threading.get_ident()
        self._scheduling = _open_scheduling()
        self._last = self._read_clocks(0)
        self._timer = self._loop.call_later(self._period, self._beat)
        self._tally.watchers += 1
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; called in the same thread."""
        self._timer.cancel()
        self._stopped.set()
        self._thread.join(JOIN_SECONDS)
        self._tally.watchers -= 1
        if self._scheduling is not None:
            os.close(self._scheduling)
            self._scheduling = None

    # -- in the loop's thread --------------------------------------------------------------------------------------

    def _beat(self) -> None:
        last, now = self._last, self._read_clocks(self._last.number + 1)
        if now.at - last.at > self._seconds:
            self._delays.append(
                Delay(
                    now.at - last.at,
                    now.cpu - last.cpu,
                    now.process_cpu - last.process_cpu,
                    now.unscheduled - last.unscheduled,
                )
            )
        self._last = now
        self._timer = self._loop.call_later(self._period, self._beat)

    def _read_clocks(self, number: int) -> _Beat:
        waited = _read_scheduling(self._scheduling)
        return _Beat(number, time.monotonic(), time.thread_time(), time.process_time(), waited)

    # -- in the watchdog's thread ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        scheduling = _open_scheduling()
        try:
            self._watch_until_stopped(scheduling)
        finally:
            if scheduling is not None:
                os.close(scheduling)

    def _watch_until_stopped(self, scheduling: int | None) -> None:
        seen, sample, overslept, reported = self._last, None, 0.0, False
        pause = self._period
        wake, waited = time.monotonic() + pause, _read_scheduling(scheduling)
        while not self._stopped.wait(pause):
            last, now, before, waited = self._last, time.monotonic(), waited, _read_scheduling(scheduling)
            wake = min(wake + waited - before, now)
            if last is not seen:
                # What was overslept after the heartbeat is part of a delay that is not over yet.
                self._judge(sample, overslept + max(last.at - wake, 0.0))
                seen, sample, overslept, reported = last, None, 0.0, False
                wake = max(wake, last.at)
            overslept += now - wake
            if now - seen.at > self._seconds / 2:
                # Keep the first sample: a later one may show the loop after the stall, before its heartbeat.
                sample = sample or self._sample(seen)
                if not reported and now - seen.at - overslept > STILL_SECONDS:
                    reported = self._report_while_it_lasts(seen, now)
                pause = self._period
            else:
                # The next heartbeat is due long before.
                pause = max(seen.at + self._seconds / 2 - now, self._period)
            wake = now + pause
        self._judge(sample, overslept)

    def _judge(self, sample: StackSample | None, overslept: float) -> None:
        while self._delays:
            stall = judge(self._delays.popleft(), sample, overslept, self._seconds)
            if stall is None:
                _log.debug("a delay of the event loop is not counted: the process was not scheduled")
                continue
            self._tally.add(stall.seconds)
            self._report(stall)

    def _sample(self, seen: _Beat) -> StackSample | None:
        """What the loop's thread does, or None if the loop was free again before it could be sampled."""
        frames = sys._current_frames()
        frame, task = frames.pop(self._loop_thread, None), asyncio.current_task(self._loop)
        del frames[threading.get_ident()]
        try:
            sample = take_sample(frame, task, frames.values())
        except Exception:  # noqa: BLE001 — objects of a running call are looked at, in any state; the watch goes on
            return None
        return sample if self._last is seen else None

    def _report_while_it_lasts(self, seen: _Beat, now: float) -> bool:
        sample = self._sample(seen)
        if sample is not None:
            _log.warning("the event loop has been blocked for %.0f s%s", now - seen.at, describe_sample(sample))
        return sample is not None

    def _report(self, stall: Stall) -> None:
        now = time.monotonic()
        if now - self._reported < REPORT_SECONDS:
            self._left_out += 1
            return
        left_out, self._left_out, self._reported = self._left_out, 0, now
        more = f" [{left_out} more since the last report]" if left_out else ""
        _log.warning("the event loop was blocked for %.2f s%s%s", stall.seconds, describe(stall), more)


def judge(delay: Delay, sample: StackSample | None, overslept: float, seconds: float) -> Stall | None:
    """The stall behind a delay, or None if the process was not scheduled for most of it."""
    unscheduled = min(overslept + delay.unscheduled, max(delay.seconds - delay.process_cpu, 0.0))
    held = delay.seconds - unscheduled
    if held < seconds:
        return None
    kind: Kind = "blocked"
    if delay.cpu >= held / 2:
        kind = "busy"
    elif (sample is None or overslept >= held / 2) and delay.process_cpu - delay.cpu >= held / 2:
        # The watchdog could not run either, nor take a sample, and another thread did.
        kind = "locked"
    return Stall(held, delay.cpu, kind, sample)


def describe(stall: Stall) -> str:
    """The rest of a report, on one line: the kind of stall, its cause, and where in the code."""
    how = f" ({_KINDS[stall.kind]}; {stall.cpu:.2f} s of CPU)"
    if stall.sample is None:
        return how + "; it was free again before its code could be sampled"
    if stall.kind == "locked":
        return how + "; other threads: " + "; ".join(stall.sample.threads)
    return how + describe_sample(stall.sample)


def describe_sample(sample: StackSample) -> str:
    """What blocks the loop, and where in the code."""
    who = (("tool", sample.tool), ("server", sample.server), ("task", sample.task))
    by = ", ".join(f"{what} {name}" for what, name in who if name)
    return (f" by {by}" if by else "") + ": " + " < ".join(sample.frames)


def take_sample(
    frame: FrameType | None, task: asyncio.Task[Any] | None, others: Iterable[FrameType] = ()
) -> StackSample:
    """The cause as seen from the stacks of the loop's thread and of other threads."""
    frames: list[str] = []
    tool = server = ""
    for outer in _outwards(frame):
        if len(frames) < FRAMES:
            frames.append(_place(outer))
        if outer.f_code.co_filename.startswith(_HOME):
            tool = tool or _tool_in(outer)
            server = server or _server_in(outer)
    threads = (_place(outer) for outer in others if not outer.f_code.co_filename.endswith(_IDLE))
    return StackSample(_describe_task(task), tool, server, tuple(frames), tuple(islice(threads, THREADS)))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(DEPTH):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    code = frame.f_code
    path = Path(code.co_filename)
    with contextlib.suppress(ValueError, OSError):
        path = path.relative_to(Path(_HOME).parent if path.is_relative_to(_HOME) else Path.cwd())
    return f"{path}:{frame.f_lineno} {code.co_qualname}"


def _tool_in(frame: FrameType) -> str:
    """The name of the tool, if this frame runs a call."""
    if "call" not in frame.f_code.co_varnames:
        return ""
    call = frame.f_locals.get("call")
    return (call.name or call.method)[:NAME_LENGTH] if isinstance(call, Call) else ""


def _server_in(frame: FrameType) -> str:
    """The name of the server, if this is a method of a class with `names_server`."""
    if frame.f_code.co_varnames[:1] != ("self",):
        return ""
    owner: Any = frame.f_locals.get("self")
    return str(owner.name)[:NAME_LENGTH] if getattr(type(owner), "names_server", False) else ""


def _describe_task(task: asyncio.Task[Any] | None) -> str:
    if task is None:
        return ""
    coroutine = task.get_coro()
    return f"{task.get_name()} {getattr(coroutine, '__qualname__', '')}".rstrip()


def _open_scheduling() -> int | None:
    """The kernel's scheduling statistics of this thread, if available."""
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read_scheduling(descriptor: int | None) -> float:
    """Seconds for which the thread was ready to run and waited for a CPU, or 0 if that is not known."""
    if descriptor is None:
        return 0.0
    try:
        return int(os.pread(descriptor, 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
