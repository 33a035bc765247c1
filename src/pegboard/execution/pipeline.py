"""Composes the middleware of a tool into one Handler, once for each change and not at each call.

Neighbouring hooks become one stage that loops over them; each `around` is a layer of its own. A hook that is not
overridden is left out, one that is disabled is not there at all, and a plain `def` is called without an await.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Around, Call, Done, Handler, Kept, Reply
from pegboard.errors import DeclarationError
from pegboard.execution.hooks import Middleware, is_dynamic, is_overridden
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.middleware")

Scope: TypeAlias = Literal["board", "group", "category", "tag", "tool"]
_SCOPES: tuple[Scope, ...] = ("board", "group", "category", "tag", "tool")
_LAST_WORDS_SECONDS = 1.0


class Attachment(Struct, frozen=True):
    """A middleware and what it is attached to."""

    middleware: Middleware | Around
    scope: Scope
    target: str
    order: int | None
    index: int

    def covers(self, tool: Tool | None) -> bool:
        """Whether it goes around calls of this tool; None is a tool that nobody knows."""
        if self.scope == "board":
            return True
        if tool is None:
            return False
        match self.scope:
            case "group":
                return tool.name.startswith(self.target + ".")
            case "category":
                return tool.category == self.target
            case "tag":
                return self.target in tool.tags
            case _:
                return tool.name == self.target


def check_middleware(middleware: object) -> None:
    """Refuse what can be neither a set of hooks nor an `around`."""
    if isinstance(middleware, Middleware):
        return
    if isinstance(middleware, type) and issubclass(middleware, Middleware):
        raise DeclarationError(f"{middleware.__name__} is a class: attach an instance, {middleware.__name__}()")
    if not callable(middleware):
        raise DeclarationError(f"A middleware is a Middleware or an async function of (call, next), got {middleware!r}")
    if not inspect.iscoroutinefunction(middleware) and not inspect.iscoroutinefunction(
        getattr(middleware, "__call__", None)  # noqa: B004 — not whether it can be called, but how
    ):
        raise DeclarationError(f"{_name(middleware)} must be `async def` and take (call, next)")


def compose(attachments: Iterable[Attachment], tool: Tool | None, inner: Handler) -> Handler:
    """The Handler of a tool with all its middleware around it, the lowest order outermost."""
    chosen = [one for one in attachments if one.covers(tool)]
    if tool is not None:
        # Behind everything that the board attached to the same tool: an index no board reaches.
        own = enumerate(tool.middleware, 1 << 30)
        chosen += [Attachment(middleware, "tool", tool.name, None, index) for index, middleware in own]
    chosen.sort(key=lambda one: (_order(one), _SCOPES.index(one.scope), one.index))
    handler = inner
    stage: list[Middleware] = []
    for one in reversed(chosen):
        middleware = one.middleware
        if not isinstance(middleware, Middleware):
            handler = _layer(middleware, _stage(stage, handler))
            stage = []
            continue
        if not is_dynamic(middleware) and not middleware.enabled:
            continue
        around = getattr(middleware, "around", None)
        if around is not None:
            # Its own hooks are outside its around, those collected so far inside.
            handler = _layer(_switched(middleware, around), _stage(stage, handler))
            stage = []
        stage.insert(0, middleware)
    return _stage(stage, handler)


def _order(one: Attachment) -> int:
    return int(getattr(one.middleware, "order", 0)) if one.order is None else one.order


def _layer(around: Around, inner: Handler) -> Handler:
    async def surrounded(call: Call) -> Reply:
        reply = await around(call, inner)
        if not isinstance(reply, Done):
            raise TypeError(f"the middleware {_name(around)} returned {type(reply).__name__} and not a reply")
        return reply

    return surrounded


def _switched(middleware: Middleware, around: Around) -> Around:
    if not is_dynamic(middleware):
        return around

    async def switched(call: Call, proceed: Handler) -> Reply:
        return await around(call, proceed) if middleware.enabled else await proceed(call)

    return switched


class _Hook(Struct, frozen=True):
    """One middleware's hooks as the stage calls them: None where not overridden."""

    owner: Middleware
    before: Callable[[Call], Any] | None
    after: Callable[[Call, Any, float], Any] | None
    error: Callable[[Call, BaseException, float], Any] | None
    dynamic: bool


def _stage(middleware: Sequence[Middleware], inner: Handler) -> Handler:
    hooks = [
        _Hook(
            one,
            one.before if is_overridden(one, "before") else None,
            one.after if is_overridden(one, "after") else None,
            one.error if is_overridden(one, "error") else None,
            is_dynamic(one),
        )
        for one in middleware
    ]
    hooks = [hook for hook in hooks if hook.before or hook.after or hook.error]
    if not hooks:
        return inner
    if any(hook.dynamic for hook in hooks):
        return _switching_stage(hooks, inner)
    return _fused(hooks, inner)


def _switching_stage(hooks: list[_Hook], inner: Handler) -> Handler:
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


def _fused(hooks: list[_Hook], inner: Handler) -> Handler:
    befores = [(hook.before, inspect.iscoroutinefunction(hook.before)) for hook in hooks]
    afters = [(hook.after, inspect.iscoroutinefunction(hook.after)) for hook in reversed(hooks) if hook.after]

    async def fused(call: Call) -> Reply:
        began = perf_counter()
        call._task = asyncio.current_task()
        entered = 0
        try:
            for before, waits in befores:
                if before is not None:
                    if waits:
                        await before(call)
                    else:
                        await _settled(before(call))
                entered += 1
            reply = await inner(call)
        except BaseException as exception:
            await _tell_error(hooks[:entered], call, exception, (perf_counter() - began) * 1000)
            raise
        if afters:
            result = reply.result
            if isinstance(result, Kept):
                result = result.value
            call.failed = bool(result.get("isError"))
            elapsed = (perf_counter() - began) * 1000
            for after, waits in afters:
                try:
                    if waits:
                        await after(call, result, elapsed)
                    else:
                        await _settled(after(call, result, elapsed))
                except Exception:  # noqa: BLE001 — the result stands, whatever is said of it
                    _log.exception("the after-hook %s failed; the result stands", _name(after))
        return reply

    return fused


async def _tell_error(hooks: Sequence[_Hook], call: Call, exception: BaseException, elapsed: float) -> None:
    """Run the error hooks of those that were entered, the last one first; for a cancelled call, in a second in all."""
    if isinstance(exception, GeneratorExit):
        return
    limit = _LAST_WORDS_SECONDS if isinstance(exception, asyncio.CancelledError) else None
    try:
        async with asyncio.timeout(limit):
            for hook in reversed(hooks):
                if hook.error is not None:
                    try:
                        await _settled(hook.error(call, exception, elapsed))
                    except Exception:  # noqa: BLE001 — the rest still run
                        _log.exception("the error-hook %s failed", _name(hook.error))
    except TimeoutError:
        _log.error("the error-hooks of a cancelled call took longer than %g s", _LAST_WORDS_SECONDS)


async def _settled(outcome: Any) -> None:
    if inspect.isawaitable(outcome):
        await outcome


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
