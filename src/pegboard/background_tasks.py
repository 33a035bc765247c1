"""Background tasks: each has an owner, which keeps it, ends it, and waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeAlias

Task: TypeAlias = "asyncio.Task[Any]"


class OwnedTasks(set[Task]):
    """The running tasks of one owner; without a reference, the loop would drop them."""

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a task in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)


async def end_tasks(*tasks: Task | None) -> None:
    """Cancel tasks, and wait until they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
