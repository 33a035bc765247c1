"""Type checkers see the functions as their authors wrote them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# The type checker is part of the development environment alone.
pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["decorated.py", "questions.py"]


def run_mypy(path: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", SOURCES)
def test_mypy_sees_the_types_that_the_comments_state(name: str) -> None:
    source = Path(__file__).with_name(name)
    said: dict[int, str] = {}
    for line in run_mypy(source):
        if found := re.match(rf".*{re.escape(name)}:(\d+): (error|note): (.*)", line):
            # The first message about a line; notes that explain an error follow it.
            said.setdefault(int(found[1]), f"{found[2]}: {found[3]}")
    for number, line in enumerate(source.read_text().splitlines(), 1):
        _, _, comment = line.partition("  # ")
        if comment.startswith("Revealed"):
            assert (
                said.pop(number).removeprefix("note: ").replace("builtins.", "").replace("tests.typing.", "") == comment
            )
        elif comment.startswith("error"):
            assert said.pop(number).startswith("error: ")
    assert said == {}


def test_the_examples_pass_mypy_strict() -> None:
    assert run_mypy(ROOT / "examples") == []
