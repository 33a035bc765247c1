"""Token budgets: long results are truncated and stay readable in full for a while."""

from collections.abc import Mapping

from pegboard import Board, Context
from pegboard.middleware import Budget, KeptResults, TokenBudget, TokenCount

board = Board("budgets")
kept = KeptResults(seconds=600, max_bytes=32 * 1024 * 1024)
tokens = TokenCount()

board.use(tokens)
board.use(
    TokenBudget(
        2_000,
        categories={"search": 500},
        tools={"export": Budget(10_000, "refuse"), "ping": None},
        kept=kept,
        link=True,
    )
)


@board.resource("pegboard://results/{name}", mime_type="application/json")
async def whole_result(name: str, ctx: Context) -> Mapping[str, object] | None:
    """Returns a truncated result in full, to the principal that received it."""
    return kept.read(name, ctx.principal.id)


@board.tool
async def read_log(lines: int) -> str:
    """Reads the last lines of the log."""
    return "\n".join(f"{number}: all is well" for number in range(lines))


@board.tool
async def export(rows: int) -> str:
    """Exports rows, all or none."""
    return "\n".join(f"{number},{number * number}" for number in range(rows))


@board.tool(category="monitoring")
async def token_usage() -> dict[str, int]:
    """How many tokens each tool has cost so far."""
    return {name: tally.input + tally.output for name, tally in tokens.stats("tool").items()}


if __name__ == "__main__":
    board.run()
