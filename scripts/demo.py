"""Installs Pegboard with only its core dependencies and runs the demo."""

from __future__ import annotations

import os
import sys

from environments import CONSTRAINTS, PINS, build, is_current, one_at_a_time, program, recipe
from interpreters import ROOT, newest_and_oldest

FOLDER = ROOT / ".venv-demo"


def main() -> None:
    with one_at_a_time():
        stamp = recipe(ROOT / "pyproject.toml", CONSTRAINTS)
        if not is_current(FOLDER, stamp):
            newest, _ = newest_and_oldest()
            build(FOLDER, newest, stamp, [*PINS, "--editable", "."])
    # The demo replaces this process, so that it alone receives Ctrl+C and other signals.
    command = program(FOLDER, "pegboard")
    os.execv(command, [str(command), "demo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
