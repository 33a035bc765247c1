"""The smallest board: two tools, no configuration."""

from pegboard import Board

board = Board("hello", version="1.0.0")


@board.tool
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool
async def greet(name: str, greeting: str = "Hello") -> str:
    """Greets somebody by name."""
    return f"{greeting}, {name}!"


if __name__ == "__main__":
    board.run()
