"""A clock that a test moves by hand, and a rate store on it, which can be made to fail."""

from __future__ import annotations

from pegboard.middleware.limits.rate_limit import MemoryRates, Microseconds, StoreUnavailable


class FakeClock:
    """Seconds as a float when called, like `time.monotonic`; `microseconds` as an integer.

    `sleep` replaces `asyncio.sleep`: it advances the clock instead of waiting, and records the time.
    """

    def __init__(self, seconds: float = 1_000.0) -> None:
        self._microseconds = round(seconds * 1_000_000)
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self._microseconds / 1_000_000

    def microseconds(self) -> int:
        """Return the time in microseconds."""
        return self._microseconds

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back, got {-seconds:g} s")
        self._microseconds += round(seconds * 1_000_000)

    async def sleep(self, seconds: float) -> None:
        """Advance the clock in place of waiting."""
        self.slept.append(seconds)
        self.advance(max(0.0, seconds))


class FakeRates:
    """Implements `RateStore`. `charged` counts the calls of each account; set `down` to make it fail."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.charged: dict[str, int] = {}
        self.down = False
        self._rates = MemoryRates(clock=self.clock.microseconds)

    async def take(self, key: str, price: Microseconds, burst: int) -> Microseconds:
        """Charge one call; return 0, or the time until it is allowed."""
        if self.down:
            raise StoreUnavailable("the fake store is down")
        wait = await self._rates.take(key, price, burst)
        if not wait:
            self.charged[key] = self.charged.get(key, 0) + 1
        return wait
