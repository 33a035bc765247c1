"""Resources, prompts and a tool: a small notebook."""

from typing import Literal

from pegboard import Board

board = Board("notes", version="1.0.0")
notes = {"today": "Buy milk.", "ideas": "A board for every tool."}


@board.resource("notes://all", mime_type="application/json")
def all_notes() -> list[str]:
    """The names of all notes."""
    return list(notes)


@board.resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str | None:
    """Returns a note, or None if there is no such note."""
    return notes.get(name)


@board.complete("notes://{name}", "name")
def names(typed: str) -> list[str]:
    """Completes the name of a note."""
    return list(notes)


@board.prompt
def review(name: str, tone: Literal["kind", "strict"] = "kind") -> str:
    """Asks for a review of a note."""
    return f"Review this note in a {tone} tone: {notes.get(name, '')}"


@board.tool
def write(name: str, text: str) -> str:
    """Writes a note."""
    notes[name] = text
    return f"Wrote {name}."


if __name__ == "__main__":
    board.run()
