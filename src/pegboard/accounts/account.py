"""The account of one caller: what it uses, and what it may use in this process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from pegboard.accounts.meter import Meter
from pegboard.accounts.quota import FLOWS, HELD, Quota
from pegboard.errors import QuotaExceeded

HELD_BACK_SECONDS: Final = 1.0
"""The longest time that a rejection is held back."""
_REJECTIONS: Final = 20
"""Rejections of one account per second that are sent at once."""

_CLAIMS: Final = 4
"""Claims that one request waits for: of different amounts."""

_PHRASES: Final = {
    "rate": "{amount:,} requests per {period}",
    "bytes": "{amount:,} bytes of requests per {period}",
    "tokens": "{amount:,} tokens of results per {period}",
    "calls": "{amount:,} calls at the same time",
    "streams": "{amount:,} open streams",
    "sessions": "{amount:,} open sessions",
}
_PERIODS: Final = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
# Until something that is held may have been returned.
_RETRY_SECONDS: Final = {"calls": 1, "streams": 30, "sessions": 30}


class Shares(Protocol):
    """Gives an account more of what it shares with other processes."""

    def borrow(self, account: Account) -> None:
        """Give an account an equal part of everything, and claim it meanwhile."""

    def claim(self, account: Account, wanted: str) -> Awaitable[None] | None:
        """Try to get more of one amount; None if there is nothing to wait for."""

    def forget_claims(self) -> None:
        """Claim everything again before the next use."""


class Account:
    """The use of one caller, and the amounts for it in this process: the whole quota, or a share of it.

    `most` has the amounts that are held and returned, `meters` those that are used up.
    """

    __slots__ = (
        "_clock", "_rejections", "_rejections_until", "_shares", "held", "key", "meters", "most", "quota", "roles", "unclaimed", "used_at",
    )  # fmt: skip

    def __init__(self, key: str, quota: Quota, clock: Callable[[], float], shares: Shares | None = None) -> None:
        self.key = key
        self.roles: frozenset[str] = frozenset()
        self.held = dict.fromkeys(HELD, 0)
        self.most: dict[str, float] = {}
        self.meters: dict[str, Meter] = {}
        self._clock = clock
        self._shares = shares
        # Nothing of what it shares with other processes is for this one yet.
        self.unclaimed = shares is not None
        self.used_at = clock()
        self._rejections = 0
        self._rejections_until = -math.inf
        self.quota = quota
        self.apply(quota)

    def apply(self, quota: Quota, units: Callable[[str, int], int] = lambda _, amount: amount) -> None:
        """Set a quota; `units` are those of an amount that are for this process."""
        self.quota = quota
        for name in HELD:
            amount = quota.amount(name)
            self.most[name] = math.inf if amount is None else units(name, amount)
        meters, self.meters = self.meters, {}
        for name in FLOWS:
            limit = quota.flow(name)
            if limit is None:
                continue
            meter = meters.get(name)
            if meter is None or meter.limit != limit:
                before = meter
                meter = Meter(limit, units(name, limit.amount))
                if before is not None:
                    # What was used under another limit stays used.
                    meter.paid_at = before.paid_at
            else:
                meter.set_units(units(name, limit.amount))
            self.meters[name] = meter

    def use_shares(self, shares: Shares | None) -> None:
        """Share everything with other processes from now on, or nothing."""
        self._shares, self.unclaimed = shares, shares is not None

    # -- requests ------------------------------------------------------------------------------------------------------

    def enter(self, size: int) -> Awaitable[None] | None:
        """Charge a request of that size, and check that a call may begin.

        Raises QuotaExceeded, or returns something to await, which ends like that as well.
        """
        self.used_at = now = self._clock()
        name = "calls" if self.unclaimed else self._find_exceeded(now, size)
        if not name:
            return None
        shares = self._shares
        more = None if shares is None else shares.claim(self, name)
        if shares is not None and more is not None:
            return self._enter_later(shares, more, size)
        rejection, wait = self._reject(name, now, size)
        if wait:
            return self._hold_back(rejection, wait)
        raise rejection

    def _find_exceeded(self, now: float, size: int) -> str:
        """What a request exceeds; an empty text if it was charged."""
        if self.held["calls"] >= self.most["calls"]:
            return "calls"
        uses = {"rate": 1, "bytes": size, "tokens": 0}
        for name, meter in self.meters.items():
            if not meter.take(now, uses[name]):
                for charged in self.meters:
                    if charged == name:
                        return name
                    self.meters[charged].give_back(uses[charged])
        return ""

    async def _enter_later(self, shares: Shares, more: Awaitable[None] | None, size: int) -> None:
        name = ""
        for _ in range(_CLAIMS):
            if more is None:
                break
            await more
            name = self._find_exceeded(self._clock(), size)
            if not name:
                return
            more = shares.claim(self, name)
        raise self._reject(name, self._clock(), size)[0]

    def _reject(self, name: str, now: float, size: int) -> tuple[QuotaExceeded, float]:
        """The rejection, and how long it is held back: a caller that does not stop gets its rejections slowly."""
        if now >= self._rejections_until:
            self._rejections, self._rejections_until = 0, now + 1.0
        self._rejections += 1
        rejection = self.exceeded(name, size)
        wait = min(HELD_BACK_SECONDS, rejection.retry_after or 0.0)
        return rejection, wait if self._rejections > _REJECTIONS else 0.0

    async def _hold_back(self, rejection: QuotaExceeded, seconds: float) -> None:
        await asyncio.sleep(seconds)
        raise rejection

    def exceeded(self, name: str, size: int = 1) -> QuotaExceeded:
        """The rejection of what exceeds the amount of that name."""
        meter = self.meters.get(name)
        if meter is None:
            seconds = _RETRY_SECONDS.get(name, 1)
            limit = _PHRASES[name].format(amount=self.quota.amount(name))
            return QuotaExceeded(
                f"The limit of {limit} for one caller is reached. Try again in {seconds} s.", name, seconds
            )
        use = size if name == "bytes" else int(name == "rate")
        wait = meter.wait(self._clock(), use)
        seconds = max(1, math.ceil(min(wait, meter.limit.seconds)))
        limit = _PHRASES[name].format(amount=meter.limit.amount, period=_PERIODS[meter.limit.seconds])
        return QuotaExceeded(
            f"The limit of {limit} for one caller is reached. Try again in {seconds} s.",
            name,
            seconds,
            policy=(meter.limit.amount, meter.limit.seconds),
        )

    def low_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The RateLimit header of a response if less than a quarter of the requests is left, else none."""
        meter = self.meters.get("rate")
        if meter is None:
            return ()
        now = self.used_at
        debt = meter.paid_at - now
        if debt * 4 <= 3 * meter.limit.seconds:
            return ()
        return ((b"ratelimit", b'"rate";r=%d;t=%d' % (meter.left(now), math.ceil(debt))),)

    # -- what is held --------------------------------------------------------------------------------------------------

    def take(self, name: str, amount: int = 1) -> bool:
        """Hold so much more; False if that would be too much."""
        self.used_at = self._clock()
        if self.unclaimed and self._shares is not None:
            self._shares.borrow(self)
        if not self.has_room(name, amount):
            if self._shares is not None:
                # For the next attempt.
                self._shares.claim(self, name)
            return False
        self.held[name] += amount
        return True

    def has_room(self, name: str, amount: int = 1) -> bool:
        """Whether so much more can be held."""
        return self.held[name] + amount <= self.most[name]

    def give_back(self, name: str, amount: int = 1) -> None:
        """Hold so much less."""
        self.held[name] -= amount

    def spend(self, name: str, amount: int) -> None:
        """Charge what was used already; what it exceeds delays the next request."""
        meter = self.meters.get(name)
        if meter is not None:
            meter.charge(self._clock(), amount)

    @property
    def idle(self) -> bool:
        """Whether nothing is held or owed, so that a new account would be the same."""
        now = self._clock()
        return not any(self.held.values()) and all(meter.paid_at <= now for meter in self.meters.values())
