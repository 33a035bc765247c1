"""Secrets that a configuration names: read from files and commands, within bounds, and never shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pegboard.config import secret_sources
from pegboard.config.gateway_config import GatewayConfig, read_config
from pegboard.errors import SetupError

SECRET = "s3cret-of-a-file"


def configured(folder: Path, token: str, **entry: Any) -> GatewayConfig:
    server = {"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {token}"}, **entry}
    tree = {"toolboxes": {"dev": {"description": "d", "mcpServers": {"a": server}}}}
    file = folder / "pegboard.json"
    file.write_text(json.dumps(tree))
    return read_config(file, {})


def header(config: GatewayConfig) -> str:
    return config.toolboxes["dev"].servers["a"].headers["Authorization"]


def problem(config: GatewayConfig) -> str:
    return config.toolboxes["dev"].servers["a"].problem


def python(code: str) -> str:
    return "${cmd:" + f'{sys.executable} -c "{code}"' + "}"


def test_a_file_beside_the_configuration_holds_the_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    config = configured(tmp_path, "${file:token}")
    assert header(config) == f"Bearer {SECRET}"
    assert SECRET in config.secrets


def test_a_command_prints_the_secret(tmp_path: Path) -> None:
    config = configured(tmp_path, python("print('printed-secret')"))
    assert header(config) == "Bearer printed-secret"
    assert "printed-secret" in config.secrets


def test_a_command_that_is_named_twice_runs_once(tmp_path: Path) -> None:
    count = python("open('ran', 'a').write('x'); print('printed-secret')")
    config = configured(tmp_path, count, headers={"A": count, "B": count})
    assert len(set(config.toolboxes["dev"].servers["a"].headers.values())) == 1
    assert (tmp_path / "ran").read_text() == "x"


def test_a_secret_outside_of_a_server_that_is_missing_is_a_mistake_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps({"name": "${file:none}", "toolboxes": {}}))
    with pytest.raises(SetupError, match=r"name \(line 1\): the secret file .*none does not exist"):
        read_config(file, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${file:missing}", "the secret file {folder}/missing does not exist, or is not a file; create it"),
        ("${file:.}", "does not exist, or is not a file"),
        ("${file:}", "${file:} names no file"),
        ("${file:empty}", "empty is empty; write the secret to it"),
        ("${file:binary}", "is not UTF-8 text"),
        ("${file:long}", "has more than 65536 bytes"),
        ("${cmd:}", "${cmd:} names no command"),
        ("${cmd:'open}", "check its quotes"),
        ("${cmd:no-such-program-here x}", "the secret command 'no-such-program-here' cannot be started"),
        (python("print('leaked-text'); exit(3)"), "failed with exit code 3; run it in a terminal"),
        (python("print('x' * 70000)"), "has more than 65536 bytes"),
        (python("while True: print('x' * 70000)"), "has more than 65536 bytes"),
    ],
)
def test_a_secret_that_cannot_be_read_fails_its_server_with_the_key_and_the_fix(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "long").write_text("x" * 70_000)
    told = problem(configured(tmp_path, text))
    assert told.startswith("toolboxes.dev.mcpServers.a.headers.Authorization: ")
    assert said.replace("{folder}", str(tmp_path)) in told
    assert "leaked-text" not in told


def test_a_command_that_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.5)
    endless = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    assert "did not end within 0.5 s" in problem(configured(tmp_path, python(endless)))


def test_nothing_is_read_for_a_server_that_is_disabled(tmp_path: Path) -> None:
    config = configured(tmp_path, python("open('ran', 'w')"), disabled=True)
    assert not problem(config)
    assert not (tmp_path / "ran").exists()
