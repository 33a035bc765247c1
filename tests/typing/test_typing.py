"""Type checkers see the functions as their authors wrote them."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.test_public_names import PUBLIC

# The type checker is part of the development environment alone.
pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["decorated.py", "questions.py"]
PROGRAM = Path(__file__).with_name("public_names.py")


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


def test_a_program_that_uses_every_public_name_passes_mypy_strict() -> None:
    assert run_mypy(PROGRAM) == []


def test_the_program_uses_every_public_name() -> None:
    used = Counter(node.id for node in ast.walk(ast.parse(PROGRAM.read_text())) if isinstance(node, ast.Name))
    public = {
        name for package in PUBLIC if package != "pegboard.errors" for name in importlib.import_module(package).__all__
    } - {"__version__"}
    assert {name for name in public if not used[name]} == set()


def test_the_examples_pass_mypy_strict() -> None:
    assert run_mypy(ROOT / "examples") == []
