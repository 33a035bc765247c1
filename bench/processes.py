"""Servers as processes: started on loopback, watched through /proc, always stopped."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import messages

HERE = Path(__file__).parent
ROOT = HERE.parent
NODE = ROOT / ".peers" / "bin" / "node"
READY_SECONDS = 60.0
# Load and server on one core take turns there for as long as both live, and what that costs is counted as the server's.
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def command(script: str, *words: str, python: str = sys.executable) -> list[str]:
    """How one of the servers is started."""
    runner = str(NODE) if script.endswith(".mjs") else python
    return [runner, str(HERE / "servers" / script), *words]


class Listening:
    """Any program on a port of its own."""

    def __init__(self, name: str, port: int, words: list[str]) -> None:
        self.name = name
        self.port = port
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT
        )
        pin(self.process.pid, CORES[:1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stop(self.process)

    def wait(self) -> None:
        """Until it takes connections."""
        until = time.monotonic() + READY_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        stop(self.process)
        said = self.process.stderr.read().decode() if self.process.stderr else ""
        raise RuntimeError(f"{self.name} did not come up:\n{said[-2000:]}")

    def ask(self, request: bytes) -> tuple[dict[str, str], dict[str, Any]]:
        """The headers and the last message of the answer to one request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection, method="POST")
            response.begin()
            body = response.read()
        if response.status not in (200, 202):
            raise RuntimeError(f"{self.name} answered {response.status}: {body[:500]!r}")
        events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
        text = events[-1] if events else body
        return {name.lower(): value for name, value in response.getheaders()}, json.loads(text or b"{}")

    def open_session(self) -> str:
        """A legacy session, past its handshake."""
        headers, _ = self.ask(messages.post(self.port, messages.write(*messages.INITIALIZE, 0), {}))
        session = headers["mcp-session-id"]
        shaken = {"MCP-Protocol-Version": messages.LEGACY, "Mcp-Session-Id": session}
        self.ask(messages.post(self.port, messages.write("notifications/initialized", {}, None), shaken))
        return session

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def memory(self) -> int:
        return memory(self.process.pid)


class Server(Listening):
    """One of the servers that are measured."""

    def __init__(self, script: str, door: str = "http", tools: int = 2, python: str = sys.executable) -> None:
        port = free_port()
        words = command(script, door, str(port), str(tools), python=python)
        super().__init__(f"{script} {door} with {tools} tools", port, words)


def pin(pid: int, cores: list[int]) -> None:
    """Keep a process to these cores, where there are others for the rest."""
    if len(CORES) > 1:
        os.sched_setaffinity(pid, cores)


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this process to the core of the servers."""
    pin(0, CORES[:1])
    try:
        yield
    finally:
        pin(0, CORES)


def cpu_seconds(pid: int) -> float:
    """What a process and its children have computed so far."""
    return sum(map(own_cpu_seconds, _family(pid)))


def own_cpu_seconds(pid: int) -> float:
    """What a process has computed so far, without its children; nothing for one that is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    return 0.0


def memory(pid: int) -> int:
    """The resident bytes of a process and its children."""
    return sum(map(own_memory, _family(pid)))


def own_memory(pid: int) -> int:
    """The resident bytes of a process, without its children; none for one that is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process, kindly at first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
