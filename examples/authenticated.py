"""A board that authenticates its callers: tokens of an issuer, API keys, and scopes for single tools.

Serve it with a store for the keys: `pegboard run examples/authenticated.py --store sqlite:notes.sqlite`.
"""

from __future__ import annotations

from pegboard import Auth, Board, Context, Issuer

auth = Auth(
    public_url="https://tools.example.com",
    issuers=[Issuer("https://idp.example.com/realms/team", roles="realm_access.roles")],
    keys=True,
    scopes={"notes.read"},
    implies={"notes.write": {"notes.read"}},
)
board = Board("notes", auth=auth)
NOTES: dict[str, list[str]] = {}


@board.tool(scopes={"notes.read"})
def list_notes(ctx: Context) -> list[str]:
    """List the notes of the caller."""
    return NOTES.get(ctx.principal.id, [])


@board.tool(scopes={"notes.write"})
def add_note(text: str, ctx: Context) -> str:
    """Add a note."""
    NOTES.setdefault(ctx.principal.id, []).append(text)
    return f"{ctx.principal.id} has {len(NOTES[ctx.principal.id])} notes"
