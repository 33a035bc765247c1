"""Answers that fit: token budgets, the rest of a long result in pages, response modes, estimates, suggestions."""

from pegboard import Board, NextAction, ToolResult
from pegboard.middleware import Budget, Estimate, TokenBudget, TokenCount

board = Board("budgets")
tokens = TokenCount()

board.use(tokens)
board.use(
    TokenBudget(
        2_000,
        categories={"search": 500},
        tools={"export": Budget(10_000, "refuse", warn=8_000), "ping": None},
        overflow=True,
        modes=True,
        estimate={"export": Estimate(10, {"rows": 6})},
    )
)


@board.tool
async def read_log(lines: int) -> str:
    """Reads the last lines of the log."""
    return "\n".join(f"{number}: all is well" for number in range(lines))


@board.tool
async def export(rows: int) -> str:
    """Exports rows, all or none."""
    return "\n".join(f"{number},{number * number}" for number in range(rows))


@board.tool
async def check_disk() -> ToolResult:
    """Checks the disk."""
    return ToolResult(
        {"free_gb": 3},
        insights=["Less than 5 GB are free."],
        next_actions=[NextAction("read_log", {"lines": 100}, "shows what has been written")],
    )


@board.tool(category="monitoring")
async def token_usage() -> dict[str, int]:
    """How many tokens each tool has cost so far."""
    return {name: tally.input + tally.output for name, tally in tokens.stats("tool").items()}


if __name__ == "__main__":
    board.run()
