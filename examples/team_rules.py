"""A board that shows each caller only what it may use.

pegboard run examples/team_rules.py
"""

from __future__ import annotations

from pegboard import Board, Context

board = Board(
    "notes",
    rules=[
        {"who": {"role": "admin"}, "allow": ["*"]},
        {"who": {"scope": "notes.write"}, "allow": ["notes.*"]},
        {"who": "*", "allow": ["notes.read", "notes://public/*"], "hide": ["*delete*"]},
    ],
)
notes = board.group("notes")


@notes.tool
async def read(name: str) -> str:
    """Reads a note."""
    return f"the note {name}"


@notes.tool
async def write(name: str, text: str, ctx: Context) -> str:
    """Writes a note."""
    return f"{ctx.principal.id or 'someone'} wrote {name}: {text}"


@notes.tool
async def delete(name: str) -> str:
    """Deletes a note."""
    return f"deleted {name}"


@board.tool(scopes={"mail.send"})
async def send(name: str) -> str:
    """Sends a note by mail."""
    return f"sent {name}"


@board.resource("notes://public/{name}")
async def public(name: str) -> str:
    """A note that everyone may read."""
    return f"the note {name}"
