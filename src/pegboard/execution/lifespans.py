"""The lifespans of a board: what its author opens before the first call and closes after the last.

Theory of operation. All lifespans of a board run in one task of their own, since what they open (task groups, cancel
scopes) has to be closed by the task that opened it. The task enters them in the order in which they were added, opens the
services that open at start, waits, and closes all of it in reverse. A board that is started several times, as by several
clients in one process, enters them at the first start and leaves them at the last stop.
"""

from __future__ import annotations

import asyncio
import collections.abc
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from pegboard.errors import DeclarationError, SetupError
from pegboard.execution.services import Services

_log = logging.getLogger("pegboard")

CLOSE_SECONDS: Final = 5.0
"""How long the lifespans of a board may take to close before they are cancelled."""

Lifespan: TypeAlias = Callable[..., Any]
"""An async generator function that yields once, or a function that returns an async context manager."""

_OUR_FRAMES: Final = ("pegboard", "contextlib")
_YIELDING: Final = (AsyncGenerator, collections.abc.AsyncIterator, AbstractAsyncContextManager)


class Lifespans:
    """The lifespans of one board; `values` is what those that yield a mapping have yielded."""

    def __init__(self, services: Services, start_seconds: float) -> None:
        self.values: dict[str, Any] = {}
        self._services = services
        self._start_seconds = start_seconds
        self._added: list[tuple[Lifespan, object]] = []
        self._starts = 0
        self._run: _Run | None = None

    def __bool__(self) -> bool:
        return bool(self._added or self._services.at_start)

    @property
    def started(self) -> bool:
        """Whether the board is running."""
        return self._starts > 0

    def add(self, lifespan: Lifespan) -> None:
        """Add a lifespan; the type that it yields by its annotation becomes a service, unless that is a mapping."""
        if inspect.iscoroutinefunction(lifespan):
            raise DeclarationError(
                f"{_where(lifespan)}: a lifespan is an `async def` function with one `yield`, or returns an async context manager"
            )
        if self._starts:
            raise DeclarationError(f"{_where(lifespan)}: the board is running; add lifespans before it starts")
        yielded = _yielded_type(lifespan)
        if yielded is not None:
            self._services.supply_later(yielded, f"the lifespan {_name(lifespan)}")
        self._added.append((lifespan, yielded))

    async def start(self, board: object) -> None:
        """Enter all lifespans, unless they are open; SetupError with the author's line if one fails."""
        self._starts += 1
        loop = asyncio.get_running_loop()
        run = self._run
        if run is not None and run.loop is not loop:
            # That loop ended without stopping the board.
            run, self._starts = None, 1
        if run is None:
            if not self:
                return
            run = self._run = _Run(loop)
            run.task = loop.create_task(self._serve(run, board))
        try:
            async with asyncio.timeout(self._start_seconds):
                await asyncio.shield(run.opened)
        except TimeoutError:
            await self.stop()
            raise SetupError(
                f"{run.opening} took longer than {self._start_seconds:g} s to start; "
                "Limits(start_seconds=…) sets the time"
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close what was opened, at the last stop; bounded in time."""
        self._starts = max(0, self._starts - 1)
        run = self._run
        if self._starts or run is None:
            if not self._starts:
                await self._services.close()
            return
        self._run = None
        if run.task is None or run.loop is not asyncio.get_running_loop():
            return
        run.leaving.set()
        if not run.opened.done():
            run.task.cancel()
        _, pending = await asyncio.wait({run.task}, timeout=CLOSE_SECONDS)
        if pending:
            _log.error("%s took longer than %g s to close and was cancelled", run.opening, CLOSE_SECONDS)
            run.task.cancel()
            await asyncio.wait({run.task}, timeout=1.0)

    async def _serve(self, run: _Run, board: object) -> None:
        """The task of the lifespans."""
        try:
            async with AsyncExitStack() as stack:
                failure = await self._open_and_wait(run, stack, board)
                # What was opened before a failure is closed as at the end, without an exception at its `yield`.
                run.opening = "a lifespan or a service of the board"
            if failure is not None:
                run.opened.set_exception(failure)
        except asyncio.CancelledError:
            run.opened.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 — an author's code may raise anything, SystemExit too
            _log.error("the lifespans of a board failed to close", exc_info=error)
            if not run.opened.done():
                run.opened.set_exception(_setup_error("closing", error))
        finally:
            self.values.clear()

    async def _open_and_wait(self, run: _Run, stack: AsyncExitStack, board: object) -> SetupError | None:
        try:
            for lifespan, kind in self._added:
                run.opening = f"{_where(lifespan)}: the lifespan {_name(lifespan)}"
                await self._enter(stack, lifespan, kind, board)
            stack.push_async_callback(self._services.close)
            for name, make in self._services.at_start.items():
                run.opening = f"the service {name}"
                await make()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 — an author's code may raise anything, SystemExit too
            return _setup_error(run.opening, error)
        run.opened.set_result(None)
        await run.leaving.wait()
        return None

    async def _enter(self, stack: AsyncExitStack, lifespan: Lifespan, kind: object, board: object) -> None:
        opened = lifespan(board) if _takes_board(lifespan) else lifespan()
        if inspect.isasyncgen(opened):
            generator = opened
            opened = asynccontextmanager(lambda: generator)()
        if not isinstance(opened, AbstractAsyncContextManager):
            raise TypeError(f"it returned {type(opened).__name__}; yield once, or return an async context manager")
        value = await stack.enter_async_context(opened)
        if kind is not None:
            self._services.set_instance(kind, value)
        elif isinstance(value, Mapping):
            self.values.update(value)


class _Run:
    """One time from start to stop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.opened: asyncio.Future[None] = loop.create_future()
        self.leaving = asyncio.Event()
        self.opening = ""
        # The task that waited for it may be gone.
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())


def _takes_board(lifespan: Lifespan) -> bool:
    try:
        parameters = inspect.signature(lifespan).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.default is parameter.empty for parameter in parameters)


def _yielded_type(lifespan: Lifespan) -> object | None:
    """The type of the value, for a service; None for a mapping, None, or without an annotation."""
    function = inspect.unwrap(lifespan)
    try:
        returned = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    if get_origin(returned) not in _YIELDING or not get_args(returned):
        return None
    yielded: object = get_args(returned)[0]
    kind = get_origin(yielded) or yielded
    if not isinstance(kind, type) or issubclass(kind, Mapping | type(None)):
        return None
    return yielded


def _name(lifespan: Lifespan) -> str:
    return getattr(lifespan, "__name__", type(lifespan).__name__)


def _where(lifespan: Lifespan) -> str:
    code = getattr(inspect.unwrap(lifespan), "__code__", None)
    return "lifespan" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _setup_error(what: str, error: BaseException) -> SetupError:
    """The error for the operator, with the author's line: the first frame below our own code."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _OUR_FRAMES:
        trace = trace.tb_next
    line = "" if trace is None else f" (at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
    problem = SetupError(f"{what} failed: {type(error).__name__}: {error}{line}")
    problem.__cause__ = error
    return problem
