"""Tickets that have been used, so that they are not used again."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable

from pegboard.errors import Busy, InvalidParams
from pegboard.execution.rounds import TICKET_SECONDS
from pegboard.stores.store import Records


class Spent:
    """Remembers used tickets for as long as they would open, at most `limit` of them in this process."""

    def __init__(self, records: Records, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._limit = limit
        self._clock = clock
        self._until: deque[float] = deque()

    def keep_in(self, records: Records) -> None:
        """Remember them there from now on, where other processes see them too."""
        self._records = records

    async def spend(self, ticket: str) -> None:
        """Use a ticket; InvalidParams if it has been used before."""
        now = self._clock()
        while self._until and self._until[0] <= now:
            self._until.popleft()
        if len(self._until) >= self._limit:
            raise Busy("Too many questions have been answered lately; try again in a while", retry_after=60)
        self._until.append(now + TICKET_SECONDS)
        key = "spent:" + hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()[:32]
        if await self._records.add(key, 1, ttl=TICKET_SECONDS) > 1:
            # It takes no more room than it has: whoever repeats one ticket must not use up that of all others.
            self._until.pop()
            raise InvalidParams("Invalid requestState: it has been used already; begin the call anew")
