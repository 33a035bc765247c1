"""Tickets that are used once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pegboard import Board, Context, Limits, Middleware
from pegboard.asking.rounds import UsedTickets
from pegboard.call import Call, InputRequired
from pegboard.errors import Busy, InvalidParams
from pegboard.stores.memory import MemoryRecords
from pegboard.testing import FakeClock
from tests.asking.test_rounds import accept, required, send, text_of
from tests.security.test_seal import spellings


def make_board(*, once: bool, limits: Limits | None = None) -> tuple[Board, list[str]]:
    board, done = Board("spent", limits=limits), list[str]()

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
    with pytest.raises(InvalidParams, match="already used"):
        await pay(board, first.ticket, "sure")
    assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    for ticket, key in ((second.ticket, "really"), (first.ticket, "sure")):
        with pytest.raises(InvalidParams, match="already used"):
            await pay(board, ticket, key)
    assert done == ["ada"]


async def test_a_state_belongs_to_the_request_as_sent_even_if_a_hook_replaces_its_arguments() -> None:
    class Capitalize(Middleware):
        async def before(self, call: Call) -> None:
            call.replace_arguments({"to": str(call.arguments["to"]).title()})

    board, done = make_board(once=True)
    board.use(Capitalize())
    first = await required(board, "pay", arguments={"to": "ada"})
    second = await pay(board, first.ticket, "sure")
    assert text_of(await pay(board, second.ticket, "really")) == "paid Ada"
    assert done == ["Ada"]


async def test_a_used_state_is_refused_in_every_other_spelling() -> None:
    board, done = make_board(once=True)
    first = await required(board, "pay", arguments={"to": "ada"})
    second = await pay(board, first.ticket, "sure")
    assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    for text in spellings(second.ticket):
        with pytest.raises(InvalidParams):
            await pay(board, text, "really")
    assert done == ["ada"]


async def test_answers_without_their_state_are_ignored_where_states_are_used_once() -> None:
    board, done = make_board(once=True)
    answers = {"sure": accept(value=True), "really": accept(value=True)}
    for _ in range(2):
        asked = await send(board, "pay", {"to": "ada"}, answers=answers)
        assert isinstance(asked, InputRequired)
        assert list(asked.questions) == ["sure"]
    assert done == []


async def test_two_calls_of_the_same_moment_get_a_state_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.security.seal.find_spec", lambda name: None)
    monkeypatch.setattr("pegboard.asking.rounds.time", SimpleNamespace(time=FakeClock()))
    board, _ = make_board(once=True)
    states = [(await required(board, "pay", arguments={"to": "ada"})).ticket for _ in range(2)]
    for state in states:
        assert isinstance(await pay(board, state, "sure"), InputRequired)


async def test_elsewhere_it_may_be_used_until_it_expires() -> None:
    board, done = make_board(once=False)
    first = await required(board, "pay", arguments={"to": "ada"})
    second = await pay(board, first.ticket, "sure")
    for _ in range(2):
        assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    assert done == ["ada", "ada"]


def changed(ticket: str) -> str:
    """The ticket with another character in its middle; at its end that may be no valid Base64."""
    middle = len(ticket) // 2
    return ticket[:middle] + ("A" if ticket[middle] != "A" else "B") + ticket[middle + 1 :]


async def test_a_ticket_that_was_refused_has_not_been_used() -> None:
    board, done = make_board(once=True)
    first = await required(board, "pay", arguments={"to": "ada"})
    with pytest.raises(InvalidParams, match="another request"):
        await pay(board, first.ticket, "sure", to="mallory")
    second = await pay(board, first.ticket, "sure")
    with pytest.raises(InvalidParams, match="changed"):
        await pay(board, changed(second.ticket), "really")
    assert text_of(await pay(board, second.ticket, "really")) == "paid ada"
    assert done == ["ada"]


async def test_used_tickets_are_remembered_within_a_bound_and_for_as_long_as_they_would_open() -> None:
    clock = FakeClock()
    records = MemoryRecords(clock)
    spent = UsedTickets(records, 2, 2, 600, clock)
    await spent.mark_used("a", "")
    for _ in range(3):
        with pytest.raises(InvalidParams):
            await spent.mark_used("a", "")
    await spent.mark_used("b", "")
    with pytest.raises(Busy):
        await spent.mark_used("c", "")
    clock.advance(600)
    await spent.mark_used("c", "")
    assert len(records) == 1


async def test_one_principal_does_not_use_up_the_room_of_the_others() -> None:
    clock = FakeClock()
    spent = UsedTickets(MemoryRecords(clock), 4, 2, 600, clock)
    for ticket in ("a", "b"):
        await spent.mark_used(ticket, "mallory")
    with pytest.raises(Busy):
        await spent.mark_used("c", "mallory")
    await spent.mark_used("d", "ada")
    # What was used by one is used for all who could open it.
    with pytest.raises(InvalidParams):
        await spent.mark_used("a", "ada")
    await spent.mark_used("e", "ada")
    with pytest.raises(Busy):
        await spent.mark_used("f", "bob")
    clock.advance(600)
    await spent.mark_used("f", "bob")
    await spent.mark_used("g", "mallory")
    assert spent._held == {"bob": 1, "mallory": 1}


async def test_a_store_that_fails_takes_no_room_for_good() -> None:
    class Failing(MemoryRecords):
        async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
            raise OSError("no store")

    spent = UsedTickets(Failing(), 1, 1, 600)
    for _ in range(2):
        with pytest.raises(OSError, match="no store"):
            await spent.mark_used("a", "ada")
    spent.use_store(MemoryRecords())
    await spent.mark_used("a", "ada")


async def test_the_bound_of_a_board_counts_for_each_principal() -> None:
    board, _ = make_board(once=True, limits=Limits(used_tickets_per_caller=1))
    for principal in ("ada", "bob"):
        first = await send(board, "pay", {"to": "x"}, principal=principal)
        assert isinstance(first, InputRequired)
        answers = {"sure": accept(value=True)}
        second = await send(board, "pay", {"to": "x"}, ticket=first.ticket, answers=answers, principal=principal)
        assert isinstance(second, InputRequired)
        with pytest.raises(Busy):
            await send(board, "pay", {"to": "x"}, ticket=second.ticket, answers=answers, principal=principal)
