"""What observing calls costs: the server's CPU a call with the console idle and open, with metrics, tracing and logging.

`.venv/bin/python bench/observed.py [PROCESSES]` prints each as a ratio to a call that is not observed. Two processes of the same
server differ, so each process serves all ways, on a port each. They take turns in slices of a few milliseconds, and of each way the
undisturbed slices count, so that other programs on the machine matter little.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import messages
from processes import CORES, READY_SECONDS, ROOT, command, pin, stop

WAYS = {
    "bare": "not observed",
    "idle": "console, no page open",
    "open": "console, a page open",
    "stored": "history in a SQLite file, nobody looks",
    "audit": "audit log, records survive kill -9",
    "metrics": "metrics",
    "both": "console and metrics",
    "tracing": "tracing, spans to a batch processor",
    "logging": "a line of JSON for each call",
}
BUDGETS = {"idle": 1.05}
CONNECTIONS = 16
SLICE = 4
ROUNDS = 80
PROCESSES = 7


class Caller:
    """A few connections to one way; every request waits for its answer."""

    def __init__(self, port: int) -> None:
        self._requests = cycle(messages.modern_posts(port, *messages.ADD))
        self._lines = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(CONNECTIONS)]

    def call(self, turns: int) -> None:
        """Send one request on each connection, and read the answers, as often as that."""
        for _ in range(turns):
            for line, request in zip(self._lines, islice(self._requests, CONNECTIONS), strict=True):
                line.sendall(request)
            for line in self._lines:
                answer = line.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"the server answered {answer[:200]!r}")

    def close(self) -> None:
        for line in self._lines:
            line.close()


@contextlib.contextmanager
def watched(port: int) -> Iterator[None]:
    """An open page: a connection that reads the stream of events."""
    with socket.create_connection(("127.0.0.1", port)) as page:
        host = b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port
        page.sendall(b"GET /console/?token=bench" + host + b"\r\n")
        cookie = page.recv(8192).partition(b"set-cookie: ")[2].partition(b";")[0]
        page.sendall(b"GET /console/events" + host + b"Cookie: " + cookie + b"\r\n\r\n")
        page.recv(1024)
        page.setblocking(False)
        yield


def measure(processes: int, rounds: int, python: str = sys.executable) -> dict[str, list[float]]:
    """What each way costs, compared with calls that are not observed, in each process.

    The CPU µs of calls that are not observed are under `bare`.
    """
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(processes):
        ways = [*WAYS]
        # In another order, so that their objects are at other places in memory.
        random.Random(number).shuffle(ways)
        costs = _measure_process(ways, rounds, python)
        found["bare"].append(_undisturbed(costs["bare"]))
        for way in WAYS:
            if way != "bare":
                found[way].append(_undisturbed(costs[way]) / found["bare"][-1])
    return found


def _undisturbed(costs: list[float]) -> float:
    """The cost in slices that nothing else on the machine has disturbed: those of the first decile."""
    return sorted(costs)[len(costs) // 10]


def _measure_process(ways: list[str], rounds: int, python: str) -> dict[str, list[float]]:
    """CPU µs a call of each way, one figure a round."""
    costs: dict[str, list[float]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        told = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ports.json"
        process = subprocess.Popen(command("observed.py", str(told), *ways, python=python), cwd=ROOT)
        stack.callback(stop, process)
        pin(process.pid, CORES[:1])
        until = time.monotonic() + READY_SECONDS
        while not told.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("observed.py did not come up")
            time.sleep(0.02)
        ports: dict[str, int] = json.loads(told.read_text())
        clock = Path(f"/proc/{process.pid}/schedstat")
        if "open" in ports:
            stack.enter_context(watched(ports["open"]))
        callers = {way: Caller(port) for way, port in ports.items()}
        for caller in callers.values():
            stack.callback(caller.close)
            # Until the ring of the history is full.
            caller.call(130 if rounds > 1 else 1)
        for number in range(rounds):
            for way in ways if number % 2 else reversed(ways):
                before = _cpu_ns(clock)
                callers[way].call(SLICE)
                costs[way].append((_cpu_ns(clock) - before) / SLICE / CONNECTIONS / 1000)
    return costs


def _cpu_ns(clock: Path) -> int:
    """The CPU time of the thread that serves."""
    return int(clock.read_text().split()[0])


def tell(found: dict[str, list[float]]) -> None:
    print(f"\nobserved calls: CPU of a call that is not observed {median(found['bare']):.1f} µs")
    for way, ratios in found.items():
        if way != "bare":
            print(f"  {WAYS[way]:38} {median(ratios):6.3f} ×  ({min(ratios):.3f} to {max(ratios):.3f})")


def main(processes: int) -> bool:
    found = measure(processes, ROUNDS if processes > 1 else 1)
    tell(found)
    within = all(median(found[way]) <= budget for way, budget in BUDGETS.items())
    print(f"budget of {BUDGETS['idle']} × for a console without a page: {'kept' if within else 'EXCEEDED'}")
    return within


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else PROCESSES))
