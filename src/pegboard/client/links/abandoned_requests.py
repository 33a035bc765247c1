"""Requests that the client abandoned but that may still run on a legacy server."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import Struct

from pegboard.bounded_dict import BoundedDict
from pegboard.call import RequestId

KEPT_SECONDS: Final = 600.0
"""After this time, a cancelled request is assumed to have ended."""
_MAX_REQUESTS: Final = 1000


class _AbandonedRequest(Struct, frozen=True):
    owner: Hashable
    until: float


class AbandonedRequests:
    """Remembers each request until the server responds after all, or until it is assumed to have ended.

    Servers need not respond to a cancelled request, so most entries expire.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: BoundedDict[RequestId, _AbandonedRequest] = BoundedDict(_MAX_REQUESTS)

    def add(self, request_id: RequestId, owner: Hashable) -> None:
        """Add a request that its caller does not wait for any more."""
        self._all[request_id] = _AbandonedRequest(owner, self._clock() + KEPT_SECONDS)

    def finished(self, request_id: RequestId | None) -> None:
        """Remove a request that the server has answered."""
        if request_id is not None:
            self._all.pop(request_id, None)

    def may_belong_to_another(self, owner: Hashable) -> bool:
        """Whether a request of another owner may still be running."""
        now = self._clock()
        while self._all and (first := next(iter(self._all.items())))[1].until <= now:
            del self._all[first[0]]
        return any(given.owner != owner for given in self._all.values())
