"""Our own server with a tool whose result has a megabyte of text: `large.py http|stdio PORT`."""

import sys

from pegboard import Board

board = Board("large", version="1.0.0")
LINE = "A line of a text that is as long as the lines of most texts are, which is about eighty.\n"


@board.tool
async def text(number: int) -> str:
    """A text of a megabyte that begins with a number."""
    return f"{number}\n" + LINE * (1_000_000 // len(LINE))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        board.run("http", port=int(sys.argv[2]))
    else:
        board.run("stdio")
