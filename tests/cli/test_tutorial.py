"""The tutorial, from its first line to its last: what the page shows is what a reader sees."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_first_minute import as_in_readme, commands
from tests.cli.test_terminal import on_terminal

pytestmark = pytest.mark.process

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVERS = ("dev", "up")


def test_every_command_and_snippet_of_the_tutorial_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PORT", "0")
    # A narrower terminal cuts the tables.
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    tried = [try_block(kind, text) for kind, text in blocks(monkeypatch)]
    assert tried.count("console") >= 7
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], capture_output=True, text=True, check=False
    )
    assert "4 passed" in done.stdout, done.stdout


def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The blocks of the page in their order; the reader changes to the new project after the first one."""
    for number, (kind, text) in enumerate(BLOCK.findall(PAGE.read_text())):
        yield kind, text
        if number == 0:
            monkeypatch.chdir("shop")


def try_block(kind: str, text: str) -> str:
    if kind == "console":
        for command, shown in commands(text):
            try_command(shlex.split(command)[1:], shown)
    elif kind == "json":
        Path("pegboard.json").write_text(text)
    elif kind == "python":
        first, _, code = text.partition("\n")
        file, made = re.fullmatch(r"# (\w+\.py)(, as it was made)?", first).groups()  # type: ignore[union-attr]
        if made:
            assert code in Path(file).read_text()
        else:
            with Path(file).open("a") as out:
                out.write(f"\n\n{code}")
    return kind


def try_command(words: list[str], shown: list[str]) -> None:
    answer = next(("y" for line in shown if line.endswith("[y/n]: y")), "")
    screen = on_terminal(*words, until="add to" if words[0] in SERVERS else "", answer=answer)
    lines = [line for line in as_in_readme(screen) if not re.fullmatch(r"[\d.]+ ms", line)]
    start = lines.index(shown[0]) if shown and shown[0] in lines else 0
    assert lines[start : start + len(shown)] == shown
