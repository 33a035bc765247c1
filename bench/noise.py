"""How much of the machine other programs take while a run measures: `noise.py` prints it for this moment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from statistics import median, quantiles

from processes import CORES

SPELLS, LOOPS = 12, 20_000
# Beyond these, two runs of the same server differ more than most targets do.
MOST_LOST, MOST_SPREAD = 0.04, 0.1


@dataclass
class Noise:
    """Samples taken during a run: the same loop again and again, on each core in turn."""

    lost: list[float] = field(default_factory=list)
    """The share of the time in which the loop did not have its core."""
    speeds: dict[int, list[float]] = field(default_factory=dict)
    """By core, how long the loop computed in each sample: its median.

    Within a sample, single loops of half a millisecond differ by a sixth even on idle cores; a measurement of seconds
    averages that out. It does not average out a core that is slower in one round than in another.
    """

    def sample(self) -> None:
        """Take a sample on each core, in about a fiftieth of a second each."""
        for core in CORES or [0]:
            if CORES:
                os.sched_setaffinity(0, {core})
            # The first loop finds the caches of the core cold.
            _spell()
            began, used = time.perf_counter(), time.thread_time()
            spells = [_spell() for _ in range(SPELLS)]
            self.lost.append(1 - (time.thread_time() - used) / (time.perf_counter() - began))
            self.speeds.setdefault(core, []).append(median(spells))
        if CORES:
            os.sched_setaffinity(0, set(CORES))

    @property
    def figures(self) -> dict[str, float]:
        """The median loss, and the difference between the slow and the fast quarter of the samples of a core."""
        spread = 0.0
        for speeds in self.speeds.values():
            if len(speeds) > 1:
                low, _, high = quantiles(speeds, n=4, method="inclusive")
                spread = max(spread, high / low - 1)
        return {"lost": round(max(0.0, median(self.lost)), 4), "spread": round(spread, 4)}

    @property
    def noisy(self) -> bool:
        """Whether ratios of this run should not be judged."""
        figures = self.figures
        return figures["lost"] > MOST_LOST or figures["spread"] > MOST_SPREAD

    def __str__(self) -> str:
        figures = self.figures
        return (
            f"noise: other programs took {figures['lost']:.1%} of a core (at most {MOST_LOST:.0%} to judge), "
            f"the speed of a core differed by {figures['spread']:.1%} (at most {MOST_SPREAD:.0%})"
        )


def _spell() -> float:
    began = time.thread_time_ns()
    total = 0
    for number in range(LOOPS):
        total += number & 7
    return time.thread_time_ns() - began


if __name__ == "__main__":
    noise = Noise()
    for _ in range(20):
        noise.sample()
        time.sleep(0.05)
    print(noise, "– too noisy to judge" if noise.noisy else "")
