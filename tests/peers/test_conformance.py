"""The official conformance suite judges `examples/everything.py`: everything it knows, and no warning is let pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.peers.judges import HERE, NODE, NoVerdict
from tests.peers.serving import ROOT, serve

pytestmark = pytest.mark.peer

SUITE = HERE / "node" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
DEADLINE = 120.0

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


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    with serve("run", ROOT / "examples" / "everything.py") as address:
        yield address


@pytest.mark.parametrize("revision", SCENARIOS)
def test_the_official_suite_finds_nothing_to_complain_about(revision: str, everything: str, tmp_path: Path) -> None:
    checks = judge(f"{everything}/mcp", revision, tmp_path)

    complaints = [check for check in checks if check.status in ("FAILURE", "WARNING")]
    skipped = {check.scenario for check in checks if check.status == "SKIPPED"}
    scenarios = {check.scenario for check in checks}
    assert not complaints
    assert skipped <= ALWAYS_SKIPPED
    assert len(scenarios) == SCENARIOS[revision], sorted(scenarios)
    # One that only skips or informs has judged nothing.
    judged = Counter(check.scenario for check in checks if check.status == "SUCCESS")
    assert scenarios - set(judged) <= ALWAYS_SKIPPED


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
