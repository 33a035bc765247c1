"""Meters an amount per period.

Theory of operation. This is the generic cell rate algorithm: a meter is one number, the time at which everything used so
far will have been paid for. Use is allowed while that is at most one period from now, so a caller may use a whole period's
amount at once and then continues at the rate. There is no window at whose edge twice the amount passes, and the time to
retry after is a subtraction. Times are those of the monotonic clock, so setting the clock changes nothing.

A process that shares an amount with others has units of it. Its price of one unit of use is higher by the same factor;
the period stays. Units that move between processes carry their part of the debt with them.
"""

from __future__ import annotations

import math
from typing import Final

from pegboard.accounts.quota import FlowLimit

# Sums of floating-point prices; far below any price.
_TOLERANCE: Final = 1e-6


class Meter:
    """What one account has used of one amount; `units` of the amount are for this process."""

    __slots__ = ("_most", "limit", "paid_at", "price", "units")

    def __init__(self, limit: FlowLimit, units: int) -> None:
        self.limit = limit
        self._most = limit.seconds + _TOLERANCE
        self.paid_at = -math.inf
        self.set_units(units)

    def set_units(self, units: int) -> None:
        """Use so many units of the amount from now on."""
        self.units = units
        self.price = self.limit.seconds / units if units > 0 else math.inf

    def mix(self, now: float, units: int, debt: float) -> None:
        """Take over the debt of units that were just added to so many."""
        debt = min(debt, self.limit.seconds)
        if not units:
            self.paid_at = max(self.paid_at, now + debt)
        elif self.units > units:
            self.paid_at = now + (self.debt(now) * units + debt * (self.units - units)) / self.units

    def take(self, now: float, use: int) -> bool:
        """Charge so much if it may be used now."""
        paid_at = self.paid_at
        paid_at = max(paid_at, now)
        after = paid_at + use * self.price if use else paid_at
        if after > now + self._most:
            if self.wait(now, use):
                return False
            after = min(after, now + 2 * self.limit.seconds)
        self.paid_at = after
        return self.units > 0

    def give_back(self, use: int) -> None:
        """Take back a charge for what was not used."""
        self.paid_at -= use * self.price

    def wait(self, now: float, use: int = 1) -> float:
        """The seconds until so much may be used: 0 if now, infinity without any units."""
        if self.units <= 0:
            return math.inf
        # What exceeds a whole period's amount is allowed once nothing is owed.
        cost = min(use * self.price, self.limit.seconds)
        early = max(self.paid_at, now) + cost - self.limit.seconds - now
        return early if early > _TOLERANCE else 0.0

    def charge(self, now: float, use: int = 1) -> None:
        """Charge what is used; one enormous use blocks an account for a further period, not for years."""
        if self.units > 0:
            self.paid_at = min(max(self.paid_at, now) + use * self.price, now + 2 * self.limit.seconds)

    def left(self, now: float) -> int:
        """How much may be used now."""
        if self.units <= 0:
            return 0
        return max(0, int((self.limit.seconds - self.debt(now)) / self.price + _TOLERANCE))

    def debt(self, now: float) -> float:
        """The seconds until everything used is paid for."""
        return max(0.0, self.paid_at - now)
