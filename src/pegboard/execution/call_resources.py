"""The parts of its board that a running call may use."""

from __future__ import annotations

import secrets

from msgspec import Struct, field

from pegboard.call import Change, ChangeSource
from pegboard.limits import Limits
from pegboard.security.seal import Seal


class CallResources(Struct, frozen=True, kw_only=True):
    """The sealer of tickets and the change log that calls use; without a board, changes are dropped."""

    tickets: Seal = field(default_factory=lambda: Seal("requestState", [secrets.token_bytes(32)], secret=True))
    changes: ChangeSource | None = None
    limits: Limits = Limits()

    def publish(self, change: Change) -> None:
        """Publish a change to subscribers."""
        if self.changes is not None:
            self.changes.publish(change)
