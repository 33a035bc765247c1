"""The official conformance suite, as it judges a server at a URL."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.peers.judges import HERE, NODE, NoVerdict

SUITE = HERE / "node" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
# Only for a suite that hangs: a busy machine may need minutes.
DEADLINE = 600.0

# How many scenarios each revision has: required, and beyond what it requires.
SCENARIOS = {"2025-11-25": 30 + 3, "2026-07-28": 37 + 13}
# The suite has no check for these yet and skips them whatever a server does.
ALWAYS_SKIPPED = {"tasks-status-notifications"}


@dataclass(frozen=True)
class Check:
    scenario: str
    id: str
    status: str
    said: str


def judge(url: str, revision: str, folder: Path) -> list[Check]:
    """Run the suite's server scenarios of a revision; all the checks it made."""
    if not SUITE.exists() or not NODE.exists():
        raise NoVerdict("the conformance suite is not installed: run `make setup`")
    command = [NODE, SUITE, "server", "--url", url, "--requirements", revision, "--output-dir", folder]
    # A home of its own, as for every judge.
    env = {**os.environ, "HOME": str(folder)}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise NoVerdict(f"the conformance suite did not finish within {DEADLINE:g} s\n{late.stdout!r}") from None
    checks = [
        Check(_scenario(file), one["id"], one["status"], one.get("errorMessage") or "")
        for file in folder.glob("server-*/checks.json")
        for one in json.loads(file.read_text())
    ]
    if not checks:
        raise NoVerdict(f"the conformance suite made no check\n{done.stdout}\n{done.stderr}")
    return checks


def _scenario(file: Path) -> str:
    # The folder is named server-<scenario>-<time>.
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name.removeprefix("server-"))
