"""`pegboard new` makes a project that runs at once, and overwrites nothing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pegboard.cli.commands.serving.run_command import announce
from pegboard.loading import load_board
from tests.cli.in_process import run_here

pytestmark = pytest.mark.process


def test_a_new_project_can_be_called_listed_as_a_gateway_and_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_here("new", "shop")
    assert (code, err) == (0, "next: cd shop && pegboard dev\n")
    assert sorted(out.split()) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("shop/*"))
    assert run_here("call", "shop", "price", "article=chair", "count=2")[:2] == (0, "99\n")
    monkeypatch.chdir(tmp_path / "shop")
    assert "price(article, count?)" in run_here("list", "pegboard.json")[1]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr


def test_the_call_that_is_suggested_for_a_new_project_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here("new", tmp_path / "shop")
    announce(load_board(str(tmp_path / "shop")), "http://127.0.0.1:7332/mcp", 0.0)
    suggested = re.search(r"  try      .* call http://127\.0\.0\.1:7332/mcp (.*)", capsys.readouterr().err)
    assert suggested is not None
    assert run_here("call", tmp_path / "shop", *shlex.split(suggested[1]))[:2] == (0, "49.5\n")


def test_installing_a_new_project_packages_no_module_however_many_it_has(tmp_path: Path) -> None:
    assert run_here("new", tmp_path / "shop")[0] == 0
    project = tomllib.loads((tmp_path / "shop" / "pyproject.toml").read_text())
    # An empty list turns off the discovery of setuptools, which rejects a folder with two modules.
    assert project["tool"]["setuptools"] == {"py-modules": []}
    assert "build-system" not in project


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    own = tmp_path / "shop" / "board.py"
    own.parent.mkdir()
    own.write_text("mine")
    code, _, err = run_here("new", own.parent)
    assert code == 2
    assert "already has board.py" in err
    assert list(own.parent.iterdir()) == [own]
    assert own.read_text() == "mine"


def test_a_name_that_cannot_name_a_board_is_rejected(tmp_path: Path) -> None:
    code, _, err = run_here("new", tmp_path / "2 shops")
    assert code == 2
    assert "'2 shops' cannot name a board" in err
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_printed_as_json(tmp_path: Path) -> None:
    code, out, _ = run_here("new", tmp_path / "shop", "--json")
    assert code == 0
    assert len(json.loads(out)["files"]) == 5
