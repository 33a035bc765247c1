"""Runs adjacent hooks as one stage around a Handler.

Theory of operation. A hook counts as entered once its `before` has returned, or immediately if it has none. Each
entered hook learns the end of the call exactly once: through `after` if the call has a result, else through `error`.
A stage is one closure over its hooks, composed once for each change. Rare cases are left to `_SlowPath`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct

from pegboard.call import Call, EncodedResult, Handler, Reply
from pegboard.hooks.middleware import Middleware, is_dynamic, is_overridden, name_of

_log = logging.getLogger("pegboard.middleware")

_CLEANUP_SECONDS = 1.0
_SLOW_SECONDS = 1.0


class Hook(Struct, frozen=True):
    """The hooks of one middleware; None for those that are not overridden.

    Exceptions of its `after` and `error` hooks do not change a call: they are logged, and added to `failures` if a test
    wants them.
    """

    owner: Middleware
    before: Callable[[Call], Any] | None
    after: Callable[[Call, Any, float], Any] | None
    error: Callable[[Call, BaseException, float], Any] | None
    dynamic: bool
    failures: list[BaseException] | None = None

    def note_failure(self, exception: BaseException) -> None:
        if self.failures is not None:
            self.failures.append(exception)


def read_hook(middleware: Middleware, failures: list[BaseException] | None = None) -> Hook | None:
    """The hooks of a middleware; None if it has none."""
    before, after, error = (
        getattr(middleware, name) if is_overridden(middleware, name) else None for name in ("before", "after", "error")
    )
    if before is None and after is None and error is None:
        return None
    return Hook(middleware, before, after, error, is_dynamic(middleware), failures)


def wrap_hooks(hooks: Sequence[Hook], inner: Handler) -> Handler:
    """The Handler with these hooks around it, the first one outermost."""
    if not hooks:
        return inner
    if any(hook.dynamic for hook in hooks):
        return _switching(hooks, inner)
    return _stage(hooks, inner)


def _switching(hooks: Sequence[Hook], inner: Handler) -> Handler:
    """A chain that checks at each call which hooks are enabled."""
    stages: dict[tuple[bool, ...], Handler] = {}

    async def switching(call: Call) -> Reply:
        key = tuple(not hook.dynamic or bool(hook.owner.enabled) for hook in hooks)
        stage = stages.get(key)
        if stage is None:
            taking_part = [hook for hook, enabled in zip(hooks, key, strict=True) if enabled]
            stage = stages[key] = _stage(taking_part, inner) if taking_part else inner
        return await stage(call)

    return switching


def _stage(hooks: Sequence[Hook], inner: Handler) -> Handler:
    """The Handler with these hooks around it, all of them enabled."""
    befores = _functions([hook.before for hook in hooks])
    afters = _functions([hook.after for hook in hooks])[::-1]
    count = len(hooks)
    slow_path = _SlowPath(tuple(hooks))

    async def stage(call: Call) -> Reply:
        began = perf_counter()
        entered = 0
        try:
            for entered, before, is_async in befores:  # noqa: B007 — read below when a hook raises
                returned = await before(call) if is_async else before(call)
                if returned is not None:
                    await slow_path.settle(before, returned)
            entered = count
            if slow_path.watching:
                slow_path.report_slow("before", call, perf_counter() - began)
            reply = await inner(call)
        except BaseException as exception:
            await slow_path.fail(call, exception, entered, began)
            raise
        result = reply.result if type(reply.result) is dict else _plain(reply.result)
        if "isError" in result or call.failed:
            call.failed = bool(result.get("isError"))
        ended = perf_counter()
        elapsed = (ended - began) * 1000
        for entered, after, is_async in afters:
            try:
                returned = await after(call, result, elapsed) if is_async else after(call, result, elapsed)
                if returned is not None:
                    await slow_path.settle(after, returned)
            except BaseException as exception:
                if await slow_path.after_failed(call, exception, entered, elapsed):
                    raise
        now = perf_counter()
        if now - began > _SLOW_SECONDS:
            slow_path.watching = True
            slow_path.report_slow("after", call, now - ended)
        return reply

    return stage


def _functions(phase: Sequence[Callable[..., Any] | None]) -> list[tuple[int, Callable[..., Any], bool]]:
    """The hooks of one phase: the position of each in its chain, the function, and whether it is `async def`."""
    return [(index, hook, inspect.iscoroutinefunction(hook)) for index, hook in enumerate(phase) if hook is not None]


def _plain(result: Any) -> Any:
    return result.value if isinstance(result, EncodedResult) else result


class _SlowPath:
    """The rare cases of a chain: handle what a hook returned or raised, and warn its author once per chain.

    Timing each hook would slow every call; the clock is read only after a call that took long.
    """

    __slots__ = ("_hooks", "_warned", "watching")

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self.watching = False
        self._hooks = hooks
        self._warned: set[object] = set()

    async def fail(self, call: Call, exception: BaseException, entered: int, began: float) -> None:
        await _run_error_hooks(self._hooks[:entered], call, exception, (perf_counter() - began) * 1000)

    async def after_failed(self, call: Call, exception: BaseException, place: int, elapsed: float) -> bool:
        """Whether the call is over; otherwise the result is kept."""
        if _ends_the_call(exception, call):
            await _run_error_hooks(self._hooks[:place], call, exception, elapsed)
            return True
        self._hooks[place].note_failure(exception)
        _log.error(
            "the after-hook %s failed; the result is kept", name_of(self._hooks[place].after), exc_info=exception
        )
        return False

    async def settle(self, hook: Callable[..., Any], outcome: Any) -> None:
        """Await what a plain function returned if it is awaitable; any other value is dropped with a warning."""
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if outcome is not None and self._is_new(hook):
            _log.warning(
                "%s returned a %s, which is ignored; to change arguments or results, write an `around`",
                name_of(hook),
                type(outcome).__name__,
            )

    def report_slow(self, phase: str, call: Call, seconds: float) -> None:
        """Warn about hooks that delay their call, or all calls if they block the loop."""
        if seconds > _SLOW_SECONDS and self._is_new(phase):
            names = [name_of(hook) for entry in self._hooks if (hook := getattr(entry, phase)) is not None]
            _log.warning(
                "the %s-hooks of %s took %.1f s: one of %s waits long, or blocks the event loop",
                phase,
                call.name,
                seconds,
                ", ".join(names),
            )

    def _is_new(self, remark: object) -> bool:
        new = remark not in self._warned
        self._warned.add(remark)
        return new


async def _run_error_hooks(hooks: Sequence[Hook], call: Call, exception: BaseException, elapsed: float) -> None:
    """Run the error hooks, last one first; those of a cancelled call share one second.

    When the time is up, hooks that do not wait still run.
    """
    if isinstance(exception, GeneratorExit) and not call._is_current():
        return
    cancelled: BaseException | None = None
    for hook in reversed(hooks):
        if hook.error is None:
            continue
        limit = asyncio.timeout_at(_deadline(exception if cancelled is None else cancelled))
        try:
            async with limit:
                outcome = hook.error(call, exception, elapsed)
                if inspect.isawaitable(outcome):
                    await outcome
        except BaseException as problem:
            if isinstance(problem, GeneratorExit) and not call._is_current():
                raise
            if limit.expired():
                _log.error("the error-hook %s of a cancelled call ran out of time", name_of(hook.error))
            elif _ends_the_call(problem, call):
                # Cancelled a second time, or only now: this hook ends, the others still run.
                cancelled = cancelled or problem
            else:
                hook.note_failure(problem)
                _log.error("the error-hook %s failed", name_of(hook.error), exc_info=problem)
    if cancelled is not None and not isinstance(exception, asyncio.CancelledError):
        raise cancelled


def _deadline(exception: BaseException) -> float | None:
    """The deadline for the error hooks of a cancelled call, in all chains that this exception passes."""
    if not isinstance(exception, asyncio.CancelledError):
        return None
    # Stored on the exception, which passes from chain to chain and through tasks; a call may be retried.
    last = getattr(exception, "_last_words", None)
    if last is None:
        last = asyncio.get_running_loop().time() + _CLEANUP_SECONDS
        exception._last_words = last  # type: ignore[attr-defined]  # an exception takes any attribute
    return float(last)


def _ends_the_call(exception: BaseException, call: Call) -> bool:
    """Whether the call is cancelled from outside, and not by the hook itself."""
    if isinstance(exception, GeneratorExit):
        return not call._is_current()
    if not isinstance(exception, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
