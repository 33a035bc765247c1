"""Load on a server over stdio: one request at a time, or many in flight."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Self

import messages
from processes import CORES, ROOT, command, cpu_seconds, on_one_core, pin, stop

# What a pipe holds. To get and give back a megabyte for each answer takes longer than our server's answer.
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Piped:
    """One round: round trips per second and the server's own CPU µs of each."""

    rate: float
    cpu_us: float


class Child:
    """A server that we hold by its stdin and stdout."""

    def __init__(self, script: str, python: str = sys.executable) -> None:
        self.name = script
        self.process = subprocess.Popen(
            command(script, "stdio", "0", "2", python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            bufsize=0,
        )
        pin(self.process.pid, CORES[:1])
        assert self.process.stdin
        assert self.process.stdout
        self._into, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._lines = [messages.modern(*messages.ADD, number) + b"\n" for number in messages.NUMBERS]
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        stop(self.process)
        self.process.stdout.close()

    def check(self) -> None:
        """See that the first answer is a right one."""
        os.write(self._into, self._take(1))
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._out, 65536)
            if not part:
                raise RuntimeError(f"{self.name} ended before its first answer")
            line += part
        if b'"text":"5' not in line.replace(b'": "', b'":"'):
            raise RuntimeError(f"{self.name} answered {line[:500]!r}")

    def measure(self, in_flight: int, seconds: float) -> Piped:
        """Keep so many requests in flight for a while; one at a time on the core of the server, since both never run at once."""
        with on_one_core() if in_flight == 1 else contextlib.nullcontext():
            return self._measure(in_flight, seconds)

    def _measure(self, in_flight: int, seconds: float) -> Piped:
        before, began = cpu_seconds(self.process.pid), time.perf_counter()
        until = began + seconds
        done = waiting = 0
        os.write(self._into, self._take(in_flight))
        waiting = in_flight
        while waiting:
            answered = os.read(self._out, READ_BYTES).count(b"\n")
            done += answered
            waiting -= answered
            if answered and time.perf_counter() < until:
                os.write(self._into, self._take(answered))
                waiting += answered
        took = time.perf_counter() - began
        return Piped(done / took, (cpu_seconds(self.process.pid) - before) / done * 1e6)

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._lines):
            self._at = 0
        taken = self._lines[self._at : self._at + count]
        self._at += count
        return taken[0] if count == 1 else b"".join(taken)
