"""Testing tools: one test for both protocol eras, a fake server, a gateway without its servers, record and replay."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pegboard import Board, Client, ToolError
from pegboard.testing import FakeServer, MemoryServer, Recording, expect, fake_gateway

# The plugin of Pegboard runs the async tests of this file.
pytestmark = pytest.mark.pegboard

board = Board("shop")


@board.tool
async def price(article: str, count: int = 1) -> float:
    """Returns the price of an article."""
    if article != "chair":
        raise ToolError(f"There is no {article}.", code="NOT_FOUND", try_tool="list_articles")
    return 49.5 * count


async def test_prices(mcp_client: Callable[..., Client]) -> None:
    async with mcp_client(board) as client:
        expect(await client.call("price", {"article": "chair", "count": "2"})).ok().structured(99).repaired("count")
        expect(await client.call("price", {"article": "sofa"})).error("no sofa", code="NOT_FOUND").suggests(
            "list_articles"
        )


async def test_the_gateway_file_without_its_servers() -> None:
    notes = FakeServer("notes", {"read_note": lambda arguments: f"about {arguments['name']}", "delete_note": "gone"})
    gateway = fake_gateway(Path(__file__).with_name("workshop.json"), {"notes": notes}, environ={})
    async with Client(gateway) as client:
        expect(await client.call("office__notes__read_note", {"name": "tea"})).text("about tea")
        # The file hides tools that delete.
        assert [tool["name"] for tool in await client.list_tools()] == ["office__notes__read_note"]
        notes.down = True
        expect(await client.call("office__notes__read_note", {"name": "tea"})).error("was lost")
    assert [call.tool for call in notes.calls] == ["read_note"]


async def test_a_recording_answers_without_the_board() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder, "shop.json"))
        board.use(recording)
        async with Client(board) as client:
            await client.call("price", {"article": "chair"})
        board.unuse(recording)
        async with Client(FakeServer.replay(recording.path)) as client:
            expect(await client.call("price", {"article": "chair"})).structured(49.5)
            expect(await client.call("price", {"article": "lamp"})).error("No call with these arguments was recorded")


if __name__ == "__main__":
    asyncio.run(test_prices(lambda target: Client(MemoryServer(target), version="2025-06-18")))
    asyncio.run(test_the_gateway_file_without_its_servers())
    asyncio.run(test_a_recording_answers_without_the_board())
    print("all pass")
