"""Tools that ask the user, the client's model or for roots before they act.

pegboard run examples/asking.py
"""

import secrets
from dataclasses import dataclass
from typing import Literal

from pegboard import Accepted, Board, Context, Elicit, Roots

board = Board("asking", version="1.0.0")
notes = {"milk": "Buy milk.", "call": "Call Ada about the engine, and Grace about the bug."}


@board.tool
async def delete_note(name: str, ctx: Context) -> str:
    """Deletes a note, if the user agrees."""
    answer = await ctx.elicit(f"Delete the note {name}?", bool)
    if not isinstance(answer, Accepted) or not answer.content:
        return f"Kept {name}."
    notes.pop(name, None)
    return f"Deleted {name}."


@dataclass
class Trip:
    """The form that the user fills in."""

    where: str
    days: int = 3
    travel_class: Literal["economy", "first"] = "economy"


@board.tool
async def book(ctx: Context) -> str:
    """Books a trip."""
    answer = await ctx.elicit("Where do you want to go?", Trip)
    if not isinstance(answer, Accepted):
        return f"Nothing is booked: the user said {answer.action}."
    trip: Trip = answer.content
    return f"Booked {trip.days} days in {trip.where}, {trip.travel_class} class."


@board.tool(requires=["sampling"])
async def shorten(name: str, ctx: Context) -> str:
    """Shortens a note with the client's own model."""
    reply = await ctx.sample(f"Say this in three words: {notes[name]}", max_tokens=20)
    notes[name] = reply.text
    return reply.text


@board.tool
async def set_up(ctx: Context) -> str:
    """Asks two questions in one round."""
    answers = await ctx.ask(colour=Elicit("Which colour?", Literal["red", "blue"]), where=Roots())
    colour = answers["colour"].content or "no colour"
    return f"{colour}, in {answers['where'][0].uri}"


@board.tool(once=True)
async def draw_lots(first: str, second: str, ctx: Context) -> str:
    """Draws one of two names and asks the user to confirm it."""
    winner = await ctx.keep("winner", lambda: secrets.choice([first, second]))
    answer = await ctx.elicit(f"{winner} wins. Is that all right?", bool, key="all_right")
    return f"{winner} wins." if answer.content else "There is no winner."


@board.tool
def rename_note(name: str, ctx: Context) -> str:
    """Asks from a plain function, which blocks its thread."""
    answer = ctx.wait(ctx.elicit(f"A new name for {name}?", str))
    if answer.content:
        notes[answer.content] = notes.pop(name)
    return f"There are now: {', '.join(notes)}"


if __name__ == "__main__":
    board.run()
