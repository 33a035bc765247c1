"""Keeps one server connected: connects, reads its lists, watches it, reconnects.

Theory of operation. There is one task for each server. It opens the gateway's own connection, reads the lists, and then
waits for the first of several events: the subscription ends, the process exits, a health check fails, or the server is
no longer needed. After each of them it starts again, with growing pauses. Calls do not wait for it: they open their
connection themselves if needed, and end the pause when they reach the server. The last lists stay in use through every
failure.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final, Literal, TypeAlias

from pegboard.background_tasks import end_tasks
from pegboard.backoff import backoff, jitter
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.duplex_link import DuplexLink
from pegboard.client.links.server_output import shorten_output
from pegboard.config.gateway_config import ServerConfig
from pegboard.errors import (
    ConnectionLost,
    PegboardError,
    Refusal,
    ResponseTimeout,
    ServerFault,
    Unauthorized,
    Unreachable,
)
from pegboard.gateway.servers.change_subscription import ChangeSubscription
from pegboard.gateway.servers.connection_pool import OWN_KEY, ConnectionPool
from pegboard.gateway.servers.server_catalog import ServerCatalog, list_server_catalog
from pegboard.gateway.servers.server_connection import ServerConnection
from pegboard.protocol.revisions import REVISIONS

_log = logging.getLogger("pegboard.gateway")

State: TypeAlias = Literal["idle", "connecting", "ready", "failed", "needs_login", "stopped"]

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""After this time without a failure, earlier failures do not count any more."""
NEVER: Final = math.inf
MAX_REPORTED: Final = 1500
"""Characters of a problem that are logged: a command, and the last lines that it wrote."""
MAX_PROBLEMS: Final = 8
"""Different problems that are logged before a server is ready."""
DEBOUNCE_SECONDS: Final = 0.2
IDLE_DEBOUNCES: Final = 5
"""If a server reports changes and there are none, the pause before listing it doubles at most this many times."""
REST_FACTOR: Final = 4
"""After reading lists that took long, the pause is this many times as long."""
HEALTH_CHECK_SECONDS: Final = 60.0
"""How often an idle server is checked."""
SHORTEST_TTL: Final = 30.0
MAX_START_SECONDS: Final = 60.0
"""The maximum time to start, if `connectTimeout` is less: a first start may have to download the server."""

_DIGITS: Final = re.compile(r"[0-9]+")


class Supervisor:
    """Supervises one server; `problem` is for the operator of the gateway.

    `changed` is called when the catalog or the state changes, `updated` with the URI of a resource. The catalog is the
    same object as long as its content is the same. `connect_timeout` doubles with each attempt to start that timed out,
    and stays so: a server that was slow once may be slow again.
    """

    names_server: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        pool: ConnectionPool,
        tools: KnownTools,
        *,
        changed: Callable[[], None],
        updated: Callable[[str], None],
        prepare: Callable[[ServerCatalog], Awaitable[None]] | None = None,
        start_timeout: float | None = None,
        installing: asyncio.Semaphore | None = None,
    ) -> None:
        self.name = name
        self.state: State = "idle"
        self.problem = ""
        self.catalog: ServerCatalog | None = None
        self.settled = asyncio.Event()
        self.is_running = False
        self.connect_timeout = config.connect_timeout
        self._start_timeout = start_timeout
        self._installing = installing or asyncio.Semaphore()
        self._reported: set[str] = set()
        self._ready_at = NEVER
        self._config = config
        self._pool = pool
        self._tools = tools
        self._on_change = changed
        self._prepare = prepare
        self._subscription = ChangeSubscription(self._lists_changed, lambda uri: self._notify(updated, uri))
        self._task: asyncio.Task[None] | None = None
        self._healthy = asyncio.Event()
        self._suspect = asyncio.Event()
        self._changed = asyncio.Event()
        self._relisting = asyncio.Lock()

    def reconfigure(self, config: ServerConfig) -> None:
        """Apply another configuration that leaves the connection as it is."""
        if config.connect_timeout != self._config.connect_timeout:
            self.connect_timeout = config.connect_timeout
        self._config = config

    def start_when_needed(self) -> None:
        """Begin to supervise, unless that has begun or the server was stopped."""
        if self.state != "stopped" and not self.is_running:
            self.is_running = True
            self._task = asyncio.create_task(self._supervise())

    def follow(self, uris: frozenset[str]) -> None:
        """Report changes of these resources from now on, and of no others."""
        self._subscription.follow(uris)
        if uris:
            self.start_when_needed()

    def note_healthy(self) -> None:
        """A call has reached the server."""
        self._healthy.set()

    def note_suspect(self) -> None:
        """A call failed in a way that may mean that the server is not healthy."""
        self._suspect.set()

    async def stop(self) -> None:
        """Stop supervising."""
        self.state = "stopped"
        await end_tasks(self._task)
        self.settled.set()

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                self._ready_at = NEVER
                try:
                    await self._connect_and_stay()
                except PegboardError as met:
                    problem = met
                else:
                    # A call may have begun since it was found idle.
                    self._pool.retire(OWN_KEY)
                    self._set_state("idle", "")
                    return
                failures = 1 if loop.time() - self._ready_at > STEADY_SECONDS else failures + 1
                self._take_problem(problem)
                self._settle()
                await self._pause(failures, problem)
        except Exception:  # noqa: BLE001 — an error of ours: it is logged, and calls are still served
            _log.exception("%s: is not supervised any more", self.name)
            self._set_state("failed", "an error of the gateway itself, see its log")
            self.settled.set()
        finally:
            self.is_running = False

    def _settle(self) -> None:
        """End the wait of lists, after the gateway has published the change that was just reported to it."""
        asyncio.get_running_loop().call_soon(self.settled.set)

    async def _connect_and_stay(self) -> None:
        """Connect, and wait until the server is lost and raise the reason; returns if it is no longer needed."""
        connection = self._pool.connection()
        try:
            if not connection.link.is_open:
                self._set_state("connecting", self.problem)
            await self._open(connection)
            was_there = self.catalog is not None
            await self._list(connection)
            connection.breaker.succeed()
            if self._reported or not was_there:
                _log.info("%s: %s", self.name, "is back" if was_there else "is ready")
                self._reported.clear()
            self._ready_at = asyncio.get_running_loop().time()
            self._set_state("ready", "")
            self._settle()
            await self._wait_for_event(connection)
        except ResponseTimeout as late:
            if self._ready_at == NEVER:
                raise self._extend_timeout(connection, late) from None
            # A process that hangs, or a connection that is not read, does not recover by itself.
            if isinstance(connection.link, DuplexLink) and not connection.users:
                self._pool.drop(OWN_KEY)
            raise

    async def _open(self, connection: ServerConnection) -> None:
        """Open a connection; a command that installs its server has minutes, and starts when few others do."""
        if self._start_timeout is None:
            await connection.open(now=True)
            return
        seconds = 2 * self.connect_timeout
        async with self._installing:
            try:
                await connection.open(now=True, seconds=seconds)
            except Unreachable:
                if not connection.is_opening:
                    raise
            else:
                return
        # It does not hold up the others any longer, nor calls and lists.
        message = f"no answer within {seconds:g} s, it is still starting and may be installing; it has {self._start_timeout:g} s"
        self._report(message)
        self.problem = message
        self.settled.set()
        await connection.open(now=True)

    def _extend_timeout(self, connection: ServerConnection, late: ResponseTimeout) -> ResponseTimeout:
        """Allow more time for the next attempt to start the server, which needs a new connection."""
        self.connect_timeout = max(self.connect_timeout, min(2 * self.connect_timeout, MAX_START_SECONDS))
        if not (connection.users and connection.link.is_open):
            self._pool.drop(OWN_KEY)
        message = (
            f"next attempt with a connectTimeout of {self.connect_timeout:g} s; set more if it needs longer to start"
        )
        return ResponseTimeout(f"{late}; {message}")

    async def _list(self, connection: ServerConnection) -> None:
        async with self._relisting:
            await self._read_lists(connection)

    async def _read_lists(self, connection: ServerConnection) -> None:
        """Read the lists, and report a change if they differ."""
        seconds = max(self._config.timeout, self.connect_timeout)
        link = connection.link
        try:
            async with asyncio.timeout(seconds):
                found = await list_server_catalog(
                    connection.ask, lambda: link.version, mirrors=lambda: link.mirrors, name=self.name
                )
        except TimeoutError as late:
            if isinstance(late, ResponseTimeout):
                raise
            raise ResponseTimeout(f"{link.name}: its lists did not arrive within {seconds:g} s") from None
        self._tools.update(found.tools)
        if self.catalog is not None and self.catalog.digest == found.digest:
            return
        if self._prepare is not None:
            await self._prepare(found)
        self.catalog = found
        for message in found.dropped:
            _log.warning("%s: left out of its lists: %s", self.name, shorten_output(message))
        if self.state == "ready":
            self._notify(self._on_change)

    async def list_again(self) -> None:
        """Read the lists again: a call found that a tool has changed, or came before the first listing."""
        generation = self._tools.generation
        try:
            async with self._relisting:
                if self._tools.generation == generation:
                    await self._read_lists(self._pool.connection())
        except ServerFault as fault:
            _log.info("%s: a call is sent without the tool's definition, %s", self.name, shorten_output(str(fault)))
            if not generation:
                # The next call does not try it again: the supervisor does.
                self._tools.update(())

    async def _wait_for_event(self, connection: ServerConnection) -> None:
        """Wait for the first event that ends the connection."""
        assert self.catalog is not None  # noqa: S101 — it has just been listed
        watches: list[Coroutine[Any, Any, None]] = [
            self._subscription.run(connection, self.catalog),
            self._refresh(connection),
            self._check_health(connection),
        ]
        if isinstance(connection.link, DuplexLink):
            watches.append(connection.link.until_lost())
        if self._config.idle_seconds is not None:
            watches.append(self._until_idle(connection, self._config.idle_seconds))
        tasks = [asyncio.create_task(watch) for watch in watches]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(*tasks)
        for task in done:
            task.result()

    async def _refresh(self, connection: ServerConnection) -> None:
        """Read the lists again after a reported change, once for all changes within a moment."""
        loop = asyncio.get_running_loop()
        in_vain, took = 0, 0.0
        while True:
            await self._changed.wait()
            debounce = DEBOUNCE_SECONDS * 2 ** min(in_vain, IDLE_DEBOUNCES)
            await asyncio.sleep(max(debounce, min(REST_FACTOR * took, LONGEST_PAUSE)))
            self._changed.clear()
            before, began = self.catalog, loop.time()
            try:
                await self._list(connection)
            except Refusal as refusal:
                _log.warning("%s: rejected the request for a list: %s", self.name, shorten_output(refusal.message, 200))
            in_vain = in_vain + 1 if self.catalog is before else 0
            took = loop.time() - began

    async def _check_health(self, connection: ServerConnection) -> None:
        """Check now and then that the server responds, and read its lists again if it does not report changes."""
        while True:
            seconds = HEALTH_CHECK_SECONDS if (ttl := self._ttl()) is None else min(HEALTH_CHECK_SECONDS, ttl)
            self._suspect.clear()
            try:
                # With jitter, so that many servers are not checked at the same time.
                async with asyncio.timeout(seconds * (0.9 + 0.2 * random.random())):
                    await self._suspect.wait()
            except TimeoutError:
                if ttl is not None:
                    await self._list(connection)
                    continue
            if not connection.users:
                await self._ping(connection)

    async def _ping(self, connection: ServerConnection) -> None:
        method = "ping" if "ping" in REVISIONS[connection.link.version].methods else "server/discover"
        try:
            await connection.ask(method, {})
        except Refusal:
            # An error response proves that the server is alive.
            return

    def _ttl(self) -> float | None:
        """The lifetime of the lists if the server states one and does not report changes; otherwise None."""
        catalog = self.catalog
        if catalog is None or catalog.ttl_ms is None:
            return None
        if any(catalog.announces_changes(kind) for kind in ("tools", "prompts", "resources")):
            return None
        return max(catalog.ttl_ms / 1000, SHORTEST_TTL)

    async def _until_idle(self, connection: ServerConnection, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left = connection.used_at + seconds - loop.time()
            if left <= 0 and not connection.users and not self._subscription.uris:
                return
            await asyncio.sleep(max(left, min(seconds, 1.0)))

    async def _pause(self, failures: int, problem: PegboardError) -> None:
        """Wait before the next attempt, unless a call reaches the server meanwhile."""
        wanted = problem.retry_after if isinstance(problem, Unreachable) else None
        pause = max(backoff(failures, FIRST_PAUSE, LONGEST_PAUSE), min(wanted or 0.0, LONGEST_PAUSE))
        self._healthy.clear()
        try:
            async with asyncio.timeout(jitter(pause)):
                await self._healthy.wait()
        except TimeoutError:
            return

    def _take_problem(self, problem: PegboardError) -> None:
        # Some problems name the server already.
        message = shorten_output(str(problem).removeprefix(f"{self.name}: "), MAX_REPORTED)
        self._report(message)
        text = str(problem).removeprefix(f"{self.name}: ")
        if isinstance(problem, Unauthorized):
            self._set_state("needs_login", text)
        elif self.state == "ready" and isinstance(problem, ConnectionLost):
            connection = self._pool.connection()
            self._set_state("ready" if connection.link.is_open else "connecting", text)
        else:
            self._set_state("failed", text)

    def _report(self, message: str) -> None:
        """Log a problem, each once until the server is ready: it may be tried for days."""
        # Two attempts may differ in nothing but a time or the id of a process.
        kind = _DIGITS.sub("", message)
        is_new = kind not in self._reported and len(self._reported) < MAX_PROBLEMS
        _log.log(logging.WARNING if is_new else logging.DEBUG, "%s: %s", self.name, message)
        if is_new:
            self._reported.add(kind)

    def _set_state(self, state: State, problem: str) -> None:
        if self.state == "stopped":
            return
        before, self.state, self.problem = self.state, state, problem
        if state != before:
            self._notify(self._on_change)

    def _lists_changed(self) -> None:
        self._changed.set()

    def _notify(self, listener: Callable[..., None], *arguments: object) -> None:
        try:
            listener(*arguments)
        except Exception:  # noqa: BLE001 — an error of a listener must not end the supervision
            _log.exception("%s: a listener failed to handle a change", self.name)
