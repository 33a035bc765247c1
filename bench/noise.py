"""How much of the machine other programs take while a run measures: `noise.py` prints it for this moment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from statistics import median, quantiles

from processes import CORES

SPELLS, LOOPS = 12, 20_000
# On idle cores both are below a fiftieth. Beyond these, two runs of the same server differ more than most targets do.
MOST_LOST, MOST_SPREAD = 0.04, 0.15


@dataclass
class Noise:
    """Samples taken during a run: the same loop again and again, on each core in turn."""

    lost: list[float] = field(default_factory=list)
    """The share of the time in which the loop did not have its core."""
    spread: list[float] = field(default_factory=list)
    """How much longer the slow tenth of the loops computed than the fast tenth."""

    def sample(self) -> None:
        """Take a sample on each core, in about a fiftieth of a second each."""
        for core in CORES or [0]:
            if CORES:
                os.sched_setaffinity(0, {core})
            began, used = time.perf_counter(), time.thread_time()
            spells = [_spell() for _ in range(SPELLS)]
            self.lost.append(1 - (time.thread_time() - used) / (time.perf_counter() - began))
            low, *_, high = quantiles(spells, n=10)
            self.spread.append(high / low - 1)
        if CORES:
            os.sched_setaffinity(0, set(CORES))

    @property
    def figures(self) -> dict[str, float]:
        """The medians of all samples."""
        return {"lost": round(max(0.0, median(self.lost)), 4), "spread": round(median(self.spread), 4)}

    @property
    def noisy(self) -> bool:
        """Whether ratios of this run should not be judged."""
        figures = self.figures
        return figures["lost"] > MOST_LOST or figures["spread"] > MOST_SPREAD

    def __str__(self) -> str:
        figures = self.figures
        return (
            f"noise: other programs took {figures['lost']:.1%} of a core (at most {MOST_LOST:.0%} to judge), "
            f"equal loops differed by {figures['spread']:.1%} (at most {MOST_SPREAD:.0%})"
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
