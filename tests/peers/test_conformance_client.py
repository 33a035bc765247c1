"""The official conformance suite judges our client, by `examples/conformance_client.py`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.judges import ROOT
from tests.peers.suite import run

pytestmark = pytest.mark.peer

LEGACY, MODERN = "2025-11-25", "2026-07-28"
# All that a revision requires of a client, and the extensions of it that we have: not the tokens bound to a key (DPoP).
REQUIRED = {LEGACY: 18, MODERN: 32}
LEFT_OUT = {"auth/dpop", "auth/dpop-nonce"}


def run_client(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The suite splits the command at every space.
    client = folder / "client"
    client.symlink_to(ROOT / "examples" / "conformance_client.py")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    options = ("--command", f"{python} {client}", "--output-dir", folder / "results")
    return run("client", *options, *arguments, folder=folder)


def results(folder: Path) -> dict[str, list[dict[str, str]]]:
    """The checks of each scenario that was run."""
    found = {}
    for file in (folder / "results").rglob("checks.json"):
        # auth/metadata-var1-2026-11-16T03-55-43-255Z
        name = file.parent.relative_to(folder / "results").as_posix()
        found[re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", name)] = json.loads(file.read_text())
    return found


def complaints(checks: list[dict[str, str]]) -> list[tuple[str, str | None]]:
    """What was not right, warnings included; what is skipped belongs to the other era."""
    return [(one["id"], one.get("errorMessage")) for one in checks if one["status"] in ("FAILURE", "WARNING")]


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_all_that_a_revision_requires_of_a_client_is_there_logins_included(revision: str, tmp_path: Path) -> None:
    done = run_client(tmp_path, "--requirements", revision, "--timeout", "180000")
    found = results(tmp_path)
    unscored = set(re.findall(r"^  \S (\S+) \((?:extension|added-after-release)\)$", done.stdout, re.MULTILINE))
    assert {
        name: complaints(checks) for name, checks in found.items() if name not in LEFT_OUT and complaints(checks)
    } == {}
    # A scenario in which nothing was checked proves nothing.
    assert [name for name, checks in found.items() if not any(one["status"] == "SUCCESS" for one in checks)] == []
    assert len(found.keys() - unscored) == REQUIRED[revision], done.stdout + done.stderr
    assert {"auth/client-credentials-jwt", "auth/client-credentials-basic"} <= unscored
    assert done.returncode == 0, done.stdout + done.stderr
