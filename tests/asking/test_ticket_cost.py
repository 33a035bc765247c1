"""What a client brings with a retry costs work and memory in proportion to its size, whatever it is."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import Callable

import pytest

from pegboard import Board, Context
from pegboard.asking.rounds import UsedTickets
from pegboard.errors import InvalidParams
from pegboard.security.seal import Seal
from pegboard.stores.memory import MemoryRecords
from tests.asking.test_rounds import accept, required, send
from tests.work import grows_linearly

pytestmark = pytest.mark.same_on_every_python

KEYS = [b"k" * 32, b"o" * 32, b"p" * 32]
SIZE = 20_000

MADE: dict[str, Callable[[Seal, int], str]] = {
    "letters": lambda seal, size: "A" * size,
    "other spelling": lambda seal, size: "+" * size,
    "padding": lambda seal, size: "=" * size,
    "no letters": lambda seal, size: "\N{SNOWMAN}" * size,
    "our own, longer": lambda seal, size: seal.close("x") + "A" * size,
    "our own": lambda seal, size: seal.close("x" * size),
    "our own, nested": lambda seal, size: seal.close([[]] * size),
    "for another bearer": lambda seal, size: seal.close("x" * size, bearer="eve"),
}


def peak(call: Callable[[], object]) -> int:
    """The most bytes that were allocated at once until a call returned."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("secret", [False, True], ids=["signed", "secret"])
@pytest.mark.parametrize("made", MADE)
def test_opening_a_sealed_value_costs_in_proportion_to_its_text(made: str, secret: bool) -> None:
    seal = Seal("state", KEYS, secret=secret)

    def opening(size: int) -> Callable[[], object]:
        text = MADE[made](seal, size)

        def open_it() -> None:
            with contextlib.suppress(InvalidParams):
                seal.open(text, now=0)

        return open_it

    assert grows_linearly(opening, SIZE)
    assert peak(opening(2 * SIZE)) <= 3 * peak(opening(SIZE))


def asking_board() -> Board:
    board = Board("cost")

    @board.tool(once=True)
    async def pay(to: str, ctx: Context) -> str:
        """Keeps what it was told, and asks."""
        await ctx.keep("to", lambda: to)
        answer = await ctx.elicit("Sure?", bool, key="sure")
        return f"paid: {answer.content}"

    return board


@pytest.mark.parametrize("state", [True, False], ids=["with their state", "without it"])
def test_a_retry_costs_in_proportion_to_its_answers_and_arguments(state: bool) -> None:
    board = asking_board()

    def retrying(size: int) -> Callable[[], object]:
        answers = {"sure": accept(value=True), **{f"key {number}": {"x": number} for number in range(size)}}
        to = "a" * size

        async def retry() -> None:
            ticket = (await required(board, "pay", arguments={"to": to})).ticket if state else None
            await send(board, "pay", {"to": to}, ticket=ticket, answers=answers)

        return lambda: asyncio.run(retry())

    assert grows_linearly(retrying, 2_000)


def test_remembering_used_tickets_costs_in_proportion_to_their_number() -> None:
    def spending(size: int) -> Callable[[], object]:
        async def spend() -> None:
            spent = UsedTickets(MemoryRecords(), 10 * size, 10 * size, 600)
            for number in range(size):
                await spent.mark_used(str(number), "ada")

        return lambda: asyncio.run(spend())

    assert grows_linearly(spending, 200)
