"""Says what a client left behind: tasks, sockets and pipes, processes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.waiting import until


def open_files() -> set[tuple[str, str]]:
    """The sockets, pipes and handles of processes that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:[pidfd]")):
            found.add((entry.name, target))
    return found


def children() -> set[str]:
    """The processes that this one started and that are not gone, zombies included."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except OSError:
            continue
    return found


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """What runs inside leaves no task, no socket, no pipe and no process behind."""
    tasks, files, started = asyncio.all_tasks(), open_files(), children()
    yield
    if not (asyncio.all_tasks() <= tasks and open_files() <= files):
        # Garbage may hold a task or a socket; most of the time there is none, and collecting takes long.
        gc.collect()
    await until(lambda: asyncio.all_tasks() <= tasks)
    await until(lambda: children() <= started)
    # Another test in this process may close what it had open before; nothing may have been added.
    await until(lambda: open_files() <= files)
