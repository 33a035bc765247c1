"""`pegboard check` reports all mistakes, and starts nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.in_process import run_here


def write(path: Path, text: str | dict[str, object]) -> Path:
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    return path


def test_all_mistakes_of_a_configuration_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = write(
        tmp_path / "gateway.json",
        {"mcpServers": {"a": {"command": 5}, "b": {}}},
    )
    code, out, err = run_here("check", file, "--json")
    assert code == 1
    assert [re.search(r"gateway.json: (\S+) \(line (\d+)\)", line)[0] for line in err.splitlines()] == [
        "gateway.json: mcpServers.a.command (line 4)",
        "gateway.json: mcpServers.b (line 6)",
    ]
    assert len(json.loads(out)[0]["problems"]) == 2


def test_a_program_that_is_not_installed_is_a_mistake(tmp_path: Path) -> None:
    file = write(tmp_path / "gateway.json", {"mcpServers": {"a": {"command": "no-such-program-here"}}})
    code, out, err = run_here("check", file)
    assert code == 1
    assert out == f"{file}: 1 mistake, 0 warnings\n"
    assert "main/a: the program 'no-such-program-here' is not on PATH" in err


def test_a_board_is_loaded_and_its_tools_are_read(tmp_path: Path) -> None:
    long = "a" * 70
    text = f"from pegboard import Board\nboard = Board('x')\n\n@board.tool\ndef {long}() -> int:\n    return 1\n"
    code, _, err = run_here("check", write(tmp_path / "long_name.py", text))
    assert code == 0
    assert "the name has 70 characters" in err
    assert "no description" in err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("broken.py", "def (:\n", "broken.py:1: SyntaxError"),
        ("empty.py", "", "has no board"),
        ("failing.py", "x = 1\nraise ValueError('no')\n", "failing.py:2: ValueError: no"),
        ("empty.json", "", "empty.json"),
        ("package.json", '{"name": "web", "scripts": {"build": "x"}}', "package.json"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_with_its_place(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    code, _, err = run_here("check", write(tmp_path / name, text))
    assert code == 1
    assert told in err


def test_without_a_target_the_files_of_the_folder_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here("check")[0] == 2
    assert run_here("new", "shop")[0] == 0
    monkeypatch.chdir(tmp_path / "shop")
    assert run_here("check")[:2] == (0, "pegboard.json: 0 mistakes, 0 warnings\n.: 0 mistakes, 0 warnings\n")
    Path("pyproject.toml").unlink()
    Path("main.py").write_text("raise RuntimeError('not a board')")
    assert run_here("check")[:2] == (0, "pegboard.json: 0 mistakes, 0 warnings\n")


def test_the_command_for_a_secret_is_not_run(tmp_path: Path) -> None:
    entry = {"command": "${cmd:touch ran}", "args": ["${cmd:touch ran}"], "env": {"A": "${file:nowhere}"}}
    file = write(tmp_path / "pegboard.json", {"mcpServers": {"a": entry, "b": {"url": "${cmd:touch ran}"}}})
    code, out, err = run_here("check", str(file))
    assert not (tmp_path / "ran").exists()
    assert (code, out) == (1, f"{file}: 1 mistake, 0 warnings\n")
    assert "nowhere does not exist" in err
