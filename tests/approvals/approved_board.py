"""A board whose dangerous tools need an approval; each run is a line of a file that all its processes share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pegboard import Board, Limits, Principal
from pegboard.testing import fixed_tokens

PEOPLE = {"ann": Principal("ann"), "lea": Principal("lea", roles=frozenset({"lead"}))}
RULES: list[dict[str, Any]] = [
    {"tools": ["delete_*"], "approve": {"role": "lead"}},
    {"tools": ["write_*"], "approve": "self"},
]

board = Board(
    "approved",
    auth=None if "ANYONE" in os.environ else fixed_tokens(PEOPLE),
    rules=RULES,
    limits=Limits(approval_wait_seconds=float(os.environ.get("APPROVAL_WAIT", "60")), worker_seconds=1.5),
)


def _run(what: str) -> str:
    with Path(os.environ["RAN"]).open("a") as file:
        file.write(f"{what}\n")
    return f"{what} by {os.getpid()}"


@board.tool(inline=True)
def delete_note(name: str) -> str:
    """Delete a note: a lead approves it."""
    return _run(f"deleted {name}")


@board.tool(inline=True)
def write_note(name: str) -> str:
    """Write a note: the caller approves it."""
    return _run(f"wrote {name}")
