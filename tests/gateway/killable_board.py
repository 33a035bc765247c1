"""A server that says whom to kill."""

from __future__ import annotations

import os

from pegboard import Board, Context

board = Board("mortal")


@board.tool
async def ask_and_die(ctx: Context) -> str:
    await ctx.elicit(f"{os.getpid()}", key="words")
    return "never"
