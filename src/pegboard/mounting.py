"""A board within somebody else's server: opened by the first request at the latest, closed when that server ends.

Theory of operation. Nothing tells a route of another application that its server starts or ends. So whichever comes first,
a lifespan, `async with` or a request, opens the store, in a task that then only waits. A lifespan or the end of the block
ends the wait; where there is neither, whoever runs the loop cancels what is left in it at the end. In each case the calls
under way come to their end, then the board's services, then the store. What comes later opens it anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pegboard.errors import PegboardError, SetupError, StoreDown
from pegboard.keeping import Served, clean_up, keeping
from pegboard.stores.address import open_store
from pegboard.stores.crew import Shared
from pegboard.stores.memory import MemoryStore
from pegboard.transports.asgi import AsgiApp, House
from pegboard.transports.guard import Guard
from pegboard.transports.http import HttpEndpoint
from pegboard.transports.legacy_doors import door_paths

_log = logging.getLogger("pegboard")

Furnish: TypeAlias = Callable[[Shared | None], HttpEndpoint]
"""Makes an endpoint anew: one that has ended takes no calls any more."""


class Resident:
    """The house of a board that keeps nothing beyond its process, and is always open."""

    def __init__(self, served: Served, furnish: Furnish) -> None:
        self._served = served
        self._furnish = furnish
        self.endpoint = furnish(None)

    async def open(self) -> HttpEndpoint:
        return self.endpoint

    async def close(self) -> None:
        await see_out(self._served, self.endpoint)
        self.endpoint = self._furnish(None)


class Tenant:
    """The house of a board that keeps what it has in a store."""

    def __init__(self, served: Served, store: str, furnish: Furnish) -> None:
        self._served = served
        self._store = store
        self._furnish = furnish
        self._stay: Stay | None = None

    @property
    def endpoint(self) -> HttpEndpoint | None:
        stay = self._stay
        # One loop may follow another, as in tests; a store lives in one.
        return None if stay is None or stay.loop is not asyncio.get_running_loop() else stay.endpoint

    async def open(self) -> HttpEndpoint:
        stay, loop = self._stay, asyncio.get_running_loop()
        if stay is None or stay.loop is not loop:
            stay = self._stay = Stay(loop)
            stay.task = loop.create_task(self._live(stay))
        # All who come meanwhile wait for the same; who leaves takes nothing with it.
        return await asyncio.shield(stay.opened)

    async def close(self) -> None:
        stay = self._stay
        if stay is not None and stay.task is not None:
            stay.leaving.set()
            await asyncio.wait({stay.task})

    async def _live(self, stay: Stay) -> None:
        try:
            async with keeping(self._store, self._served) as shared:
                stay.endpoint = endpoint = self._furnish(shared)
                stay.opened.set_result(endpoint)
                try:
                    await stay.leaving.wait()
                finally:
                    await see_out(self._served, endpoint)
        except PegboardError as problem:
            stay.fail(problem)
        except Exception as problem:  # noqa: BLE001 — whatever keeps a store from opening, whoever knocks is answered
            stay.fail(SetupError(f"store: {type(problem).__name__}: {problem}"))
        finally:
            stay.opened.cancel()
            if self._stay is stay:
                self._stay = None


class Stay:
    """From the opening of a store to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.endpoint: HttpEndpoint | None = None
        self.opened: asyncio.Future[HttpEndpoint] = loop.create_future()
        self.leaving = asyncio.Event()
        # Whoever waited for it may have left.
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())

    def fail(self, problem: PegboardError) -> None:
        """It did not open, or did not close well. Why is for the operator: what clients hear names no place."""
        _log.error("the store of a mounted board: %s", problem)
        if not self.opened.done():
            told = StoreDown("The store cannot be opened; try again later", retry_after=5)
            told.__cause__ = problem
            self.opened.set_exception(told)


async def see_out(served: Served, endpoint: HttpEndpoint) -> None:
    """Let the calls of an endpoint come to their end, and then what was served."""
    await endpoint.drain(served.limits.drain_seconds, asyncio.Event())
    await clean_up(served)


def mount(
    served: Served,
    *,
    path: str,
    ws: str | None,
    store: str,
    doors: tuple[str, ...],
    sessions: bool,
    hosts: Iterable[str],
    origins: Iterable[str],
) -> AsgiApp:
    """An ASGI application of a board."""
    guard, limits = Guard(hosts=hosts, origins=origins), served.limits
    name = "/" + path.strip("/").rpartition("/")[2]

    def furnish(shared: Shared | None) -> HttpEndpoint:
        return HttpEndpoint(
            served.handler,
            served.info,
            limits=limits,
            guard=guard,
            legacy="sessions" if sessions else "sessionless",
            legacy_doors=doors,
            successor=name,
            websocket=ws is not None,
            shared=shared,
        )

    # What is wrong with the address is said at once; the store itself is made where it is used, for servers may fork.
    kept = not isinstance(open_store(store, limits), MemoryStore)
    house: House = Tenant(served, store, furnish) if kept else Resident(served, furnish)
    return AsgiApp(house, limits, path=path, beside=door_paths(doors), unrouted=("/health", "/ready"), socket_path=ws)
