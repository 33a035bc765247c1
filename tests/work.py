"""Counts what a call costs: the same on a busy machine as on an idle one.

Instructions of the interpreter are the finer measure; calls of functions, Python's and C's, are counted much faster, for
what takes hundreds of thousands of them. Loops inside C functions do not count. Where regular expressions do the work,
`tests.patterns` judges them. For the library that checks values by schemas, a `format` makes its work visible: `time` is
checked by a function of ours, called for each evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any


def count_instructions(call: Callable[[], object]) -> int:
    """How many instructions run until a call returns."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def grows_linearly(make: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether twice the size costs at most three times the work."""
    make(size)()
    return count_instructions(make(2 * size)) <= 3 * count_instructions(make(size))


def count_calls(call: Callable[[], object]) -> int:
    """How many functions are called until a call returns."""
    calls = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return calls


def assert_linear(make: Callable[[int], Callable[[], object]], sizes: Sequence[int]) -> None:
    """Fail unless each size, twice the one before, takes at most three times as many calls.

    What is compiled or cached at the first call does not count.
    """
    assert all(larger == 2 * smaller for smaller, larger in pairwise(sizes))
    works = []
    for size in sizes:
        call = make(size)
        call()
        works.append(count_calls(call))
    for smaller, larger in pairwise(works):
        # A constant part is allowed, so that small inputs do not fail for a handful of calls.
        assert larger <= 3 * smaller + 200, dict(zip(sizes, works, strict=True))
