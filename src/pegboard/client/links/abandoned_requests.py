"""Requests that were given up but may still run on a legacy server."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import Struct

from pegboard.call import RequestId

KEPT_SECONDS: Final = 600.0
"""No work is expected to go on for longer after its cancellation."""
_MAX_REQUESTS: Final = 1000


class _AbandonedRequest(Struct, frozen=True):
    owner: Hashable
    until: float


class AbandonedRequests:
    """Remembers each until the server answers it all the same, or for as long as it may go on.

    Servers need not answer what was cancelled, so most are only forgotten in time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: dict[RequestId, _AbandonedRequest] = {}

    def add(self, request_id: RequestId, owner: Hashable) -> None:
        """Nobody waits for this one any more."""
        while len(self._all) >= _MAX_REQUESTS:
            del self._all[next(iter(self._all))]
        self._all[request_id] = _AbandonedRequest(owner, self._clock() + KEPT_SECONDS)

    def finished(self, request_id: RequestId | None) -> None:
        """The server is done with it."""
        if request_id is not None:
            self._all.pop(request_id, None)

    def may_belong_to_another(self, owner: Hashable) -> bool:
        """Whether one of somebody else may still be worked on."""
        now = self._clock()
        while self._all and (first := next(iter(self._all.items())))[1].until <= now:
            del self._all[first[0]]
        return any(given.owner != owner for given in self._all.values())
