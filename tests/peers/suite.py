"""The official conformance suite, as it judges a server at a URL.

It waits for fixed times, such as half a second for a notification, so that a busy machine would decide some of its checks.
All its timers are therefore ten times as long (`node/slow_clock.cjs`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.peers.judges import HERE, NODE, NoVerdict

SUITE = HERE / "node" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SLOW_CLOCK = {"NODE_OPTIONS": f"--require {json.dumps(str(HERE / 'node' / 'slow_clock.cjs'))}"}
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

    @property
    def is_complaint(self) -> bool:
        return self.status in ("FAILURE", "WARNING")


def judge(url: str, revision: str, folder: Path) -> list[Check]:
    """Run the suite's server scenarios of a revision; all the checks it made."""
    done = run("server", "--url", url, "--output-dir", folder, "--requirements", revision, folder=folder)
    checks = [
        Check(_scenario(file), one["id"], one["status"], one.get("errorMessage") or "")
        for file in folder.glob("server-*/checks.json")
        for one in json.loads(file.read_text())
    ]
    if not checks:
        raise NoVerdict(f"the conformance suite made no check\n{done.stdout}\n{done.stderr}")
    return checks


def run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the suite in this folder, which is its home as well, as every judge has its own."""
    if not SUITE.exists() or not NODE.exists():
        raise NoVerdict("the conformance suite is not installed: run `make setup`")
    try:
        return subprocess.run(
            [NODE, SUITE, *arguments],
            cwd=folder,
            env={**os.environ, "HOME": str(folder), **SLOW_CLOCK},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise NoVerdict(f"the conformance suite did not finish within {DEADLINE:g} s\n{late.stdout!r}") from None


def _scenario(file: Path) -> str:
    # The folder is named server-<scenario>-<time>.
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name.removeprefix("server-"))
