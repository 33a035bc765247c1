"""Where decisions are recorded that are not calls: an approval, a new key, a change in the console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pegboard.call import Json

DecisionOutcome: TypeAlias = Literal["ok", "failed", "refused"]


class Decision(Struct, frozen=True):
    """What a person or a program decided.

    action: what is done, such as `keys.add` or `approvals.grant`.
    principal: who decides: the id of a principal, or the name of a local user.
    name: what it is about, such as a tool, a server or a key.
    outcome: whether it is done.
    transport: how the decision arrived, such as `console`, `cli` or `http`.
    address: the network address that it arrived from.
    details: further facts; secrets in them are masked.
    """

    action: str
    principal: str = ""
    name: str = ""
    outcome: DecisionOutcome = "ok"
    transport: str = ""
    address: str = ""
    details: Mapping[str, Json] | None = None


class AuditSink:
    """Records decisions beside the calls: this class nothing, its subclasses somewhere; `folder` is where they are files."""

    folder: Path | None = None

    async def record(self, decision: Decision) -> None:
        """Record a decision; await this before the decision takes effect.

        It returns when the record is durable. If it cannot be written, and the audit log fails closed, it raises
        LimitReached: then the decision must not take effect.
        """


NO_AUDIT: Final = AuditSink()
"""The sink of a board or gateway without an audit log."""
