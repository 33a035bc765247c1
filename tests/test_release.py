"""What a release needs: one version, a tag and a changelog that agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pegboard import __version__

pytestmark = pytest.mark.same_on_every_python

ROOT = Path(__file__).resolve().parent.parent


def check(folder: Path, tag: str, heading: str) -> subprocess.CompletedProcess[str]:
    """Run the check of a release on the scripts and the version of this checkout, with another changelog."""
    for path in ("scripts/check_release.py", "scripts/interpreters.py", "src/pegboard/__init__.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text((ROOT / path).read_text())
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n- A change.\n\n## 0.0.1 — 2020-01-01\n")
    command = [sys.executable, str(folder / "scripts" / "check_release.py"), tag]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/pegboard/__init__.py"


def test_the_changelog_begins_with_the_current_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]

    assert headings[0].startswith(f"## {__version__} — ")


@pytest.mark.process
def test_a_tag_that_agrees_with_version_and_changelog_may_be_released(tmp_path: Path) -> None:
    done = check(tmp_path, f"v{__version__}", f"## {__version__} — 2031-05-06")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("tag", "heading", "problem"),
    [
        ("v9.9.9", f"## {__version__} — 2031-05-06", "the tag is v9.9.9"),
        (__version__, f"## {__version__} — 2031-05-06", f"the tag is {__version__}"),
        (f"v{__version__}", "## 9.9.9 — 2031-05-06", f"does not begin with {__version__}"),
        (f"v{__version__}", f"## {__version__} — unreleased", "write the day of the release"),
    ],
)
def test_a_tag_that_disagrees_is_rejected_with_the_reason(tmp_path: Path, tag: str, heading: str, problem: str) -> None:
    done = check(tmp_path, tag, heading)

    assert done.returncode == 1
    assert problem in done.stderr
