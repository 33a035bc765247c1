"""Where decisions are recorded that are not calls: an approval, a new key, a change in the console."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pegboard.call import Json

DecisionOutcome: TypeAlias = Literal["ok", "failed", "refused"]


class AuditSink(ABC):
    """Records decisions beside the calls; `folder` is where the records are files, if they are."""

    folder: Path | None = None

    @abstractmethod
    async def record(
        self,
        action: str,
        *,
        principal: str = "",
        name: str = "",
        outcome: DecisionOutcome = "ok",
        transport: str = "",
        address: str = "",
        details: Mapping[str, Json] | None = None,
    ) -> None:
        """Record a decision; await this before the decision takes effect.

        It returns when the record is durable. If it cannot be written, and the audit log fails closed, it raises
        LimitReached: then the decision must not take effect.

        action: what is done, such as `keys.add` or `approvals.grant`.
        principal: who decides: the id of a principal, or the name of a local user.
        name: what it is about, such as a tool, a server or a key.
        outcome: whether it is done.
        transport: how the decision arrived, such as `console`, `cli` or `http`.
        address: the network address that it arrived from.
        details: further facts; secrets in them are masked.
        """


class _NoAudit(AuditSink):
    async def record(
        self,
        action: str,
        *,
        principal: str = "",
        name: str = "",
        outcome: DecisionOutcome = "ok",
        transport: str = "",
        address: str = "",
        details: Mapping[str, Json] | None = None,
    ) -> None:
        """Nothing is recorded."""


NO_AUDIT: Final[AuditSink] = _NoAudit()
"""The sink of a board or gateway without an audit log."""
