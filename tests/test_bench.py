"""Every measurement in bench/ starts, measures and prints; what the figures say is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
# One short round of each script. Exit code 1 only says that a target was missed, as it may be on a busy machine.
SHORT = {
    "access.py": ["0.1"],
    "fairness.py": ["0.2", "1"],
    "hooks.py": ["1"],
    "middleware.py": ["0.1"],
    "observed.py": ["1"],
    "run.py": ["--quick", "--seconds", "0.1", "--only", "stdio"],
    "search.py": ["200"],
    "sloppy.py": [],
    "stores.py": ["1"],
    "streams.py": ["20"],
    "tools.py": ["0.1"],
    "ws.py": ["1"],
}
# Tested elsewhere (floods), or minutes long by their nature: these are only imported.
IMPORTED = {"client", "clients", "floods", "gateway", "inside", "starts", "workers", "many_tools", "others", "routes"}


@pytest.mark.peer
@pytest.mark.parametrize("script", SHORT)
def test_a_short_round_runs_to_its_end(script: str) -> None:
    command = [sys.executable, str(BENCH / script), *SHORT[script]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout.strip()


def test_every_other_script_can_be_imported() -> None:
    names = sorted(path.stem for path in BENCH.glob("*.py") if path.name not in SHORT)
    assert set(names) >= IMPORTED
    code = f"import sys; sys.path.insert(0, {str(BENCH)!r})\nimport " + ", ".join(names)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
