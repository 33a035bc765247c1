"""Counts the instructions of one call: `.venv/bin/python bench/instructions.py [WAY …] [--profile FILE]`; needs valgrind.

Instructions do not depend on what else the machine does, so two versions of the server can be compared by them. They leave
out the kernel and the misses of the caches. The server is warmed up first: the interpreter specializes code that it repeats.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import messages
from processes import Listening, command, free_port

CONNECTIONS = 16
WARM_UP = 100
TURNS = 60

WAYS = {
    "modern": "tools/call 2026-07-28",
    "legacy": "tools/call 2025-11-25, a session for each connection",
    "mixed": "tools/call 2025-11-25, 16 sessions mixed",
    "console": "tools/call 2026-07-28, console without a page",
    "metrics": "tools/call 2026-07-28, metrics",
    "asgi": "tools/call 2026-07-28, mounted under uvicorn",
    "asgi-mixed": "tools/call 2025-11-25, 16 sessions mixed, mounted under uvicorn",
    "raw": "a bare application on uvicorn",
}
SERVERS = {
    "console": ("board.py", "console"),
    "metrics": ("board.py", "metrics"),
    "asgi": ("board.py", "asgi"),
    "asgi-mixed": ("board.py", "asgi"),
    "raw": ("raw_asgi.py", "http"),
}


class Calls:
    """Connections that send one request each and then read the responses, turn by turn.

    The server is stopped while they send, so that it always finds all requests of a turn at once.
    """

    def __init__(self, server: Listening, way: str) -> None:
        self._pid = server.process.pid
        self._lines = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(CONNECTIONS)]
        self._requests = self._prepare(server, way)

    def _prepare(self, server: Listening, way: str) -> list[cycle[bytes]]:
        """The requests of each connection."""
        if way not in ("legacy", "mixed", "asgi-mixed"):
            return [cycle(messages.modern_posts(server.port, *messages.ADD))] * CONNECTIONS
        sessions = [server.open_session() for _ in range(CONNECTIONS)]
        if way != "legacy":
            return [cycle(messages.mixed_posts(server.port, *messages.ADD, sessions))] * CONNECTIONS
        return [cycle(messages.legacy_posts(server.port, *messages.ADD, session)) for session in sessions]

    def run(self, turns: int) -> None:
        for _ in range(turns):
            os.kill(self._pid, signal.SIGSTOP)
            for line, requests in zip(self._lines, self._requests, strict=True):
                line.sendall(next(requests))
            os.kill(self._pid, signal.SIGCONT)
            for line in self._lines:
                answer = line.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"the server answered {answer[:200]!r}")

    def close(self) -> None:
        for line in self._lines:
            line.close()


def count(way: str, python: str = sys.executable, profile: Path | None = None) -> int:
    """The instructions of one call."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        port = free_port()
        script, door = SERVERS.get(way, ("board.py", "http"))
        valgrind = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--separate-threads=yes",
            f"--callgrind-out-file={counts}",
        ]
        words = [*valgrind, *command(script, door, str(port), "2", python=python)]
        with Listening(way, port, words) as server:
            server.wait()
            calls = Calls(server, way)
            calls.run(WARM_UP)
            _control(server.process.pid, "--instr=on")
            calls.run(TURNS)
            _control(server.process.pid, "--instr=off")
            _control(server.process.pid, "--dump")
            calls.close()
        # Of the thread that serves: valgrind makes it so slow that the watchdog of the event loop reports stalls in its own.
        serving = counts.with_name("counts.1-01")
        listed = subprocess.run(
            ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(serving)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if profile is not None:
            shutil.copy(serving, profile)
    # Timers run by the clock: while valgrind makes calls slow, each call would be charged for more of them.
    return (_find(listed.stdout, "PROGRAM TOTALS") - _find(listed.stdout, "uv__run_timers")) // (TURNS * CONNECTIONS)


def _find(listed: str, name: str) -> int:
    """The instructions of a function with all that it calls."""
    found = re.search(rf"^ *([\d,]+) \([ \d.]+%\) .*\b{name}\b", listed, re.MULTILINE)
    return 0 if found is None else int(found[1].replace(",", ""))


def _control(pid: int, what: str) -> None:
    """Switch counting on or off, or write the counts."""
    subprocess.run(["callgrind_control", what, str(pid)], check=True, capture_output=True, timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ways", nargs="*", default=[*WAYS], metavar="WAY", help=f"one of {', '.join(WAYS)}")
    parser.add_argument("--python", default=sys.executable, help="the Python that serves")
    parser.add_argument("--profile", type=Path, help="keep the counts of the last way here, for callgrind_annotate")
    options = parser.parse_args()
    # A dict with other hashes looks up its keys in other steps.
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for way in options.ways:
        print(f"{WAYS[way]:62} {count(way, options.python, options.profile):>9,}", flush=True)


if __name__ == "__main__":
    main()
