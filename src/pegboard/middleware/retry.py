"""Retries failed calls of tools that are safe to run twice."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection

from pegboard.backoff import backoff
from pegboard.call import Call, Handler, Reply
from pegboard.errors import DeclarationError, DelegationFailed, Refusal, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.idempotency import promised_tools

_log = logging.getLogger("pegboard.retry")


class Retry(Middleware):
    """Retries the named tools, or those with `idempotentHint` or `readOnlyHint`, up to `attempts` runs; nothing else.

    Before each retry it waits a random part of `wait` seconds, which doubles each time up to `longest`. A run is
    retried if it raises one of `on`, for example because a server behind a gateway failed; a ToolError or a Refusal is
    a result of the author's and is not retried unless `on` names it. A timeout inside it (order 120) applies to each
    run; `retried` counts, and `call.state["attempts"]` has the number for a call. `sleep` and `draw` are for tests.
    """

    order = 115
    kinds = ("tool",)

    def __init__(
        self,
        attempts: int = 3,
        *,
        tools: Collection[str] | None = None,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
        wait: float = 0.1,
        longest: float = 5.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not 1 <= attempts <= 100 or not 0 <= wait <= longest:
            raise DeclarationError(
                f"attempts={attempts!r}, wait={wait!r}, longest={longest!r}: use 1 to 100 attempts, and 0 <= wait <= "
                "longest"
            )
        self.attempts, self.wait, self.longest = attempts, wait, longest
        self.retried = 0
        self._on = on
        self._answers = tuple(kind for kind in (ToolError, Refusal) if not _names(on, kind))
        self._covers = promised_tools(tools, "idempotentHint", "readOnlyHint")
        self._sleep, self._draw = sleep, draw

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and retry it when it fails."""
        if not self._covers(call):
            return await proceed(call)
        attempt = 1
        while True:
            call.state["attempts"] = attempt
            try:
                return await proceed(call)
            except self._on as problem:
                answered = isinstance(problem, self._answers) and not isinstance(problem, DelegationFailed)
                if answered or attempt >= self.attempts:
                    raise
                self.retried += 1
                _log.info("%s failed (%s), attempt %d of %d", call.name, type(problem).__name__, attempt, self.attempts)
            await self._sleep(self._draw() * backoff(attempt, self.wait, self.longest))
            attempt += 1


def _names(on: type[Exception] | tuple[type[Exception], ...], kind: type[Exception]) -> bool:
    """Whether `on` names this kind of error or a base of it, other than Exception."""
    return any(issubclass(error, kind) for error in (on if isinstance(on, tuple) else (on,)))
