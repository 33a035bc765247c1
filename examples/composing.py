"""Boards made of other boards, of servers, and of transformed tools."""

from pathlib import Path

from pegboard import Board, Context

notes = Board("notes")


@notes.tool(tags={"search"})
async def search(query: str, folder: str = "inbox", limit: int = 10) -> list[str]:
    """Searches the notes."""
    return [f"{folder}: {query}"] * min(limit, 2)


@notes.tool(tags={"admin"})
async def erase() -> str:
    """Deletes all notes."""
    return "Erased."


@notes.resource("notes://{name}")
async def note(name: str) -> str:
    return f"The note {name}."


board = Board("office")
board.mount(notes, prefix="notes")
board.remote("hello", ["python", str(Path(__file__).with_name("hello.py"))])


@board.tool
async def summary(topic: str, ctx: Context) -> str:
    """Finds notes on a topic and reads today's."""
    found = await ctx.call("notes.search", {"query": topic})
    today = await ctx.read("notes://notes/today")
    return f"{len(found.value)} notes. {today.text}"


board.add(
    board.tools.find("notes.search").transformed(
        name="find_recipe",
        description="Finds a recipe.",
        arguments={"folder": {"value": "recipes"}, "query": {"name": "dish", "description": "What to cook."}},
    )
)
board.disable(tags={"admin"})

if __name__ == "__main__":
    board.run()
