"""The connections to one server: one shared, or one for each caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final

from pegboard.errors import Busy, Unreachable
from pegboard.gateway.servers.server_connection import ServerConnection

MAX_CONNECTIONS: Final = 64
"""How many callers may have their own connection at a time, and so their own process."""
MAX_REMOTE_CONNECTIONS: Final = 1024
"""The same for a server that is not started here: a connection is only memory."""
IDLE_SECONDS: Final = 300.0
STOP_SECONDS: Final = 3.0
CLEANUP_SECONDS: Final = 1.0
"""The time that a connection has to kill and reap its process if it did not close in time."""

_log = logging.getLogger("pegboard.gateway")

OWN_KEY: Final = None
"""The key of the gateway's own connection."""


class ConnectionPool:
    """Creates a connection at the first use of its key, and closes callers' connections that were idle for a while."""

    def __init__(
        self,
        name: str,
        make: Callable[[Hashable], ServerConnection],
        idle_seconds: float = IDLE_SECONDS,
        *,
        remote: bool = False,
    ) -> None:
        self._name = name
        self._limit = MAX_REMOTE_CONNECTIONS if remote else MAX_CONNECTIONS
        self._make = make
        self._idle_seconds = idle_seconds
        self.connections: dict[Hashable, ServerConnection] = {}
        self._closing: dict[asyncio.Task[None], ServerConnection] = {}
        self._retired: set[ServerConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._spawns = 0
        self._closed = False

    @property
    def spawns(self) -> int:
        """How many processes were started, including those of closed connections."""
        return self._spawns + sum(
            connection.spawns for connection in (*self.connections.values(), *self._retired, *self._closing.values())
        )

    def __len__(self) -> int:
        return len(self.connections)

    def connection(self, key: Hashable = OWN_KEY) -> ServerConnection:
        """The connection of that key; Busy if there are too many and all are in use, Unreachable once closed."""
        connection = self.connections.get(key)
        if connection is None:
            if self._closed:
                raise Unreachable(f"{self._name}: is stopped")
            if len(self.connections) > self._limit:
                self._make_room()
            connection = self.connections[key] = self._make(key)
            if key is not OWN_KEY and self._sweeping is None:
                self._schedule_sweep()
        connection.used_at = asyncio.get_running_loop().time()
        return connection

    def drop(self, key: Hashable) -> None:
        """Close a connection soon; the next request for this key gets a new one."""
        connection = self.connections.pop(key, None)
        if connection is not None:
            self._start_closing(connection)

    def retire(self, key: Hashable) -> None:
        """Close a connection when its running requests have ended; the next request for this key gets a new one."""
        connection = self.connections.pop(key, None)
        if connection is not None:
            connection.retired = True
            self._retired.add(connection)
            self.close_retired(connection)

    def close_retired(self, connection: ServerConnection) -> None:
        """Close the connection if it is retired, and no longer used."""
        if connection in self._retired and not connection.users:
            self._retired.discard(connection)
            self._start_closing(connection)

    def _start_closing(self, connection: ServerConnection) -> None:
        task = asyncio.create_task(connection.close())
        self._closing[task] = connection
        task.add_done_callback(self._close)

    async def close(self) -> None:
        """Close all connections, and wait for those that were dropped."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self.connections):
            self.drop(key)
        while self._retired:
            self._start_closing(self._retired.pop())
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLEANUP_SECONDS)

    def _close(self, closed: asyncio.Task[None]) -> None:
        self._spawns += self._closing.pop(closed).spawns
        if not closed.cancelled() and (problem := closed.exception()) is not None:
            _log.error("%s: the connection could not be closed cleanly", self._name, exc_info=problem)

    def _make_room(self) -> None:
        unused = [key for key, connection in self.connections.items() if key is not OWN_KEY and not connection.users]
        if not unused:
            raise Busy(f"The server {self._name!r} is used by {self._limit} other callers", retry_after=5)
        self.drop(min(unused, key=lambda key: self.connections[key].used_at))

    def _schedule_sweep(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        before = asyncio.get_running_loop().time() - self._idle_seconds
        for key, connection in list(self.connections.items()):
            if key is not OWN_KEY and not connection.users and connection.used_at <= before:
                self.drop(key)
        if any(key is not OWN_KEY for key in self.connections):
            self._schedule_sweep()
