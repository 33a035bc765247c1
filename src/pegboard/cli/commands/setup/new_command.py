"""`pegboard new NAME`: make a project with a board, a test and a configuration, which runs at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.errors import SetupError

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

_FILES: Final = {
    "board.py": '''\
from typing import Annotated

from msgspec import Meta

from pegboard import Board, ToolError

board = Board("NAME")

PRICES = {"chair": 49.5, "lamp": 20.0}


@board.tool
def price(article: Annotated[str, Meta(examples=["chair"])], count: int = 1) -> float:
    """The price of some articles of one kind."""
    if article not in PRICES:
        raise ToolError(f"There is no {article}; there are: {', '.join(PRICES)}")
    return PRICES[article] * count


@board.resource("shop://articles")
def articles() -> str:
    """The names of all articles."""
    return "\\n".join(PRICES)
''',
    "test_board.py": """\
from board import board
from pegboard.testing import expect


async def test_prices(mcp_client):
    async with mcp_client(board) as client:
        expect(await client.call("price", {"article": "chair", "count": "2"})).ok().structured(99).repaired("count")
        expect(await client.call("price", {"article": "sofa"})).error("There is no sofa")
""",
    "pyproject.toml": """\
[project]
name = "NAME"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["pegboard"]

[dependency-groups]
dev = ["pytest"]

[tool.pegboard]
board = "board.py"

# `pip install .` installs the dependencies; the board is served from this folder.
[tool.setuptools]
py-modules = []
""",
    "pegboard.json": """\
{
  "mcpServers": {
    "NAME": { "board": "board.py" }
  }
}
""",
    "README.md": """\
# NAME

```console
$ pegboard dev                                    # serve the board, with its console; reloads on save
$ pegboard call . price article=chair count=2     # call a tool without a server
$ pip install pytest && pytest                    # run the tests, with clients of both eras
$ pegboard up                                     # serve this board and other servers as one, from pegboard.json
```
""",
}


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard new",
        description="Make a folder with a board, a test, a gateway configuration and a README. It never overwrites a file.",
        examples=("pegboard new shop && cd shop && pegboard dev",),
    )
    parser.add_argument(
        "name", metavar="NAME", help="the folder to make, or an empty one; its last part names the board"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    folder = Path(chosen.name)
    made = _make(folder)
    if chosen.json:
        show_json({"folder": str(folder), "files": [str(path) for path in made]})
        return 0
    for path in made:
        show(str(path))
    note(f"next: cd {folder} && pegboard dev")
    return 0


def _make(folder: Path) -> list[Path]:
    name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise SetupError(f"{name!r} cannot name a board: use letters, digits, - and _, and a letter first")
    taken = [file for file in _FILES if (folder / file).exists()]
    if taken:
        raise SetupError(f"{folder} already has {', '.join(taken)}, which are not overwritten: choose another name")
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in _FILES.items():
            # Fails if another program made the file in the meantime.
            with (folder / file).open("x", encoding="utf-8") as opened:
                opened.write(text.replace("NAME", name))
            made.append(folder / file)
    except OSError as problem:
        raise SetupError(f"{problem.filename or folder} cannot be written: {problem.strerror}") from None
    return made
