"""Rate limits per tool, principal or client.

Theory of operation. This is the generic cell rate algorithm: an account is one number, the time at which its calls so
far will have been paid for. A call adds the price of one call (the period divided by the limit) and is allowed while
the sum stays within `burst` prices of now. There is no window at whose edge twice the limit passes, and the time to
retry after is a subtraction. All times are whole microseconds, so exactly `limit` calls pass, without rounding errors,
here and in the Lua script of the shared store, where a number holds 53 bits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from pegboard.call import Call
from pegboard.errors import DeclarationError, LimitReached, PegboardError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import OTHERS, Key, describe_key, key_function, tool_of

Microseconds: TypeAlias = int
Period: TypeAlias = float | Literal["second", "minute", "hour", "day"]

_log = logging.getLogger("pegboard.limits")
_PERIODS: dict[str, float] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


class StoreUnavailable(PegboardError):
    """The store of accounts is unavailable; the text says why, for the log."""


class RateStore(Protocol):
    """Holds the accounts: of this process, or shared by several."""

    async def take(self, key: str, price: Microseconds, burst: int) -> Microseconds:
        """Charge one call to an account. Returns 0 if it may run, else the time until it may; then nothing was charged.

        Raises StoreUnavailable if the account cannot be read.
        """


class MemoryRates:
    """The accounts of one process, at most `accounts` of them; beyond that, new ones share one account."""

    def __init__(self, accounts: int = 100_000, *, clock: Callable[[], Microseconds] | None = None) -> None:
        self._paid_at: dict[str, Microseconds] = {}
        self._accounts = accounts
        self._clock = clock or _microseconds
        self._swept_at = -1_000_000

    async def take(self, key: str, price: Microseconds, burst: int) -> Microseconds:
        """Charge one call; return 0, or the time until it is allowed."""
        now = self._clock()
        paid_at = self._paid_at.get(key)
        if paid_at is None and len(self._paid_at) >= self._accounts and not self._sweep(now):
            key = OTHERS
            paid_at = self._paid_at.get(key)
        if paid_at is None or paid_at < now:
            paid_at = now
        early = paid_at + price - price * burst - now
        if early > 0:
            return early
        self._paid_at[key] = paid_at + price
        return 0

    def _sweep(self, now: Microseconds) -> bool:
        """Drop accounts that owe nothing, at most once per second; returns whether there is space now."""
        if now - self._swept_at >= 1_000_000:
            self._swept_at = now
            self._paid_at = {key: paid_at for key, paid_at in self._paid_at.items() if paid_at > now}
        return len(self._paid_at) < self._accounts


class RateLimit(Middleware):
    """At most `limit` calls, of every kind, `per` period for each account that `by` names, `burst` of them at once.

    `store` holds the accounts: this process by default, `RedisRates(…)` for several. If it is unavailable, calls are
    allowed (`fail="open"`) or rejected (`"closed"`), which is logged once and counted in `unavailable`. Limits with the
    same store and the same `name` share an account.
    """

    order = 5

    def __init__(
        self,
        limit: int,
        per: Period = "second",
        *,
        by: Key = ("tool", "principal"),
        burst: int | None = None,
        store: RateStore | None = None,
        fail: Literal["open", "closed"] = "open",
        name: str | None = None,
    ) -> None:
        for option, number in (("limit", limit), ("burst", burst)):
            if not isinstance(number, int) and not (option == "burst" and number is None):
                raise DeclarationError(
                    f'{option}={number!r}: use a whole number, for example RateLimit(100, per="minute")'
                )
        is_number = isinstance(per, int | float)
        seconds = float(per) if is_number else _PERIODS.get(per, math.nan) if isinstance(per, str) else math.nan
        if not 0 < seconds < math.inf:
            raise DeclarationError(f"per={per!r}: use seconds greater than 0, or one of {', '.join(_PERIODS)}")
        if not 1 <= limit <= seconds * 1_000_000 or (burst is not None and burst < 1):
            raise DeclarationError(
                f"limit={limit}, burst={burst}: both must be at least 1, and the limit at most 1,000,000 per second"
            )
        if fail not in ("open", "closed"):
            raise DeclarationError(f'fail={fail!r}: use "open" (allow calls) or "closed" (reject them)')
        by = by if callable(by) or isinstance(by, str) else tuple(by)
        self.limit, self.seconds, self.burst, self.fail = limit, seconds, burst or limit, fail
        self.refused = self.unavailable = 0
        self._price = math.ceil(seconds * 1_000_000 / limit)
        calls = "1 call" if limit == 1 else f"{limit} calls"
        self._named = f"{calls} per {per}" if isinstance(per, str) else f"{calls} in {per:g} s"
        self._prefix = (name or f"{limit}/{seconds:g}s:{describe_key(by)}") + "\x1f"
        self._key = key_function(by)
        self._store: RateStore = MemoryRates() if store is None else store
        self._is_down = False

    async def before(self, call: Call) -> None:
        try:
            wait = await self._store.take(self._prefix + self._key(call), self._price, self.burst)
        except StoreUnavailable as problem:
            self._report_unavailable(call, problem)
            return
        if self._is_down:
            self._is_down = False
            _log.info("the store of the rate limit (%s) is available again", self._named)
        if wait:
            self.refused += 1
            # Rounded up, so that a call at that time is not rejected again.
            seconds = math.ceil(wait / 100_000) / 10
            raise LimitReached(
                f"{tool_of(call)} was not run: the limit of {self._named} is reached. Try again in {seconds:g} s.",
                "rate_limit",
                retry_after=seconds,
                limit=self.limit,
                seconds=self.seconds,
            )

    async def stop(self) -> None:
        """Close a store that holds connections; the next call opens them again."""
        close = getattr(self._store, "close", None)
        if close is not None:
            await close()

    def _report_unavailable(self, call: Call, problem: StoreUnavailable) -> None:
        self.unavailable += 1
        if not self._is_down:
            self._is_down = True
            outcome = "let through" if self.fail == "open" else "refused"
            _log.error("the rate limit (%s) cannot be checked, calls are %s: %s", self._named, outcome, problem)
        if self.fail == "closed":
            raise LimitReached(
                f"{tool_of(call)} was not run: its rate limit cannot be checked now. Try again in 1 s.",
                "rate_limit_unavailable",
                retry_after=1.0,
            )


def _microseconds() -> Microseconds:
    return time.monotonic_ns() // 1000
