"""The backends that one suite holds to one contract."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.limits import Limits
from pegboard.stores.memory import MemoryStore
from pegboard.stores.store import Store


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Backend = Callable[[Limits, Clock], Store]

BACKENDS: dict[str, Backend] = {"memory": MemoryStore}
