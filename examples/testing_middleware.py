"""Testing a middleware: around a stub, and on a board."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pegboard import Board, Client, Middleware, ToolError
from pegboard.middleware import Call
from pegboard.testing import Recorder, make_call, run_alone

# The plugin of Pegboard runs the async tests of this file.
pytestmark = pytest.mark.pegboard


class Owners(Middleware):
    """Allows only owners to delete, and counts deletions."""

    def __init__(self, *owners: str) -> None:
        self.owners = frozenset(owners)
        self.deleted = 0

    async def before(self, call: Call) -> None:
        if call.name.startswith("delete") and call.principal.id not in self.owners:
            raise ToolError("only owners delete")

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        self.deleted += call.name.startswith("delete")


async def test_only_owners_delete() -> None:
    owners = Owners("ann")
    run = await run_alone(owners, call=make_call("delete_note", {"name": "today"}, principal="bob"))
    assert (run.ran, str(run.exception)) == (0, "only owners delete")
    run = await run_alone(owners, call=make_call("delete_note", principal="ann"), answer="gone")
    assert (run.ran, run.text, owners.deleted) == (1, "gone", 1)


async def test_hooks_inside_a_refusal_are_not_entered() -> None:
    board, inner = Board(), Recorder(order=50)
    board.use(Owners(), inner)
    board.add(lambda: "gone", name="delete_note")
    async with Client(board) as client:
        assert (await client.call("delete_note")).text == "only owners delete"
    assert inner.hooks == []


if __name__ == "__main__":
    asyncio.run(test_only_owners_delete())
    asyncio.run(test_hooks_inside_a_refusal_are_not_entered())
    print("both pass")
