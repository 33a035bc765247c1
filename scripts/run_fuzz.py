"""Builds the environment for fuzzing and runs `fuzz/run.py` in it."""

from __future__ import annotations

import os
import platform
import sys

from environments import CONSTRAINTS, PINS, build, is_current, one_at_a_time, recipe
from interpreters import ROOT, newest_and_oldest

FOLDER = ROOT / ".venv-fuzz"


def main() -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(
            "The fuzzer (atheris) is only available for Linux on x86-64. The tests replay its corpus on every platform."
        )
    with one_at_a_time():
        stamp = recipe(ROOT / "pyproject.toml", CONSTRAINTS)
        if not is_current(FOLDER, stamp):
            newest, _ = newest_and_oldest()
            build(FOLDER, newest, stamp, [*PINS, "--only-binary", "atheris", "--group", "fuzz", "--editable", ".[all]"])
    os.chdir(ROOT)
    python = str(FOLDER / "bin" / "python")
    os.execv(python, [python, "-m", "fuzz.run", *sys.argv[1:]])


if __name__ == "__main__":
    main()
