"""Opens what a board consists of before its first call, and closes it after the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pegboard.execution.lifespans import Lifespans
from pegboard.execution.threads import Threads
from pegboard.hooks.lifecycle import Lifecycle
from pegboard.stores.cluster import SharedStore


class MountedLifetime(Protocol):
    """The lifetime of a mounted board, or of a server that stands for one."""

    @property
    def opens(self) -> bool:
        """Whether something has to be opened before the first request."""

    async def share(self, shared: SharedStore) -> None:
        """Share with other processes what tools need."""

    async def open(self) -> None: ...

    async def wait_connected(self) -> None:
        """Wait until the servers have responded, for a limited time."""

    async def close(self) -> None: ...


class BoardLifetime:
    """The lifespans of a board, then the boards that it contains, then its middleware and tools.

    board: what a lifespan gets.
    contained: the lifetimes of mounted boards and of servers.
    share_own: shares what the tools of the board itself need.
    """

    def __init__(
        self,
        board: object,
        lifespans: Lifespans,
        hooks: Lifecycle,
        threads: Threads,
        contained: Callable[[], Sequence[MountedLifetime]],
        share_own: Callable[[SharedStore], Coroutine[Any, Any, None]],
    ) -> None:
        self._board = board
        self._lifespans = lifespans
        self._hooks = hooks
        self._threads = threads
        self._contained = contained
        self._share_own = share_own

    @property
    def opens(self) -> bool:
        """Whether something has to be opened before the first request."""
        here = bool(self._lifespans) or self._hooks.has_hooks
        return here or any(inner.opens for inner in self._contained())

    @property
    def is_open(self) -> bool:
        return self._lifespans.started

    async def share(self, shared: SharedStore) -> None:
        """Share with other processes what the tools of this board and of mounted ones need."""
        await self._share_own(shared)
        for inner in self._contained():
            await inner.share(shared)

    async def open(self) -> None:
        """Open everything; what was opened before a failure is closed again."""
        await self._lifespans.start(self._board)
        opened: list[MountedLifetime] = []
        try:
            for inner in self._contained():
                await inner.open()
                opened.append(inner)
        except BaseException:
            await _close_all(opened)
            await self._lifespans.stop()
            raise
        await self._hooks.start()

    async def wait_connected(self) -> None:
        """Wait until the servers in this board and in mounted ones have responded: for all at the same time."""
        await asyncio.gather(*(inner.wait_connected() for inner in self._contained()))

    async def close(self) -> None:
        """Close in reverse."""
        await self._hooks.stop()
        await _close_all(self._contained())
        await self._lifespans.stop()
        self._threads.release()


async def _close_all(lifetimes: Sequence[MountedLifetime]) -> None:
    for inner in reversed(lifetimes):
        await inner.close()
