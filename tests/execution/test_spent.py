"""Tickets that are used once."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Board, Context
from pegboard.errors import Busy, InvalidParams
from pegboard.execution.rounds import TICKET_SECONDS
from pegboard.execution.spent import Spent
from pegboard.stores.memory import MemoryRecords
from pegboard.testing import FakeClock
from tests.execution.test_rounds import accept, required, send, text_of


def make_board(*, once: bool) -> tuple[Board, list[str]]:
    board, done = Board("spent"), list[str]()

    @board.tool(once=once)
    async def pay(to: str, ctx: Context) -> str:
        """Asks twice, then pays."""
        await ctx.elicit("Sure?", bool, key="sure")
        await ctx.elicit("Really?", bool, key="really")
        done.append(to)
        return f"paid {to}"

    return board, done


async def pay(board: Board, ticket: str | None, key: str, to: str = "ada") -> Any:
    return await send(board, "pay", {"to": to}, ticket=ticket, answers={key: accept(value=True)})


async def test_a_state_is_used_once_where_the_author_says_so() -> None:
    board, done = make_board(once=True)
    first = await required(board, "pay", arguments={"to": "ada"})
    second = await pay(board, first.ticket, "sure")
    with pytest.raises(InvalidParams, match="used already"):
        await pay(board, first.ticket, "sure")
    assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    for ticket, key in ((second.ticket, "really"), (first.ticket, "sure")):
        with pytest.raises(InvalidParams, match="used already"):
            await pay(board, ticket, key)
    assert done == ["ada"]


async def test_elsewhere_it_may_be_used_until_it_expires() -> None:
    board, done = make_board(once=False)
    first = await required(board, "pay", arguments={"to": "ada"})
    second = await pay(board, first.ticket, "sure")
    for _ in range(2):
        assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    assert done == ["ada", "ada"]


async def test_a_ticket_that_was_refused_has_not_been_used() -> None:
    board, done = make_board(once=True)
    first = await required(board, "pay", arguments={"to": "ada"})
    with pytest.raises(InvalidParams, match="another request"):
        await pay(board, first.ticket, "sure", to="mallory")
    second = await pay(board, first.ticket, "sure")
    with pytest.raises(InvalidParams, match="changed"):
        await pay(board, second.ticket[:-1] + ("A" if second.ticket[-1] != "A" else "B"), "really")
    assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    assert done == ["ada"]


async def test_used_tickets_are_remembered_within_a_bound_and_for_as_long_as_they_would_open() -> None:
    clock = FakeClock()
    records = MemoryRecords(clock)
    spent = Spent(records, 2, clock)
    await spent.spend("a")
    for _ in range(3):
        with pytest.raises(InvalidParams):
            await spent.spend("a")
    await spent.spend("b")
    with pytest.raises(Busy):
        await spent.spend("c")
    clock.advance(TICKET_SECONDS)
    await spent.spend("c")
    assert len(records) == 1
