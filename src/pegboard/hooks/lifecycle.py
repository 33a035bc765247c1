"""Starts and stops middleware and tools together with their boards.

Theory of operation. What is started is compared with what is attached, and the difference is started or stopped: when
the board starts and ends, and whenever middleware or a tool is added or removed meanwhile. What several boards share
starts with the first of them and stops with the last.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from pegboard.background_tasks import OwnedTasks
from pegboard.hooks.middleware import Middleware
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.middleware")

HOOK_SECONDS: Final = 5.0
"""How long a middleware or a tool may take to start or stop before the others continue without it."""

Startable: TypeAlias = Middleware | Tool


class Lifecycle:
    """What has been started for one board; `attached` lists all, in the order in which they start."""

    def __init__(self, attached: Callable[[], Iterable[Startable]]) -> None:
        self._attached = attached
        self._started: list[Startable] = []
        self._starts = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._applying = asyncio.Lock()
        self._due = False
        self._later = OwnedTasks()

    @property
    def has_hooks(self) -> bool:
        """Whether something has to be started."""
        return any(map(_has_hooks, self._attached()))

    async def start(self) -> None:
        """The board begins to serve, until it has been stopped as often as it was started."""
        self._starts += 1
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._applying, self._due = loop, asyncio.Lock(), False
        await self._apply()

    async def stop(self) -> None:
        """The board has answered its last call."""
        self._starts = max(0, self._starts - 1)
        await self._apply()

    def sync(self) -> None:
        """Middleware or a tool was added or removed, in any thread."""
        loop = self._loop
        if self._starts and not self._due and loop is not None and not loop.is_closed():
            self._due = True
            loop.call_soon_threadsafe(self._apply_later)

    def _apply_later(self) -> None:
        self._due = False
        self._later.start(self._apply())

    async def _apply(self) -> None:
        async with self._applying:
            wanted = {id(item): item for item in self._attached() if _has_hooks(item)} if self._starts else {}
            left = [item for item in self._started if id(item) not in wanted]
            self._started = [item for item in self._started if id(item) in wanted]
            for item in reversed(left):
                await _leave(item)
            known = {id(item) for item in self._started}
            for item in wanted.values():
                if id(item) not in known:
                    self._started.append(item)
                    await _enter(item)


def _has_hooks(item: Startable) -> bool:
    return _is_overridden(item, "start") or _is_overridden(item, "stop")


def _is_overridden(item: Startable, hook: Literal["start", "stop"]) -> bool:
    base = Middleware if isinstance(item, Middleware) else Tool
    return hook in item.__dict__ or getattr(type(item), hook, None) is not getattr(base, hook)


async def _enter(middleware: Startable) -> None:
    boards = middleware.__dict__["_boards"] = middleware.__dict__.get("_boards", 0) + 1
    if boards == 1:
        await _run(middleware, "start")


async def _leave(middleware: Startable) -> None:
    middleware.__dict__["_boards"] -= 1
    if not middleware.__dict__["_boards"]:
        await _run(middleware, "stop")


async def _run(middleware: Startable, hook: Literal["start", "stop"]) -> None:
    if not _is_overridden(middleware, hook):
        return
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            # A plain `def` is allowed too.
            made: object = getattr(middleware, hook)()
            if inspect.isawaitable(made):
                await made
    except Exception:  # noqa: BLE001 — what one of them cannot do must not keep the others, nor the board, from it
        _log.exception("%s.%s failed", type(middleware).__name__, hook)
