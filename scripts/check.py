"""Runs the static checks, or those named as arguments. A failure does not stop the others: one run reports everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from environments import Words, say
from interpreters import ROOT

BIN = Path(sys.executable).parent
CHECKS: tuple[tuple[str, Words, str], ...] = (
    ("ruff check", [BIN / "ruff", "check", "--quiet", "."], "make fix"),
    ("ruff format", [BIN / "ruff", "format", "--check", "--quiet", "."], "make fix"),
    ("mypy", [BIN / "mypy"], "annotate, or ignore one error code on one line and give the reason"),
    ("words", [sys.executable, "scripts/check_words.py"], "use the plain words that it suggests"),
    ("import layers", [BIN / "lint-imports", "--no-cache"], "import only from lower layers; pyproject.toml lists them"),
)


def main() -> None:
    named = sys.argv[1:]
    if unknown := set(named) - {name for name, _, _ in CHECKS}:
        sys.exit(f"No such check: {', '.join(sorted(unknown))}. There are: {', '.join(name for name, _, _ in CHECKS)}")
    failed = []
    for name, command, fix in CHECKS:
        if named and name not in named:
            continue
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        say(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}")
        if done.returncode:
            failed.append(f"{name} (fix: {fix})")
            print(done.stdout, file=sys.stderr)
    if failed:
        sys.exit("Failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
