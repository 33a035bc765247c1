"""Counts the instructions of one call: `.venv/bin/python bench/instructions.py [WAY …] [--profile FILE]`; needs valgrind.

Instructions do not depend on what else the machine does, so two versions of the server can be compared by them. They leave
out the kernel and the misses of the caches. The server is warmed up first: the interpreter specializes code that it repeats.
"""

from __future__ import annotations

import argparse
import contextlib
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
from processes import Listening, Server, command, free_port
from routes import TOOL, TOOLS, Downstream, our_config, our_entry, wait_until_listed

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
    "steps": "ten progress events, 2026-07-28",
    "steps-legacy": "ten progress events, 2025-11-25",
    "raw-steps": "ten progress events of a bare application on uvicorn",
    "hop": "2026-07-28 through a gateway to our board on HTTP",
    "hop-legacy": "2025-11-25 through a gateway to our board on HTTP",
    "hop-stdio": "2026-07-28 through a gateway to our board on stdio",
    "hop-stdio-legacy": "2025-11-25 through a gateway to our board on stdio",
}
SERVERS = {
    "console": ("board.py", "console"),
    "metrics": ("board.py", "metrics"),
    "asgi": ("board.py", "asgi"),
    "asgi-mixed": ("board.py", "asgi"),
    "raw": ("raw_asgi.py", "http"),
    "raw-steps": ("raw_asgi.py", "http"),
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
        streams = "steps" in way
        method, params = messages.STEPS if streams else messages.ADD
        if way.startswith("hop"):
            wait_until_listed(server, TOOLS)
            params = {**params, "name": TOOL}
        if not way.endswith(("legacy", "mixed")):
            return [cycle(messages.modern_posts(server.port, method, params, token=streams))] * CONNECTIONS
        sessions = [server.open_session() for _ in range(CONNECTIONS)]
        if way.endswith("mixed"):
            return [cycle(messages.mixed_posts(server.port, method, params, sessions))] * CONNECTIONS
        return [
            cycle(messages.legacy_posts(server.port, method, params, session, token=streams)) for session in sessions
        ]

    def run(self, turns: int) -> None:
        for _ in range(turns):
            os.kill(self._pid, signal.SIGSTOP)
            for line, requests in zip(self._lines, self._requests, strict=True):
                line.sendall(next(requests))
            os.kill(self._pid, signal.SIGCONT)
            for line in self._lines:
                answer = b""
                while not _is_whole(answer):
                    answer += line.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"the server answered {answer[:200]!r}")

    def close(self) -> None:
        for line in self._lines:
            line.close()


def _is_whole(answer: bytes) -> bool:
    """Whether a response is complete; some servers send its head first."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return body.endswith(b"0\r\n\r\n") if length is None else len(body) == int(length[1])


def count(way: str, python: str = sys.executable, source: str = "", profile: Path | None = None) -> int:
    """The instructions of one call, of the Pegboard in the folder `source` instead of the installed one."""
    with contextlib.ExitStack() as stack:
        counts = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "counts"
        port = free_port()
        valgrind = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--separate-threads=yes",
            f"--callgrind-out-file={counts}",
        ]
        words = [*valgrind, *serve_command(stack, way, port, python)]
        if source:
            # Only for the process that is counted: the server behind a gateway stays the same.
            words = ["env", f"PYTHONPATH={source}", *words]
        with Listening(way, port, words) as server:
            run_counted(server, way)
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


def run_counted(server: Listening, way: str) -> None:
    """Send the calls to a server under valgrind, and let it write what they took once it is warm."""
    server.wait()
    calls = Calls(server, way)
    calls.run(WARM_UP)
    _control(server.process.pid, "--instr=on")
    calls.run(TURNS)
    _control(server.process.pid, "--instr=off")
    _control(server.process.pid, "--dump")
    calls.close()


def serve_command(stack: contextlib.ExitStack, way: str, port: int, python: str) -> list[str]:
    """The command of the server that is counted; for a hop, the server behind it is started."""
    if not way.startswith("hop"):
        script, door = SERVERS.get(way, ("board.py", "http"))
        return command(script, door, str(port), "2", python=python)
    downstream = Downstream("board.py", "stdio")
    if "stdio" not in way:
        server = stack.enter_context(Server("board.py", "http", TOOLS, python))
        server.wait()
        downstream = Downstream("board.py", "http", server.port)
    version = messages.LEGACY if way.endswith("legacy") else messages.MODERN
    config = our_config({"one": our_entry(downstream, version, python)})
    return command("gateway.py", str(port), config, python=python)


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
    parser.add_argument(
        "--source", default="", help="count the Pegboard of this folder, such as the src of another clone"
    )
    parser.add_argument("--profile", type=Path, help="keep the counts of the last way here, for callgrind_annotate")
    options = parser.parse_args()
    # A dict with other hashes looks up its keys in other steps.
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for way in options.ways:
        print(f"{WAYS[way]:62} {count(way, options.python, options.source, options.profile):>9,}", flush=True)


if __name__ == "__main__":
    main()
