"""Slots of a contended resource, given to its owners in turn.

Theory of operation. Each owner (a principal) has a queue of its own, and a free slot goes to the next owner in turn, so
an owner with a thousand waiting items delays another one by one item, not by a thousand. An owner may hold at most
`share` times as many slots as are free. So one owner can use almost all of them, several owners share them, and a
newcomer finds a free slot even if others hold theirs for long. Up to four slots, one owner may hold all of them; of many, four fifths. Items
without an owner share a queue, and may take every slot. A full queue makes room for an owner with few items by removing
the newest item of the owner with the most.

Nothing needs a turn while no item waits: an item without an owner may then add 1 to `taken` below `size`, and subtract
it again, instead of `take` and `free`. The class does not wait and is not safe for threads: its user keeps a future or a job as the item, and a lock if it has
threads.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SHARE: Final = 4


class FairSlots(Generic[T]):
    """`size` slots, and at most `waiting` items that wait for one."""

    __slots__ = ("_held", "_queues", "_share", "most_waiting", "size", "taken", "waiting")

    def __init__(self, size: int, waiting: int, share: float = SHARE) -> None:
        self.size = size
        self._share = share
        self.most_waiting = waiting
        self.taken = 0
        self._held: Counter[str] = Counter()
        # The owner whose turn is next comes first.
        self._queues: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self.waiting = 0

    def take(self, owner: str) -> bool:
        """Take a slot if this owner may have one now; items that wait are not overtaken by those of the same owner."""
        if not self._may_take(owner) or (self.waiting and owner in self._queues):
            return False
        self.take_back(owner)
        return True

    def take_back(self, owner: str) -> None:
        """Take a slot even if none is free: for an owner that has lent its slot."""
        self.taken += 1
        if owner:
            self._held[owner] += 1

    def displace(self, owner: str) -> T | None:
        """Make room in a full queue for an item of this owner: the item that had to leave, which its user rejects."""
        if self.waiting < self.most_waiting or not self._queues:
            return None
        longest = max(self._queues, key=lambda name: len(self._queues[name]))
        if len(self._queues[longest]) <= len(self._queues.get(owner, ())) + 1:
            return None
        removed = next(reversed(self._queues[longest]))
        self.leave(longest, removed)
        return removed

    def wait(self, owner: str, item: T) -> bool:
        """Add an item to the queue; False if the queue is full."""
        if self.waiting >= self.most_waiting:
            return False
        self._queues.setdefault(owner, OrderedDict())[item] = None
        self.waiting += 1
        return True

    def leave(self, owner: str, item: T) -> bool:
        """Remove an item that waits; False if it does not wait."""
        queue = self._queues.get(owner)
        if queue is None or item not in queue:
            return False
        del queue[item]
        if not queue:
            del self._queues[owner]
        self.waiting -= 1
        return True

    def free(self, owner: str) -> None:
        """Return a slot; `grant` then gives it to the next item."""
        self.taken -= 1
        if owner:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]

    def grant(self) -> tuple[str, T] | None:
        """The next item and its owner, which has a slot now; None if none may have one. Call it until it returns None."""
        if not self.waiting or self.taken >= self.size:
            return None
        for owner, queue in self._queues.items():
            if self._may_take(owner):
                item, _ = queue.popitem(last=False)
                self.waiting -= 1
                if queue:
                    self._queues.move_to_end(owner)
                else:
                    del self._queues[owner]
                self.take_back(owner)
                return owner, item
        return None

    def _may_take(self, owner: str) -> bool:
        free = self.size - self.taken
        return free > 0 and (not owner or self._held[owner] < self._share * free)
