"""Looks up every pin in the database of known vulnerabilities, and reports when the service cannot be reached."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from environments import CONSTRAINTS, PINS, Words, build, is_current, one_at_a_time, recipe, say
from interpreters import ROOT, newest_and_oldest
from pin import MCP1

FOLDER = ROOT / ".venv-audit"
VULNERABLE, UNKNOWN = 1, 2


def main() -> None:
    with one_at_a_time():
        stamp = recipe(ROOT / "pyproject.toml", CONSTRAINTS, "audit")
        if not is_current(FOLDER, stamp):
            newest, _ = newest_and_oldest()
            build(FOLDER, newest, stamp, [*PINS, "--group", "audit"])
    verdicts = [judge(pins.relative_to(ROOT), *ask(pins)) for pins in (CONSTRAINTS, MCP1)]
    sys.exit(VULNERABLE if VULNERABLE in verdicts else max(verdicts))


def ask(pins: Path) -> tuple[list[dict[str, Any]], str]:
    """Run the auditor on a list of pins. Return its findings for each package and the last line of its output."""
    with tempfile.TemporaryDirectory(prefix="pegboard-audit-") as folder:
        report = Path(folder) / "report.json"
        read: Words = ["--requirement", pins, "--disable-pip", "--require-hashes"]
        told: Words = ["--timeout", "10", "--progress-spinner", "off", "--format", "json", "--output", report]
        command: Words = [FOLDER / "bin" / "pip-audit", *read, *told]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = done.stdout.strip().splitlines() or ["it printed nothing"]
        # It exits with 1 both for findings and for its own failures; only findings leave a report.
        written = report.read_text() if report.exists() else ""
    return (json.loads(written)["dependencies"] if written else []), lines[-1][:300]


def judge(pins: Path, found: list[dict[str, Any]], last: str) -> int:
    """Report the findings. A package that could not be looked up does not count as safe."""
    known = [one for one in found if "skip_reason" not in one]
    affected = [one for one in known if one["vulns"]]
    if not known:
        say(f"{pins}: NOT AUDITED: no package could be looked up. The vulnerability service cannot be reached")
        say(f"  ({found[0]['skip_reason'] if found else last})")
        return UNKNOWN
    say(f"{pins}: {len(known)} packages, {len(affected)} with known vulnerabilities")
    for one in affected:
        for vulnerability in one["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
            print(f"  {one['name']} {one['version']}: {vulnerability['id']}, fixed in {fixed}")
    for one in found:
        if "skip_reason" in one:
            print(f"  {one['name']}: NOT AUDITED, {one['skip_reason']}")
    if affected:
        return VULNERABLE
    return UNKNOWN if len(known) < len(found) else 0


if __name__ == "__main__":
    main()
