"""A home folder and a project of their own for the verbs that look for the files of clients."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder; the current folder is a project in it."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    for name in (
        "XDG_CONFIG_HOME",
        "APPDATA",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "PEGBOARD_CONFIG",
        "WORKBENCH_CONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    (project / "tools.py").write_text("from pegboard import Board\nboard = Board('tools')\n")
    return tmp_path / "home"
