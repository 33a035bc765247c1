"""Finds the working CPython interpreters of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
MINORS = (14, 13, 12, 11)
# Set by `make PYTHON=…`: the interpreter that runs the script is the only one used.
ONLY = "ONLY_THIS_PYTHON"

# A name on PATH is not enough: version managers install shims for interpreters that are not selected, and distributions
# package `venv` separately. So each candidate has to run, and to import what an environment needs.
QUESTION = (
    "import sys, venv, ensurepip; "
    "print(sys.implementation.name, sys.version_info.releaselevel, *sys.version_info[:3], sys.executable, sep='|')"
)


@dataclass(frozen=True, order=True)
class Interpreter:
    version: tuple[int, int, int]
    path: str

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def candidates() -> list[Path]:
    """Every path that may be a supported interpreter; none of them has been run yet."""
    if os.environ.get(ONLY):
        return [Path(sys.executable)]
    found = [Path(path) for minor in MINORS if (path := shutil.which(f"python3.{minor}"))]
    managers = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    for minor in MINORS:
        for versions in managers:
            found += sorted(versions.glob(f"3.{minor}.*/bin/python3.{minor}"))
    if path := shutil.which("python3"):
        found.append(Path(path))
    # An environment of this repository is not an interpreter to build another one from.
    return [path for path in found if ROOT not in path.parents]


def working() -> Iterator[Interpreter]:
    for path in [*candidates(), Path(sys.executable)]:
        try:
            asked = subprocess.run([path, "-c", QUESTION], capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        name, level, major, minor, micro, executable = asked.stdout.strip().split("|")
        version = (int(major), int(minor), int(micro))
        if name == "cpython" and level == "final" and version[:2] >= OLDEST and ROOT not in Path(executable).parents:
            yield Interpreter(version, executable)


def newest_and_oldest() -> tuple[Interpreter, Interpreter]:
    """The newest interpreter found and, of the oldest minor version found, the newest patch."""
    found = sorted(set(working()))
    if not found:
        sys.exit(
            "No CPython 3.11 or newer with `venv` and `ensurepip` was found.\n"
            "Fix: install one (for example python3.13 and python3.13-venv, or pyenv), then run make again."
        )
    oldest = [one for one in found if one.version[:2] == found[0].version[:2]]
    return found[-1], oldest[-1]
