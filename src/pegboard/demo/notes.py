"""Notes: the server over HTTP, with resources and a prompt."""

from __future__ import annotations

from typing import Annotated

from pegboard import Accepted, Board, Context, ToolError

board = Board("notes", version="1.0.0")

_notes = {"welcome": "Everything here came through one gateway.", "tea": "Green, three minutes, 80 degrees."}


@board.tool
async def add_note(name: Annotated[str, "A short name"], text: str) -> str:
    """Saves a note, which becomes a resource."""
    _notes[name] = text
    board.resource_changed(f"notes://{name}")
    return f"saved as notes://{name}"


@board.tool(annotations={"readOnlyHint": True})
async def find_notes(words: Annotated[str, "What to look for"] = "") -> list[str]:
    """Finds the notes that contain these words."""
    wanted = words.lower().split()
    return [name for name, text in _notes.items() if all(word in f"{name} {text}".lower() for word in wanted)]


@board.tool(annotations={"destructiveHint": True})
async def delete_note(name: str, ctx: Context) -> str:
    """Deletes a note, after asking the user."""
    if name not in _notes:
        raise ToolError(f"Unknown note {name!r}; use one of {', '.join(_notes)}")
    answer = await ctx.elicit(f"Delete the note {name!r}?", bool, key="sure")
    if not (isinstance(answer, Accepted) and answer.content):
        return "left alone"
    del _notes[name]
    return "deleted"


@board.resource("notes://{name}", mime_type="text/plain")
async def note(name: str) -> str | None:
    """One note."""
    return _notes.get(name)


@board.prompt
async def summarise(topic: Annotated[str, "What about"] = "everything") -> str:
    """Asks for a summary of the notes."""
    return f"Summarise my notes about {topic}: " + " ".join(_notes.values())
