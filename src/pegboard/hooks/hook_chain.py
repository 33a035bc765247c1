"""Neighbouring hooks as one stage around a Handler.

Theory of operation. A hook counts as entered once its `before` has returned, or at once if it has none. Each hook that
was entered is told the end of the call exactly once: by its `after` if the call has a result, else by its `error`.

The stage is a function written for its hooks: one line for each of them instead of a loop. That is a fifth faster,
since the interpreter learns for each line whom it calls. Stages of the same shape (who has which hooks, and which of
these are `async def`) share the text, which is compiled once; whatever is rare is left to functions beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from textwrap import indent
from time import perf_counter
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Call, EncodedResult, Handler, Reply
from pegboard.hooks.middleware import Middleware, is_dynamic, is_overridden, name_of

_log = logging.getLogger("pegboard.middleware")

_CLEANUP_SECONDS = 1.0
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


def wrap_hooks(hooks: Sequence[Hook], inner: Handler) -> Handler:
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


def _fused(hooks: Sequence[Hook], inner: Handler) -> Handler:
    shape = tuple((_hook_style(hook.before), _hook_style(hook.after)) for hook in hooks)
    return _compiled(shape)(inner, tuple(hooks), _SlowPath(tuple(hooks)))


HookStyle: TypeAlias = Literal["absent", "async", "plain"]


def _hook_style(hook: Callable[..., Any] | None) -> HookStyle:
    if hook is None:
        return "absent"
    return "async" if inspect.iscoroutinefunction(hook) else "plain"


_STAGE = """\
def write(inner, hooks, rare):
    {names}
    async def stage(call):
        began = perf_counter()
        entered = 0
        try:
            {befores}
            entered = {count}
            if rare.watching:
                rare.tell_slow("before", call, perf_counter() - began)
            reply = await inner(call)
        except BaseException as exception:
            await rare.fail(call, exception, entered, began)
            raise
        result = reply.result
        if type(result) is not dict:
            result = rare.plain(result)
        if "isError" in result or call.failed:
            call.failed = bool(result.get("isError"))
        ended = perf_counter()
        elapsed = (ended - began) * 1000
        {afters}
        now = perf_counter()
        if now - began > SLOW_SECONDS:
            rare.watching = True
            rare.tell_slow("after", call, now - ended)
        return reply
    return stage
"""
_BEFORE = """\
entered = {place}
said = {wait}before{place}(call)
if said is not None:
    await rare.settle(before{place}, said)
"""
_AFTER = """\
try:
    said = {wait}after{place}(call, result, elapsed)
    if said is not None:
        await rare.settle(after{place}, said)
except BaseException as exception:
    if await rare.after_failed(call, exception, {place}, elapsed):
        raise
"""


@lru_cache(maxsize=256)
def _compiled(
    shape: tuple[tuple[HookStyle, HookStyle], ...],
) -> Callable[[Handler, tuple[Hook, ...], _SlowPath], Handler]:
    """What makes a stage of this shape."""
    names: list[str] = []
    befores: list[str] = []
    afters: list[str] = []
    for place, manners in enumerate(shape):
        for phase, manner, lines, text in zip(
            ("before", "after"), manners, (befores, afters), (_BEFORE, _AFTER), strict=True
        ):
            if manner != "absent":
                names.append(f"{phase}{place} = hooks[{place}].{phase}")
                lines.append(text.format(place=place, wait="await " if manner == "async" else ""))
    source = _STAGE.format(
        names=_indented(names, 4),
        befores=_indented(befores, 12),
        afters=_indented(reversed(afters), 8),
        count=len(shape),
    )
    written: dict[str, Any] = {"perf_counter": perf_counter, "SLOW_SECONDS": _SLOW_SECONDS}
    exec(compile(source, "<hooks>", "exec"), written)  # noqa: S102 — the text above and numbers of our own, no more
    writer: Callable[[Handler, tuple[Hook, ...], _SlowPath], Handler] = written["write"]
    return writer


def _indented(parts: Iterable[str], width: int) -> str:
    return indent("\n".join(part.rstrip("\n") for part in parts) or "pass", " " * width).lstrip()


class _SlowPath:
    """What a stage does seldom: settle what a hook returned or raised, and tell its author, once for each chain.

    A clock between the hooks and the tool would cost every call; it is looked at once a call has taken long.
    """

    __slots__ = ("_hooks", "_warned", "watching")

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self.watching = False
        self._hooks = hooks
        self._warned: set[object] = set()

    def plain(self, result: Any) -> Any:
        """The result of a reply that is no dict."""
        return result.value if isinstance(result, EncodedResult) else result

    async def fail(self, call: Call, exception: BaseException, entered: int, began: float) -> None:
        await _run_error_hooks(self._hooks[:entered], call, exception, (perf_counter() - began) * 1000)

    async def after_failed(self, call: Call, exception: BaseException, place: int, elapsed: float) -> bool:
        """Whether the call is over; else the result stands, whatever was said of it."""
        if _ends_the_call(exception, call):
            await _run_error_hooks(self._hooks[:place], call, exception, elapsed)
            return True
        _log.error("the after-hook %s failed; the result stands", name_of(self._hooks[place].after), exc_info=exception)
        return False

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

    def tell_slow(self, phase: str, call: Call, seconds: float) -> None:
        """Point to hooks that hold their call up, and everybody else's if they block the loop meanwhile."""
        if seconds > _SLOW_SECONDS and self._is_new(phase):
            names = [name_of(hook) for one in self._hooks if (hook := getattr(one, phase)) is not None]
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
        last = asyncio.get_running_loop().time() + _CLEANUP_SECONDS
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
