"""How long it takes to start, and how much memory that holds, beside a bare interpreter with asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pipe import Child
from processes import ROOT, memory

BARE = "a bare interpreter with asyncio"


@dataclass(frozen=True)
class Start:
    """One start: seconds until it was done, or had answered; CPU seconds; what it held then, in bytes."""

    wall: float
    cpu: float
    resident: int | None = None


def commands(python: str = sys.executable) -> dict[str, list[str]]:
    """What is started and runs to its end."""
    return {
        BARE: [python, "-c", "import asyncio"],
        "import pegboard": [python, "-c", "import pegboard"],
        "from pegboard import Board": [python, "-c", "from pegboard import Board"],
        "pegboard --help": [str(Path(python).parent / "pegboard"), "--help"],
    }


def run(words: list[str]) -> Start:
    """Start a command and wait for its end."""
    began = time.perf_counter()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return Start(time.perf_counter() - began, used.ru_utime + used.ru_stime)


def answer(script: str, python: str = sys.executable) -> Start:
    """Start a stdio child and wait for its first answer."""
    began = time.perf_counter()
    with Child(script, python) as child:
        child.check()
        wall = time.perf_counter() - began
        held = memory(child.process.pid)
        assert child.process.stdin
        child.process.stdin.close()
        _, status, used = os.wait4(child.process.pid, 0)
        child.process.returncode = os.waitstatus_to_exitcode(status)
    return Start(wall, used.ru_utime + used.ru_stime, held)
