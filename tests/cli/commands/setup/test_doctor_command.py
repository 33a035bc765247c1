"""`pegboard doctor` says what is wrong, and how to mend it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.cli.in_process import run_here


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEGBOARD_STATE", str(tmp_path / "state"))
    # No Node and no uv: they are only for servers that need them.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("npm_config_cache", raising=False)
    for name in ("PEGBOARD_CONFIG", "PEGBOARD_STORE", "WORKBENCH_CONFIG", "XDG_CACHE_HOME", "NPM_CONFIG_CACHE"):
        monkeypatch.delenv(name, raising=False)


def findings(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, out, _ = run_here("doctor", "--json", *words)
    return code, {one["name"]: one for one in json.loads(out)}


def test_a_machine_with_little_on_it_is_not_wrong() -> None:
    code, found = findings("--port", "0")
    assert code == 0
    assert found["node"]["state"] == found["uvx"]["state"] == "note"
    assert "pip install uv" in found["uvx"]["fix"]


def test_a_port_in_use_is_named_with_the_process_that_uses_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        _, found = findings("--port", str(busy.getsockname()[1]))
    assert found["port"]["state"] == "note"
    assert f"(process {os.getpid()})" in found["port"]["text"]
    assert "--port" in found["port"]["fix"]


def test_a_configuration_with_mistakes_and_a_program_that_fails_are_wrong(tmp_path: Path) -> None:
    tmp_path.joinpath("pegboard.json").write_text('{"mcpServers": {"a": {"command": "nowhere"}}}')
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nexit 3\n")
    node.chmod(0o755)
    code, found = findings("--port", "0")
    assert code == 1
    assert found["config"]["fix"] == "pegboard check pegboard.json"
    assert found["node"]["state"] == "wrong"


def test_the_table_is_for_people() -> None:
    code, out, err = run_here("doctor", "--port", "0")
    assert code == 0
    assert out.startswith("ok    pegboard")
    assert "nothing is wrong" in err


def test_the_caches_of_npx_and_uvx_are_named_with_the_command_that_fills_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("npx", "uvx"):
        tmp_path.joinpath(name).write_text("#!/bin/sh\necho 1.0\n")
        tmp_path.joinpath(name).chmod(0o755)
    tmp_path.joinpath(".npm", "_npx").mkdir(parents=True)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    code, found = findings("--port", "0")
    assert code == 0
    assert found["npx cache"]["state"] == "ok"
    assert f"rm -r {tmp_path / '.npm' / '_npx'}" in found["npx cache"]["text"]
    assert found["uvx cache"]["state"] == "note"
    assert "uvx PACKAGE --help" in found["uvx cache"]["fix"]
    tmp_path.joinpath("cache").touch()
    code, found = findings("--port", "0")
    assert code == 1
    assert "set UV_CACHE_DIR to another one" in found["uvx cache"]["fix"]


def test_the_store_of_the_configuration_is_not_created(tmp_path: Path) -> None:
    tmp_path.joinpath("pegboard.json").write_text('{"mcpServers": {}}')
    assert "is created by the first start" in findings("--port", "0")[1]["store"]["text"]
    assert list(tmp_path.joinpath("state").iterdir()) == []


def test_a_store_that_cannot_be_opened_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store.db"
    monkeypatch.setenv("PEGBOARD_STORE", f"sqlite:{store}")
    store.touch(0o600)
    assert findings("--port", "0")[1]["store"]["text"] == f"sqlite:{store} can be opened"
    store.unlink()
    store.symlink_to(tmp_path / "other.db")
    tmp_path.joinpath("other.db").touch()
    code, found = findings("--port", "0")
    assert code == 1
    assert "is a symbolic link" in found["store"]["text"]
    assert "PEGBOARD_STORE=sqlite:PATH" in found["store"]["fix"]


def test_the_password_of_a_store_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEGBOARD_STORE", "redis://user:sesame@127.0.0.1:1/0")
    code, out, err = run_here("doctor", "--port", "0")
    assert code == 1
    assert "redis:…" in out
    assert "sesame" not in out + err
