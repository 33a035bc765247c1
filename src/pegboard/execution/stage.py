"""Neighbouring hooks as one stage around a Handler, which loops over them.

Theory of operation. A hook counts as entered once its `before` has returned, or at once if it has none. Each hook that
was entered is told the end of the call exactly once: by its `after` if the call has a result, else by its `error`.
The two loops below are the whole cost of hooks, so nothing is looked up in them that can be settled before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct

from pegboard.call import Call, Handler, Kept, Reply
from pegboard.execution.hooks import Middleware, is_dynamic, is_overridden, name_of

_log = logging.getLogger("pegboard.middleware")

_LAST_WORDS_SECONDS = 1.0
_SLOW_SECONDS = 1.0


class Hook(Struct, frozen=True):
    """One middleware's hooks as the stage calls them: None where not overridden."""

    owner: Middleware
    before: Callable[[Call], Any] | None
    after: Callable[[Call, Any, float], Any] | None
    error: Callable[[Call, BaseException, float], Any] | None
    dynamic: bool


def read_hook(middleware: Middleware) -> Hook | None:
    """The hooks of a middleware; None if it has none."""
    before, after, error = (
        getattr(middleware, name) if is_overridden(middleware, name) else None for name in ("before", "after", "error")
    )
    if before is None and after is None and error is None:
        return None
    return Hook(middleware, before, after, error, is_dynamic(middleware))


def surround(hooks: Sequence[Hook], inner: Handler) -> Handler:
    """The Handler with these hooks around it, the first one outermost."""
    if not hooks:
        return inner
    if any(hook.dynamic for hook in hooks):
        return _switching(hooks, inner)
    return _fused(hooks, inner)


def _switching(hooks: Sequence[Hook], inner: Handler) -> Handler:
    """A stage whose hooks are asked at each call whether they take part."""
    stages: dict[tuple[bool, ...], Handler] = {}

    async def switching(call: Call) -> Reply:
        key = tuple(not hook.dynamic or bool(hook.owner.enabled) for hook in hooks)
        stage = stages.get(key)
        if stage is None:
            taking_part = [hook for hook, enabled in zip(hooks, key, strict=True) if enabled]
            stage = stages[key] = _fused(taking_part, inner) if taking_part else inner
        return await stage(call)

    return switching


def _placed(hooks: Sequence[Hook], phase: str) -> list[tuple[Callable[..., Any], bool, int]]:
    """The hooks of one phase: each with whether it is `async def`, and how many middlewares are outside it."""
    found = [(getattr(hook, phase), place) for place, hook in enumerate(hooks)]
    return [(hook, inspect.iscoroutinefunction(hook), place) for hook, place in found if hook is not None]


def _fused(hooks: Sequence[Hook], inner: Handler) -> Handler:
    count = len(hooks)
    befores = _placed(hooks, "before")
    afters = _placed(hooks, "after")[::-1]
    remarks = _Remarks(hooks)

    async def fused(call: Call) -> Reply:
        began = perf_counter()
        entered = 0
        try:
            for before, waits, entered in befores:  # noqa: B007 — read where it fails
                said = await before(call) if waits else before(call)
                if said is not None:
                    await remarks.settle(before, said)
            entered = count
            if perf_counter() - began > _SLOW_SECONDS:
                remarks.slow("before", call, perf_counter() - began)
            reply = await inner(call)
        except BaseException as exception:
            await _tell_error(hooks[:entered], call, exception, (perf_counter() - began) * 1000)
            raise
        if not afters:
            return reply
        result = reply.result.value if isinstance(reply.result, Kept) else reply.result
        call.failed = bool(result.get("isError"))
        ended = perf_counter()
        elapsed = (ended - began) * 1000
        for after, waits, place in afters:
            try:
                said = await after(call, result, elapsed) if waits else after(call, result, elapsed)
                if said is not None:
                    await remarks.settle(after, said)
            except BaseException as exception:
                if _ends_the_call(exception, call):
                    await _tell_error(hooks[:place], call, exception, elapsed)
                    raise
                _log.error("the after-hook %s failed; the result stands", name_of(after), exc_info=exception)
        if perf_counter() - ended > _SLOW_SECONDS:
            remarks.slow("after", call, perf_counter() - ended)
        return reply

    return fused


async def _tell_error(hooks: Sequence[Hook], call: Call, exception: BaseException, elapsed: float) -> None:
    """Run the error hooks, the last one first; those of a cancelled call have a second in all.

    When the time is over, hooks that need not wait still run.
    """
    if isinstance(exception, GeneratorExit) and not call.is_current():
        return
    cancelled: BaseException | None = None
    for hook in reversed(hooks):
        if hook.error is None:
            continue
        limit = asyncio.timeout_at(_deadline(exception if cancelled is None else cancelled))
        try:
            async with limit:
                said = hook.error(call, exception, elapsed)
                if inspect.isawaitable(said):
                    await said
        except BaseException as problem:
            if isinstance(problem, GeneratorExit) and not call.is_current():
                raise
            if limit.expired():
                _log.error("the error-hook %s of a cancelled call took longer than it has", name_of(hook.error))
            elif _ends_the_call(problem, call):
                # Cancelled a second time, or only now: that ends this hook, and the others still have their say.
                cancelled = cancelled or problem
            else:
                _log.error("the error-hook %s failed", name_of(hook.error), exc_info=problem)
    if cancelled is not None and not isinstance(exception, asyncio.CancelledError):
        raise cancelled


def _deadline(exception: BaseException) -> float | None:
    """Until when the last words of a cancelled call have to be said, in all stages that this exception goes through."""
    if not isinstance(exception, asyncio.CancelledError):
        return None
    # On the exception, since that is what goes from stage to stage, through tasks too; a call may be tried again.
    last = getattr(exception, "_last_words", None)
    if last is None:
        last = asyncio.get_running_loop().time() + _LAST_WORDS_SECONDS
        exception._last_words = last  # type: ignore[attr-defined]  # an exception takes any attribute
    return float(last)


def _ends_the_call(exception: BaseException, call: Call) -> bool:
    """Whether somebody outside ends the call, and it is not the hook's own doing."""
    if isinstance(exception, GeneratorExit):
        return not call.is_current()
    if not isinstance(exception, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _Remarks:
    """What the author of a hook has to be told, once for each chain."""

    __slots__ = ("_hooks", "_made")

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self._made: set[object] = set()

    async def settle(self, hook: Callable[..., Any], said: Any) -> None:
        """Wait for what a plain function returned to be waited for; anything else is lost, and its author told so."""
        if inspect.isawaitable(said):
            said = await said
        if said is not None and self._is_new(hook):
            _log.warning(
                "%s returned a %s, which nobody reads: to change arguments or results write an `around`",
                name_of(hook),
                type(said).__name__,
            )

    def slow(self, phase: str, call: Call, seconds: float) -> None:
        """Point to hooks that hold their call up, and everybody else's if they block the loop meanwhile."""
        if self._is_new(phase):
            names = [name_of(hook) for one in self._hooks if (hook := getattr(one, phase)) is not None]
            _log.warning(
                "the %s-hooks of %s took %.1f s: one of %s waits long, or blocks the event loop",
                phase,
                call.name,
                seconds,
                ", ".join(names),
            )

    def _is_new(self, remark: object) -> bool:
        new = remark not in self._made
        self._made.add(remark)
        return new
