"""A clock that a test moves by hand."""

from __future__ import annotations


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
