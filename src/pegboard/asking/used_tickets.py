"""Tickets that were used already, so that none is used twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from pegboard.errors import Busy, InvalidParams
from pegboard.stores.store import Records


class UsedTickets(Struct, eq=False):
    """Remembers used tickets for `seconds`, until they expire.

    Holds at most `limit` of them in this process, and `each` per principal, so that one cannot use all the space.
    """

    records: Records
    limit: int
    each: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _until: deque[tuple[float, str]] = field(default_factory=deque)
    # Includes those that are being written, which have no expiry yet.
    _held: dict[str, int] = {}
    _all: int = 0

    def use_store(self, records: Records) -> None:
        """Keep them in this store, which other processes share."""
        self.records = records

    async def mark_used(self, ticket_id: str, principal: str) -> None:
        """Use the ticket with this id; InvalidParams if it was used before."""
        now = self.clock()
        while self._until and self._until[0][0] <= now:
            self._release(self._until.popleft()[1])
        held = self._held.get(principal, 0)
        if self._all >= self.limit or held >= self.each:
            raise Busy("Too many answered questions; try again later", retry_after=60)
        self._held[principal] = held + 1
        self._all += 1
        is_new = False
        try:
            is_new = await self.records.add(f"spent:{ticket_id}", 1, ttl=self.seconds) == 1
        finally:
            if is_new:
                self._until.append((now + self.seconds, principal))
            else:
                # Repeating a ticket takes no more space, so that it cannot push out the tickets of others.
                self._release(principal)
        if not is_new:
            raise InvalidParams("Invalid requestState: it was already used; start the call again")

    def _release(self, principal: str) -> None:
        self._all -= 1
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]
