"""Load on one server: by `wrk` where it is installed, else by a small client of our own."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from processes import CORES, HERE, Listening, pin

CONNECTIONS = 16
WRK = shutil.which("wrk")


@dataclass(frozen=True)
class Measured:
    """One round of one server: µs are the server's own CPU time per request."""

    rate: float
    cpu_us: float
    p50_us: float
    grown: int
    requests: int


def generator() -> str:
    """Which load generator is used."""
    return "wrk, one thread" if WRK else "bench/client.py (wrk is not installed)"


LONGER_SECONDS = 20.0


def warm_up(server: Listening, requests: list[bytes], seconds: float) -> None:
    """Let the server's interpreter see what it will be asked."""
    with _written(requests) as file:
        _by_client(server.port, seconds, CONNECTIONS, file)


def measure(server: Listening, requests: list[bytes], seconds: float, connections: int = CONNECTIONS) -> Measured:
    """Send the requests again and again for a while."""
    with _written(requests) as file:
        before, held = server.cpu_seconds(), server.memory()
        said = (_by_wrk if WRK else _by_client)(server.port, seconds, connections, file)
        used, grown = server.cpu_seconds() - before, server.memory() - held
    if not said["requests"] and not said["failed"] and seconds < LONGER_SECONDS:
        # The server, or a busy machine, was too slow for one response in this time.
        return measure(server, requests, LONGER_SECONDS, connections)
    if said["failed"] or not said["requests"]:
        raise RuntimeError(f"{server.name}: {said['failed']} of {said['requests']} requests failed")
    count = int(said["requests"])
    return Measured(count / said["seconds"], used / count * 1e6, said["p50"], grown, count)


@contextlib.contextmanager
def _written(requests: list[bytes]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".requests") as file:
        for request in requests:
            file.write(b"%08d" % len(request) + request)
        file.flush()
        yield file.name


def _by_wrk(port: int, seconds: float, connections: int, file: str) -> dict[str, float]:
    words = [str(WRK), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s"]
    words += ["-s", str(HERE / "load.lua"), f"http://127.0.0.1:{port}/mcp", "--", file]
    return _run(words, seconds)


def _by_client(port: int, seconds: float, connections: int, file: str) -> dict[str, float]:
    return _run([sys.executable, str(HERE / "client.py"), str(port), str(connections), str(seconds), file], seconds)


def _run(words: list[str], seconds: float) -> dict[str, float]:
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        pin(process.pid, CORES[1:])
        out, _ = process.communicate(timeout=seconds + 60)
    if process.returncode:
        raise RuntimeError(f"{words[0]} ended with {process.returncode}")
    said: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return said


def read_requests(file: Path) -> list[bytes]:
    """The requests in a file as `measure` writes it."""
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        end = at + 8 + int(data[at : at + 8])
        found.append(data[at + 8 : end])
        at = end
    return found
