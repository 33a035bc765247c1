"""A program that tools need, started and checked with the board."""

import os
import sys
from pathlib import Path
from urllib.request import urlopen

from pegboard import Board
from pegboard.middleware import HelperProcess

PORT = int(os.environ.get("FILES_PORT", "7391"))

board = Board("helpers")
files = HelperProcess(
    [sys.executable, "-m", "http.server", str(PORT), "--bind", "127.0.0.1", "--directory", str(Path(__file__).parent)],
    health=f"http://127.0.0.1:{PORT}/",
    name="file server",
)
board.use(files, tool="read_example")


@board.tool
def read_example(name: str) -> str:
    """Reads an example from the file server."""
    with urlopen(f"http://127.0.0.1:{PORT}/{name}.py") as response:
        return str(response.read(), "utf-8")


@board.tool
async def file_server() -> str:
    """Returns the state of the file server."""
    return files.state


if __name__ == "__main__":
    board.run()
