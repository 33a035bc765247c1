"""Counts what a call costs in instructions of the interpreter: the same on a busy machine as on an idle one.

Loops inside C functions do not count. Where regular expressions do the work, `tests.patterns` judges them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
