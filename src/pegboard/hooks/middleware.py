"""The base class of middleware: hooks before, after and on the error of every call."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Collection, Mapping
from math import isnan
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

from pegboard.call import Call, Json
from pegboard.call_target import KINDS
from pegboard.errors import DeclarationError
from pegboard.hooks.observation import Observation, Report
from pegboard.stores.store import Store

_COMPOSED_FROM = frozenset({"order", "enabled", "kinds", "before", "after", "error", "around", "observe"})
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "before": ("call",),
    "after": ("call", "result", "elapsed_ms"),
    "error": ("call", "exception", "elapsed_ms"),
    "around": ("call", "next"),
    "observe": ("call", "seen"),
    "start": (),
    "stop": (),
}


class _WatchedMeta(ABCMeta):
    """Lets `enabled` and `order` be set on a class at any time; derived from ABCMeta, so that hooks may be abstract."""

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in _COMPOSED_FROM:
            for middleware in [attached for attached in _attached.values() if issubclass(type(attached), cls)]:
                middleware._notify_watchers()


class Middleware(metaclass=_WatchedMeta):
    """Base class of middleware: override the hooks you need; the others cost nothing.

    `order`: 1–10 infrastructure, 10–50 logging and monitoring, 50–100 business; the lowest is outermost. `before` runs
    in that order, `after` and `error` in reverse. `enabled` can be set at any time, on an instance or on its class, or
    overridden by a property, which is then read once per call. A subclass may also define `async def around(self, call,
    next)`, which runs inside its hooks. To measure or record calls without changing them, override `observe`. Open resources in `start` and close them in `stop`.

    The hooks run for calls of tools, and for requests for prompts, resources and completions; `kinds = ("tool",)` limits
    them to tools. With `serves_resources = True`, they also run for resources that the board does not have, whatever the
    middleware is attached to, so that an `around` can answer.
    """

    order: float = 0
    enabled: bool = True
    kinds: Collection[str] = KINDS
    serves_resources: bool = False

    async def before(self, call: Call) -> None:
        """The arguments are not repaired yet, and can be replaced (`call.replace_arguments`); raising ends the call."""

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        """The call has a result, which may be an error for the model (`call.failed`); do not modify it."""

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        """The call raised, or was cancelled."""

    def observe(self, call: Call, seen: Observation) -> None:
        """The call has ended, however it did, and every hook has run; a plain function, which cannot delay the call.

        `seen` can be kept, `call` must not be.
        """

    # In place of `observe`, for middleware that has to take little time.
    _report: Report | None = None

    def use_store(self, store: Store) -> None:
        """The board has a store, which other processes share; called before `start`."""

    async def start(self) -> None:
        """The first board that this is attached to starts to serve; also called if disabled."""

    async def stop(self) -> None:
        """The last board has stopped, and no call is running; it may start again."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if name in _COMPOSED_FROM:
            self._notify_watchers()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if name in _COMPOSED_FROM:
            self._notify_watchers()

    def _watch(self, changed: Callable[[], None]) -> None:
        """Call back when a setting changes that chains are composed from."""
        watchers = self.__dict__.setdefault("_watchers", [])
        if changed not in watchers:
            watchers.append(changed)
        _attached[id(self)] = self

    def _notify_watchers(self) -> None:
        for changed in self.__dict__.get("_watchers", ()):
            changed()


# By id: a subclass may define equality, and then has no hash.
_attached: WeakValueDictionary[int, Middleware] = WeakValueDictionary()


def is_overridden(middleware: Middleware, method: str) -> bool:
    """Whether a subclass, or the instance itself, overrides a hook."""
    return method in middleware.__dict__ or getattr(type(middleware), method, None) is not getattr(Middleware, method)


def is_dynamic(middleware: Middleware) -> bool:
    """Whether `enabled` is a property or another descriptor, which is read at each call."""
    return hasattr(type(inspect.getattr_static(middleware, "enabled", True)), "__get__")


def check_middleware(middleware: object) -> None:
    """Reject an object that is neither a set of hooks nor an `around`."""
    if isinstance(middleware, Middleware):
        if not issubclass(type(middleware), Middleware):
            _complete_double(middleware)
        _check_hooks(middleware)
        return
    if isinstance(middleware, type) and issubclass(middleware, Middleware):
        raise DeclarationError(f"{middleware.__name__} is a class: attach an instance, {middleware.__name__}()")
    if not callable(middleware):
        raise DeclarationError(f"A middleware is a Middleware or an async function of (call, next), got {middleware!r}")
    _check_around(middleware, name_of(middleware))


def _complete_double(double: Any) -> None:
    """Give a test double, such as `Mock(spec=Middleware)`, the settings that its test has not set."""
    for name, types in (("order", (int, float)), ("enabled", (bool,)), ("kinds", (tuple, list, set, frozenset))):
        # The mock of an attribute says that it is an instance of the attribute's type.
        if not issubclass(type(getattr(double, name)), types):
            setattr(double, name, getattr(Middleware, name))


def _check_hooks(middleware: Middleware) -> None:
    kind = type(middleware).__name__
    order: object = middleware.order
    if not isinstance(order, int | float) or isnan(order):
        raise DeclarationError(f"{kind}.order must be a number, got {order!r}")
    check_kinds(middleware.kinds, f"{kind}.kinds")
    for name in ("before", "after", "error", "observe", "start", "stop"):
        if is_overridden(middleware, name):
            hook = getattr(middleware, name)
            if not callable(hook):
                raise DeclarationError(
                    f"{kind}.{name} must be a hook that can be called, got {hook!r:.80}; choose another name for it"
                )
            if _is(inspect.isgeneratorfunction, hook) or _is(inspect.isasyncgenfunction, hook):
                raise DeclarationError(
                    f"{kind}.{name} is a generator, whose values would be lost; use an `around` instead"
                )
            if name == "observe" and _is(inspect.iscoroutinefunction, hook):
                raise DeclarationError(f"{kind}.observe is not awaited: write it as a plain `def`")
            _check_takes(hook, f"{kind}.{name}", _ARGUMENTS[name])
    around = getattr(middleware, "around", None)
    if around is not None:
        _check_around(around, f"{kind}.around")


def _is(kind: Callable[[object], bool], hook: object) -> bool:
    # An autospecced double has a `__code__` that is a double, too: it would be a function of every kind.
    return isinstance(getattr(hook, "__code__", None), CodeType | None) and kind(hook)


def check_kinds(kinds: object, name: str) -> None:
    """Reject kinds of requests that do not exist."""
    if isinstance(kinds, str) or not isinstance(kinds, Collection) or not KINDS.issuperset(kinds):
        raise DeclarationError(
            f"{name} must be a collection of {', '.join(map(repr, sorted(KINDS)))}, got {kinds!r:.80}"
        )


def _check_around(around: Callable[..., Any], name: str) -> None:
    if not inspect.iscoroutinefunction(around) and not inspect.iscoroutinefunction(
        getattr(around, "__call__", None)  # noqa: B004 — not whether it can be called, but how
    ):
        raise DeclarationError(f"{name} must be `async def` and take (call, next)")
    _check_takes(around, name, _ARGUMENTS["around"])


def _check_takes(function: Callable[..., Any], name: str, given: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*given)
    except TypeError:
        raise DeclarationError(f"{name} is called with ({', '.join(given)}) and takes {signature}") from None


def name_of(function: object) -> str:
    """The name of a hook or an `around` as its author knows it."""
    return getattr(function, "__qualname__", type(function).__name__)
