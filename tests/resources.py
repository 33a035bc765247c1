"""What this process holds: threads, child processes, file descriptors and entries of its temporary folder."""

# Strings in place of paths: all of it is read twice for each test.
# ruff: noqa: PTH115, PTH118, PTH123, PTH208
from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pytest

ROOT = f"{Path(__file__).resolve().parent.parent}/"
# The standard library, code without a file, and what runs every test.
FOREIGN = (sysconfig.get_path("stdlib"), "<", f"{ROOT}tests/loops.py")
FRAMES = 8
# Elsewhere only threads, tasks and temporary files are checked.
LINUX = sys.platform == "linux"

_thread_origins: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()
_child_origins: dict[int, str] = {}


class Resource(NamedTuple):
    """One of them; two snapshots of the same one are equal."""

    kind: str
    key: Any
    detail: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "thread":
                return f"the thread {self.key.name!r}, started at {_thread_origins.get(self.key, 'an unknown place')}"
            case "child process":
                origin = _child_origins.get(self.key, "an unknown place")
                return f"the child process {self.key} ({_command(self.key)}), started at {origin}"
            case _:
                return f"the {self.kind} {self.key} {self.detail}".rstrip()


def snapshot() -> set[Resource]:
    """All that this process holds now."""
    return {*_threads(), *_children(), *_descriptors(), *_temporary()}


def _threads() -> Iterator[Resource]:
    for thread in threading.enumerate():
        yield Resource("thread", thread)


def _children() -> Iterator[Resource]:
    if not LINUX or not _has_children():
        return
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                pids = file.read().split()
        except OSError:
            continue  # the thread has ended, and another one has its children
        for pid in pids:
            yield Resource("child process", int(pid))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "ended"
    return b" ".join(words).decode(errors="replace") or "ended, and nothing waited for it"


def _descriptors() -> Iterator[Resource]:
    if not LINUX:
        return
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue  # that of the listing itself
        yield Resource("socket" if target.startswith("socket:") else "file descriptor", int(entry), target)


def _temporary() -> Iterator[Resource]:
    folder = tempfile.gettempdir()
    for entry in os.listdir(folder):
        yield Resource("temporary file or folder", os.path.join(folder, entry))


# -- where threads and children come from --------------------------------------------------------------------------------


def note_origins(patch: pytest.MonkeyPatch, started: Callable[[Resource, Resource], None]) -> None:
    """Note for each thread and child process from here on which lines started it.

    `started` is called with each new thread and the one that starts it.
    """
    start, execute = threading.Thread.start, subprocess.Popen.__init__

    def start_noted(thread: threading.Thread) -> None:
        _thread_origins[thread] = _origin(sys._getframe(1))
        started(Resource("thread", thread), Resource("thread", threading.current_thread()))
        start(thread)

    def execute_noted(process: Any, *args: Any, **options: Any) -> None:
        execute(process, *args, **options)
        _child_origins[process.pid] = _origin(sys._getframe(1))

    patch.setattr(threading.Thread, "start", start_noted)
    patch.setattr(subprocess.Popen, "__init__", execute_noted)


def _origin(frame: FrameType | None) -> str:
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES:
        file = frame.f_code.co_filename
        if not file.startswith(FOREIGN) and "site-packages" not in file:
            lines.append(f"{file.removeprefix(ROOT)}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called from ".join(lines) or "a place in a library"
