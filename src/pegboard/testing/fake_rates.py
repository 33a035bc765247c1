"""A rate store for tests, on a fake clock, which can be made to fail."""

from __future__ import annotations

from pegboard.middleware.limits.rate_limit import Microseconds, StoreUnavailable
from pegboard.testing.fake_clock import FakeClock


class FakeRates:
    """Implements `RateStore`. `charged` counts the calls of each account; set `down` to make it fail."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.charged: dict[str, int] = {}
        self.down = False
        self._owed: dict[str, tuple[Microseconds, Microseconds]] = {}

    async def take(self, key: str, price: Microseconds, burst: int) -> Microseconds:
        """Charge one call: an account's debt decreases with time and may not exceed `burst` prices."""
        if self.down:
            raise StoreUnavailable("the fake store is down")
        now = self.clock.microseconds()
        debt, since = self._owed.get(key, (0, now))
        debt = max(0, debt - (now - since))
        over = debt + price - burst * price
        if over > 0:
            return over
        self._owed[key] = debt + price, now
        self.charged[key] = self.charged.get(key, 0) + 1
        return 0
