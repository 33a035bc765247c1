"""Services: registered by type on the board, injected into tools, hidden from callers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from pegboard import Board, Context, ToolError

board = Board("services")


@dataclass
class Settings:
    greeting: str = "Hello"


class Connection:
    """Stands for a connection to a database."""

    is_open = True

    async def fetch(self, key: int) -> str:
        if key < 0:
            raise ToolError("there are no negative rows")
        return f"row {key}"

    async def close(self) -> None:
        self.is_open = False


async def connect(settings: Settings) -> AsyncIterator[Connection]:
    connection = Connection()
    try:
        yield connection
    finally:
        # Runs when the call ends (lifetime="call") or the application stops (lifetime="app"), also if the tool raised.
        await connection.close()


board.services.value(Settings, Settings())
board.services.factory(Connection, connect)


@board.tool
async def fetch(key: int, connection: Connection, settings: Settings, ctx: Context) -> str:
    """Fetches a row."""
    await ctx.progress(1, 1, "fetching")
    return f"{settings.greeting}, {await connection.fetch(key)}"


if __name__ == "__main__":
    board.run()
