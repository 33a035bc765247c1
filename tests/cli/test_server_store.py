"""The store of a server, for verbs that take a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.in_process import run_here


@pytest.mark.parametrize(
    "words", [("keys", "add", "ann", "--config"), ("history", "--config"), ("status", "--config"), ("connections",)]
)
@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("nope.json", None, "File not found: nope.json"),
        ("board.py", "x = 1", "board.py is not a configuration; for a board, name the store of its server: --store"),
        ("package.json", '{"version": "1"}', "package.json has 2 mistakes"),
    ],
)
def test_a_file_that_no_gateway_can_serve_gets_no_store(
    words: tuple[str, ...],
    file: str,
    text: str | None,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    if text is not None:
        Path(file).write_text(text)
    code, out, err = run_here(*words, file)
    assert (code, out) == (2, "")
    assert f"pegboard {words[0]}: {problem}" in err
    assert not (tmp_path / "state").exists()


def test_an_unset_variable_of_a_configuration_does_not_hide_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    config = tmp_path / "gateway.json"
    config.write_text('{"mcpServers": {"a": {"command": "${NOT_SET_ANYWHERE}", "env": {"KEY": "cmd:false"}}}}')
    assert run_here("keys", "add", "ann", "--config", config)[0] == 0
    assert "ann" in run_here("keys", "list", "--config", config)[1]
