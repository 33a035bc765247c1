"""The official conformance suite judges our client, by `examples/conformance_client.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.judges import HERE, NODE, ROOT, NoVerdict

pytestmark = pytest.mark.peer

SUITE = HERE / "node" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
DEADLINE = 90.0

LEGACY, MODERN = "2025-11-25", "2026-07-28"
SCENARIOS = [
    ("initialize", LEGACY),
    ("tools_call", LEGACY),
    ("tools_call", MODERN),
    ("elicitation-sep1034-client-defaults", LEGACY),
    ("sse-retry", LEGACY),
    ("request-metadata", MODERN),
    ("sep-2322-client-request-state", MODERN),
    ("http-standard-headers", MODERN),
    ("http-custom-headers", MODERN),
    ("http-invalid-tool-headers", MODERN),
    ("json-schema-ref-no-deref", MODERN),
    ("json-schema-2020-12-preservation", LEGACY),
    ("json-schema-2020-12-preservation", MODERN),
]


@pytest.mark.parametrize(("scenario", "revision"), SCENARIOS)
def test_the_official_suite_finds_nothing_to_complain_about(scenario: str, revision: str, tmp_path: Path) -> None:
    if not SUITE.exists() or not NODE.exists():
        raise NoVerdict("the conformance suite is not installed: run `make setup`")
    # The suite splits the command at every space.
    client = tmp_path / "client"
    client.symlink_to(ROOT / "examples" / "conformance_client.py")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    command = [NODE, SUITE, "client", "--command", f"{python} {client}", "--scenario", scenario]
    command += ["--spec-version", revision, "--output-dir", tmp_path, "--timeout", "60000"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    checks = [one for file in tmp_path.glob("*/checks.json") for one in json.loads(file.read_text())]
    # What is skipped belongs to the other era: a modern client sends no initialize.
    complaints = [(one["id"], one.get("errorMessage")) for one in checks if one["status"] in ("FAILURE", "WARNING")]
    assert not complaints
    assert [one for one in checks if one["status"] == "SUCCESS"], done.stdout + done.stderr
    # It also fails a client that hangs or ends with an error.
    assert done.returncode == 0, done.stdout + done.stderr
