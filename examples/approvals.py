"""A board whose dangerous calls wait for a person.

pegboard run examples/approvals.py --store sqlite:notes.db
pegboard approvals examples/approvals.py --store sqlite:notes.db
"""

from __future__ import annotations

from pegboard import Board

board = Board(
    "notes",
    rules=[
        {"tools": ["delete_*"], "approve": "others"},
        {"tools": [{"annotation": {"destructiveHint": True}}], "approve": "self"},
    ],
)


@board.tool(annotations={"readOnlyHint": True})
async def read_note(name: str) -> str:
    """Reads a note: runs at once."""
    return f"the note {name}"


@board.tool
async def write_note(name: str, text: str) -> str:
    """Writes a note: the caller approves it."""
    return f"wrote {name}: {text}"


@board.tool
async def delete_note(name: str) -> str:
    """Deletes a note: another person approves it."""
    return f"deleted {name}"
