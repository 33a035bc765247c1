"""The parked calls, within limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from pegboard.accounts.accounts import Accounts
from pegboard.background_tasks import OwnedTasks
from pegboard.call import Call, Question
from pegboard.errors import InvalidParams, LimitReached
from pegboard.gateway.forwarding.parked_call import ParkedCall
from pegboard.limits import Limits

_log = logging.getLogger("pegboard.gateway")


class _ParkedSlot(Struct, eq=False):
    """Kept while a caller waits with the call, so that it can always be parked again."""

    parked_call: ParkedCall
    timer: asyncio.TimerHandle | None = None


class ParkingLot:
    """Keeps each parked call until its caller resumes it, up to limits in time and number.

    A call that is not resumed in time, or is parked when the gateway shuts down, is abandoned. If there are too many,
    the one that has waited longest makes room: one of the same caller, or of the caller with the most, so that a
    caller with many calls cannot displace those of others.
    """

    def __init__(self, limits: Limits, accounts: Accounts | None = None) -> None:
        self._most = limits.parked
        self._accounts = Accounts(limits) if accounts is None else accounts
        self._seconds = limits.parked_seconds
        self._places: dict[str, _ParkedSlot] = {}
        self._counts: Counter[str] = Counter()
        self._ending = OwnedTasks()
        self._closed = False

    def __len__(self) -> int:
        return len(self._places)

    async def wait_with(self, parked_call: ParkedCall, call: Call) -> Mapping[str, Question]:
        """Let a caller wait for a call; it is parked again if it asks something, and removed if it has ended."""
        try:
            questions = await parked_call.wait_with(call)
        except BaseException:
            self.remove(parked_call)
            raise
        if questions:
            self.park(parked_call)
        else:
            self.remove(parked_call)
        return questions

    def park(self, parked_call: ParkedCall) -> None:
        """Park a call until it is resumed; raises LimitReached and abandons the call if there is no room."""
        place = self._places.pop(parked_call.id, None)
        if place is None:
            if self._closed or not self._make_room(parked_call.account):
                self._give_up(parked_call)
                raise LimitReached("Too many calls are waiting for answers: try again soon", "parked", retry_after=1)
            place = _ParkedSlot(parked_call)
            self._counts[parked_call.account] += 1
        # In the order in which they began to wait.
        self._places[parked_call.id] = place
        place.timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, parked_call)

    def _make_room(self, owner: str) -> bool:
        """Make room for a call of this caller, and count it in its account."""
        if len(self._places) >= self._most:
            most = max(self._counts.values(), default=0)
            fullest = owner if self._counts[owner] == most else self._counts.most_common(1)[0][0]
            if not self._evict_oldest(fullest):
                return False
        account = self._accounts.named(owner)
        if account is None or account.take("parked"):
            return True
        return self._evict_oldest(owner) and account.take("parked")

    def _evict_oldest(self, owner: str) -> bool:
        """Abandon the call of a caller that has waited longest; False if callers wait with all of them."""
        for place in self._places.values():
            if place.timer is not None and place.parked_call.account == owner:
                _log.warning("too many calls are waiting for answers of their callers; the oldest one is abandoned")
                self.remove(place.parked_call)
                self._give_up(place.parked_call)
                return True
        return False

    def unpark(self, parked_id: str, leg: int, principal: str) -> ParkedCall:
        """Resume a parked call; the ticket of this leg is valid once."""
        place = self._places.get(parked_id)
        if (
            place is None
            or place.timer is None
            or place.parked_call.leg != leg
            or place.parked_call.principal != principal
        ):
            raise InvalidParams(
                "Invalid requestState: it was used before, or the question has expired; start again without it"
            )
        place.timer.cancel()
        place.timer = None
        place.parked_call.leg += 1
        return place.parked_call

    def find(self, parked_id: str, principal: str) -> ParkedCall | None:
        """The call with that id, whether or not a caller waits with it."""
        place = self._places.get(parked_id)
        return None if place is None or place.parked_call.principal != principal else place.parked_call

    def remove(self, parked_call: ParkedCall) -> None:
        """Remove a call that has ended."""
        place = self._places.pop(parked_call.id, None)
        if place is None:
            return
        if place.timer is not None:
            place.timer.cancel()
        owner = parked_call.account
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        account = self._accounts.find(owner)
        if account is not None:
            account.give_back("parked")

    async def close(self) -> None:
        """Abandon all parked calls, and accept no more."""
        self._closed = True
        for place in list(self._places.values()):
            self.remove(place.parked_call)
            self._give_up(place.parked_call)
        if self._ending:
            await asyncio.wait(self._ending)

    def _expire(self, parked_call: ParkedCall) -> None:
        _log.info("a question of a server was not answered within %g s; its call is abandoned", self._seconds)
        self.remove(parked_call)
        self._give_up(parked_call)

    def _give_up(self, parked_call: ParkedCall) -> None:
        self._ending.start(parked_call.abandon())
