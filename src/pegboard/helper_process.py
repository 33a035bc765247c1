"""A program that tools need, such as a local database: started, checked and stopped with the board.

Theory of operation. One task supervises the process: it starts the program, waits until the health check succeeds, then
repeats the check. A process that exits, or fails several checks, is started again after a pause. A helper that is
healthy before it was started belongs to someone else, for example to another worker: it is used, and never stopped.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Literal, TypeAlias
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from pegboard.background_tasks import end_tasks
from pegboard.backoff import backoff
from pegboard.call import Call
from pegboard.client.transports.child_process import ChildProcess, format_command
from pegboard.errors import DeclarationError, LimitReached, ServerFault, Unreachable
from pegboard.hooks.middleware import Middleware

HelperState: TypeAlias = Literal["stopped", "starting", "healthy", "unhealthy", "failed"]
HealthCheck: TypeAlias = Callable[[], bool | Awaitable[bool]]

CHECK_SECONDS: Final = 2.0
_STABLE_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_POLL_SECONDS: Final = 0.2
FAILED_CHECKS: Final = 3
_MAX_LINE: Final = 64 * 1024
_opener = build_opener(ProxyHandler({}))

_log = logging.getLogger("pegboard.helpers")


class HelperProcess(Middleware):
    """Runs a program while a board is served; calls that it is attached to wait until the program is healthy.

    `board.use(HelperProcess(["search-engine", "--port", "9200"], health="http://127.0.0.1:9200/health"), category="search")`

    command: the program and its arguments.
    health: what says that it is healthy: an `http://` URL that answers with 2xx, `tcp://host:port` that accepts connections, or
        a function that returns true; without it, the process runs.
    name: its name in messages and logs; without it, the command.
    cwd: its working directory.
    env: environment variables, besides those that every program needs.
    startup_seconds: how long it may take to become healthy.
    interval: seconds between checks.
    restarts: how often it is started again in a row before it counts as failed.
    wait: how long a call waits for it to be healthy before it is rejected.

    `state` is "stopped", "starting", "healthy", "unhealthy" or "failed"; `problem` says why it is not healthy. A helper that
    fails never stops the board.
    """

    order = 4

    def __init__(
        self,
        command: list[str],
        *,
        health: str | HealthCheck | None = None,
        name: str = "",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        startup_seconds: float = 30.0,
        interval: float = 10.0,
        restarts: int = 3,
        wait: float = 5.0,
    ) -> None:
        words: object = command
        if (
            not isinstance(words, list | tuple)
            or not words
            or not all(isinstance(word, str) and word for word in words)
        ):
            raise DeclarationError(
                f"command={words!r:.80}: use a list of words, as in ['redis-server', '--port', '6390']"
            )
        if min(startup_seconds, interval) <= 0 or wait < 0 or restarts < 0:
            raise DeclarationError("startup_seconds and interval must be greater than 0, wait and restarts at least 0")
        self.command = list(command)
        self.name = name or format_command(command)
        self.state: HelperState = "stopped"
        self.problem = ""
        self.starts = 0
        self._check = _read_check(health)
        self._cwd, self._env = cwd, env
        self._startup_seconds, self._interval, self._restarts, self._wait = startup_seconds, interval, restarts, wait
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the process; None while it does not run, or if it was not started here."""
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start the program; calls wait until it is healthy."""
        self._changed, self._ready = asyncio.Event(), asyncio.Event()
        self._set("starting")
        self._task = asyncio.create_task(self._supervise(), name=f"helper {self.name}")

    async def stop(self) -> None:
        """Stop the program, unless it was not started here."""
        task, self._task = self._task, None
        await end_tasks(task)
        await self._end()
        self._set("stopped")

    async def before(self, call: Call) -> None:
        """Wait until the program is healthy, or reject the call."""
        if self.state == "healthy":
            return
        if self.state != "failed" and self._wait:
            try:
                async with asyncio.timeout(self._wait):
                    await self._ready.wait()
            except TimeoutError:
                pass
            else:
                return
        # The reason may contain paths and output of the program: it is for the log.
        raise LimitReached(
            f"{call.name} was not run: a program that it needs is not available. Try again later.",
            "helper_unavailable",
            retry_after=None if self.state == "failed" else self._interval,
        )

    # -- supervision -------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                began = loop.time()
                if await self._become_healthy():
                    await self._watch_health()
                # One that ran for a while starts from the beginning.
                failures = 1 if loop.time() - began > _STABLE_SECONDS else failures + 1
                problem = self.problem
                _log.warning("%s: %s", self.name, problem)
                await self._end()
                if failures > self._restarts:
                    break
                self._set("unhealthy", problem)
                await asyncio.sleep(backoff(failures, _FIRST_PAUSE, _LONGEST_PAUSE))
            self._set("failed", problem)
            _log.error("%s: failed %d times in a row and is not started again", self.name, failures)
        finally:
            await self._end()

    async def _become_healthy(self) -> bool:
        """Use the program that runs already, or start it and wait for it; False if it cannot be used."""
        if self._check is not _is_running and await self._is_healthy():
            _log.info("%s: runs already, and is used", self.name)
            self._set("healthy")
            return True
        self._set("starting", self.problem)
        self._changed.clear()
        child = ChildProcess(self.command, env=self._env, cwd=self._cwd, max_line=_MAX_LINE, name=self.name)
        self._child = child
        try:
            await child.open(self._log_line, self._lost)
        except Unreachable as problem:
            self._lost(problem)
            return False
        self.starts += 1
        try:
            async with asyncio.timeout(self._startup_seconds):
                while not self._changed.is_set():
                    if await self._is_healthy():
                        _log.info("%s: healthy (process %s)", self.name, child.pid)
                        self._set("healthy")
                        return True
                    await self._pause(_POLL_SECONDS)
        except TimeoutError:
            self.problem = f"not healthy after {self._startup_seconds:g} s{child.last_words()}"
        return False

    async def _watch_health(self) -> None:
        """Return when the program has exited, or failed several checks in a row."""
        failed = 0
        while failed < FAILED_CHECKS:
            await self._pause(self._interval)
            if self._changed.is_set():
                return
            if await self._is_healthy():
                failed = 0
                self._set("healthy")
            else:
                failed += 1
                self._set("unhealthy", "the health check fails")

    async def _is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                found = self._check()
                return bool(await found if inspect.isawaitable(found) else found)
        except Exception as problem:  # noqa: BLE001 — a check of the author's may raise anything, and means no
            _log.debug("%s: the health check failed: %s", self.name, problem)
            return False

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until the process has exited."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _lost(self, fault: ServerFault) -> None:
        self.problem = str(fault).removeprefix(f"{self.name}: ")
        self._changed.set()

    def _log_line(self, line: bytes) -> None:
        _log.debug("%s: %s", self.name, line.decode("utf-8", "replace"))

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            await child.close()

    def _set(self, state: HelperState, problem: str = "") -> None:
        self.state, self.problem = state, problem
        if state == "healthy":
            self._ready.set()
        else:
            self._ready.clear()


def _is_running() -> bool:
    return True


def _read_check(health: str | HealthCheck | None) -> HealthCheck:
    if health is None:
        return _is_running
    if callable(health):
        return health
    parts, port = urlsplit(str(health)), None
    # A port that is not a number.
    with suppress(ValueError):
        port = parts.port
    if parts.scheme in ("http", "https") and parts.hostname:
        return lambda: asyncio.to_thread(_answers, health)
    if parts.scheme == "tcp" and parts.hostname and port:
        host, number = parts.hostname, port
        return lambda: _accepts(host, number)
    raise DeclarationError(
        f"health={health!r:.80}: use an http:// URL, tcp://host:port, or a function that returns a bool"
    )


def _answers(url: str) -> bool:
    try:
        with _opener.open(url, timeout=CHECK_SECONDS) as response:
            return 200 <= int(response.status) < 300
    except (URLError, OSError):
        return False


async def _accepts(host: str, port: int) -> bool:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True
