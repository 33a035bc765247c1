"""Every script, example and fuzz program at least loads: what moves in the source or the tests breaks none of them unseen.

`tests/test_bench.py` runs those of the bench, other tests run the examples and some of the scripts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.same_on_every_python]

ROOT = Path(__file__).resolve().parent.parent
LOAD = """
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="loaded")
"""


@pytest.mark.parametrize("folder", ["agent_bench", "examples", "fuzz", "scripts"])
def test_every_program_of_a_folder_loads(folder: str) -> None:
    paths = sorted(path for path in (ROOT / folder).glob("*.py") if path.name != "__main__.py")
    assert paths
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD, *paths],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}:{ROOT / 'examples'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
