"""The first minute of a new user, in a terminal: what README shows is what they see."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_terminal import on_terminal

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def transcript() -> list[tuple[str, list[str]]]:
    """The commands of README's first screen that start `pegboard`, each with the lines that it prints."""
    block = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    return [(command, lines) for command, lines in commands(block[1]) if command.startswith("pegboard ")]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, without the comments behind them, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ ").partition("   ")[0].strip(), []))
        else:
            found[-1][1].append(line)
    return found


def as_in_readme(screen: str) -> list[str]:
    """The lines of a screen, with what differs from launch to launch as README writes it."""
    screen = re.sub(r"ready in [\d.]+ s", "ready in 0.1 s", screen)
    screen = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7332", screen)
    return re.sub(r"token=[\w-]+", "token=…", screen).splitlines()


def test_readme_has_commands() -> None:
    assert len(transcript()) >= 2


@pytest.mark.parametrize(("command", "shown"), transcript())
def test_the_terminal_shows_what_readme_shows(command: str, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PORT", "0")
    words = shlex.split(command)[1:]
    # A terminal gets HTTP; these tests have no stdin.
    screen = on_terminal(*words, until="add to" if words[0] == "run" else "")
    assert as_in_readme(screen)[: len(shown)] == shown


def test_a_new_project_is_served_and_its_console_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_PORT", "0")
    monkeypatch.chdir(tmp_path)
    assert on_terminal("new", "shop").splitlines()[-1] == "next: cd shop && pegboard dev"
    monkeypatch.chdir("shop")
    screen = as_in_readme(on_terminal("dev", until="add to"))
    assert screen[1:4] == [
        "pegboard 0.1.0   shop: 1 tool, ready in 0.1 s",
        "  MCP      http://127.0.0.1:7332/mcp",
        "  console  http://127.0.0.1:7332/console/?token=…",
    ]
