"""Long-running tools that continue as tasks, which the client polls.

pegboard run examples/tasks.py
"""

import asyncio

from pegboard import Accepted, Board, Context

board = Board("tasks", version="1.0.0")


@board.tool(task="optional")
async def index(folder: str, ctx: Context, files: int = 3) -> str:
    """Indexes a folder; its progress becomes the status of the task."""
    for number in range(files):
        await ctx.progress(number, files, f"{number} of {files} files")
        await asyncio.sleep(0.01)
    return f"{files} files of {folder} are indexed."


@board.tool(task="required")
async def clean_up(folder: str, ctx: Context) -> str:
    """Asks while it runs as a task: the function waits for the answer."""
    answer = await ctx.elicit(f"Remove old files from {folder}?", bool, key="remove")
    return "Removed." if isinstance(answer, Accepted) and answer.content else "Kept."


@board.tool(task="required", detach="manual")
async def deploy(version: str, ctx: Context) -> str:
    """Asks first, like any other tool, and continues as a task after the answer."""
    answer = await ctx.elicit(f"Deploy {version}?", bool, key="deploy")
    if not isinstance(answer, Accepted) or not answer.content:
        return "Nothing is deployed."
    await ctx.detach()
    await asyncio.sleep(0.01)
    return f"{version} is deployed."


if __name__ == "__main__":
    board.run()
