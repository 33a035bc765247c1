"""The parts of its board that a running call may use."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from pegboard.call import Change, ChangeSource, Handler
from pegboard.limits import Limits
from pegboard.security.seal import Seal


class CallResources(Struct, frozen=True, kw_only=True):
    """The sealer of tickets, the change log and the lifespan values of calls, and what dispatches their own calls; without a board, changes are dropped."""

    tickets: Seal = field(default_factory=lambda: Seal("requestState", [secrets.token_bytes(32)], secret=True))
    changes: ChangeSource | None = None
    limits: Limits = Limits()
    lifespan: Mapping[str, Any] = {}
    dispatch: Handler | None = None

    def publish(self, change: Change) -> None:
        """Publish a change to subscribers."""
        if self.changes is not None:
            self.changes.publish(change)
