"""Middleware: hooks before, after and on the error of every call, with an order and a switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pegboard.call import Call, Json


class Middleware:
    """Subclass it and override what you need; what you leave out costs nothing.

    `order`: 1–10 infrastructure, 10–50 logging and monitoring, 50–100 business; the lowest is outermost. `before` runs
    in that order, `after` and `error` in reverse. `enabled` may be set at any time, or overridden by a property, which
    is then asked at each call. A subclass may also have `async def around(self, call, next)`, inside its hooks.
    """

    order: int = 0
    enabled: bool = True

    async def before(self, call: Call) -> None:
        """The arguments are as sent; raising ends the call."""

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        """The call has a result, which may be an error for the model (`call.failed`)."""

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        """The call raised, or was cancelled."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if name in ("order", "enabled"):
            for changed in self.__dict__.get("_watchers", ()):
                changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Be called when `order` or `enabled` is set."""
        self.__dict__.setdefault("_watchers", []).append(changed)


def is_overridden(middleware: Middleware, method: str) -> bool:
    """Whether a subclass, or the instance itself, has its own version of a hook."""
    return method in middleware.__dict__ or getattr(type(middleware), method) is not getattr(Middleware, method)


def is_dynamic(middleware: Any) -> bool:
    """Whether `enabled` is a property: then it is asked at each call."""
    return isinstance(getattr(type(middleware), "enabled", None), property)
