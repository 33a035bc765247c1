"""What a Pegboard server tells the model, as the callers of a gateway before it know its tools and results."""

from __future__ import annotations

from pegboard import Board, Client, Gateway, NextAction, ToolError, ToolResult
from pegboard.middleware import Budget, TokenBudget
from pegboard.testing import expect
from tests.gateway.test_gateway import configured, server


def make_board() -> Board:
    board = Board("shop")

    @board.tool
    async def order(article: str) -> ToolResult:
        """Orders an article; the word order stays."""
        if article == "sofa":
            raise ToolError("No order for a sofa.", try_tool=["search", NextAction("order", {"article": "chair"})])
        return ToolResult("Your order is on its way.", next_actions=NextAction("order", reason="orders one more"))

    @board.tool
    async def report() -> str:
        return "\n".join(f"line {number}" for number in range(2000))

    @board.tool
    async def export() -> str:
        return "\n".join(f"line {number}" for number in range(2000))

    board.use(TokenBudget(300, tools={"export": Budget(300, "refuse")}, overflow=True))
    return board


async def test_suggested_tools_have_the_names_of_the_gateway() -> None:
    async with Client(Gateway(configured(server("shop")), boards={"shop": make_board()})) as client:
        failed = await client.call("dev__shop__order", {"article": "sofa"})
        done = await client.call("dev__shop__order", {"article": "lamp"})
    expect(failed).error().suggests("dev__shop__search", "dev__shop__order").contains(
        'No order for a sofa.\nTools to try: dev__shop__search; dev__shop__order {"article": "chair"}'
    )
    expect(done).text("Your order is on its way.").suggests("dev__shop__order").notes(
        "What to do next:\n- dev__shop__order: orders one more"
    )


async def test_the_rest_of_a_result_is_read_through_the_gateway() -> None:
    async with Client(Gateway(configured(server("shop")), boards={"shop": make_board()})) as client:
        cut = await client.call("dev__shop__report")
        refused = await client.call("dev__shop__export")
        uris = cut.meta["dev.pegboard/truncated"]["uri"], refused.meta["dev.pegboard/refused"]["uri"]
        assert uris[0] == cut.content[-1]["uri"]
        assert uris[1] in refused.text
        for uri in uris:
            page, note = await client.read(uri)
            following = str(note["text"]).partition("The next page: ")[2]
            assert str(page["text"]).startswith("line 0\n")
            second, _ = await client.read(following)
            assert str(second["text"]).startswith("line ")
