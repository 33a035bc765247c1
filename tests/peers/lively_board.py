"""A board that speaks to its clients in every way the older revisions have."""

from __future__ import annotations

from pegboard import Board, Context

board = Board("lively")


@board.resource("notes://{name}")
async def note(name: str) -> str:
    return name


@board.tool
async def where(ctx: Context) -> str:
    """Tells how far it is, then asks its caller for its roots."""
    for done in (1, 2):
        await ctx.progress(done, 2, f"step {done}")
    return ", ".join(root.uri for root in await ctx.roots())


@board.tool
async def change() -> str:
    """Hangs a tool, and says that a note is not as it was."""
    board.add(lambda: 1, name="another")
    board.resource_changed("notes://one")
    board.resource_changed("notes://two")
    return "changed"
