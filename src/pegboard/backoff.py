"""Pauses between attempts: doubled after each failure, up to a limit."""

from __future__ import annotations

import random

# Beyond this many doublings every limit is reached; a power of any size would not fit a float.
_MAX_DOUBLINGS = 60


def backoff(failures: int, first: float, longest: float) -> float:
    """The seconds to wait after a number of consecutive failures: none, `first`, twice that and so on, at most
    `longest`."""
    return min(first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), longest) if failures > 0 else 0.0


def jitter(seconds: float) -> float:
    """The pause made up to a half shorter or longer at random, so that many clients do not retry together."""
    return seconds * random.uniform(0.5, 1.5)
