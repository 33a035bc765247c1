"""Every Python snippet of the documents stands in the example it names, and every example runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pegboard import Board, Client
from pegboard.tools import coerce

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "docs" / f"{name}.md" for name in ("tools", "arguments", "providers")]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str]]:
    return [(path.name, found) for path in DOCUMENTS for found in SNIPPET.findall(path.read_text())]


def test_there_are_snippets() -> None:
    assert len(snippets()) >= 8


@pytest.mark.parametrize(("document", "snippet"), snippets())
def test_a_snippet_stands_in_the_example_it_names(document: str, snippet: str) -> None:
    first, _, code = snippet.partition("\n")
    named = re.fullmatch(r"# (examples/\w+\.py)", first)
    assert named, f"{document}: the first line of a snippet names its example"
    assert code in (ROOT / named[1]).read_text()


def test_the_document_of_repairs_lists_every_code() -> None:
    told = re.findall(r"^    ((?:\w+, )*\w+,?)(?:  |$)", coerce.__doc__ or "", re.MULTILINE)
    codes = {code for line in told for code in re.findall(r"\w+_\w+", line)}
    assert len(codes) > 25
    text = (ROOT / "docs" / "arguments.md").read_text()
    assert {code for code in codes if f"`{code}`" not in text} == set()


def test_the_loop_of_your_own_runs() -> None:
    command = [sys.executable, str(ROOT / "examples" / "embedded.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[:2] == ["success 5", '[ParseWarning] a: string "2" read as number 2']


async def test_the_services_are_injected() -> None:
    board: Board = importlib.import_module("examples.services").board
    async with Client(board) as client:
        assert (await client.call("fetch", {"key": 7})).text == "Hello, row 7"
        assert list((await client.list_tools())[0]["inputSchema"]["properties"]) == ["key"]
