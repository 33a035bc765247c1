"""What is not on Linux: modules load where POSIX is missing, and verbs that need it say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.process
def test_modules_load_and_verbs_work_or_say_what_they_need_where_posix_is_missing(tmp_path: Path) -> None:
    program = Path(__file__).with_name("without_posix.py")
    home = dict.fromkeys(("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env={**os.environ, **home, "PEGBOARD_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed ")]
    shown = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line not in failed)
    # It is a program for Linux, and no module imports it.
    assert [line.partition(":")[0] for line in failed] == ["failed pegboard.client.transports.confined_program"]
    assert shown["call"].startswith("0 5 ")
    assert {verb: shown[verb][0] for verb in ("new", "check", "connect", "add")} == dict.fromkeys(
        ("new", "check", "connect", "add"), "0"
    )
    for verb in ("dev", "run--reload", "run--workers"):
        assert shown[verb].startswith("2 "), shown[verb]
        assert "needs a system with fork" in shown[verb], shown[verb]
