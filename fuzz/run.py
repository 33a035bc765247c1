"""Fuzzes the targets one after the other, guided by coverage (atheris), and says what was found.

What is found is written to `corpus/<target>/found-…`: there the tests replay it until it is fixed, and ever after.
"""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEARNT = HERE.parent / ".fuzz"
"""Inputs that reached new code, kept on this machine for the next run."""
TARGETS = sorted(file.stem for file in (HERE / "targets").glob("[a-z]*.py"))
LONGEST = 4096
SLOWEST = 2.0
"""Seconds of CPU time for one input; measuring coverage takes most of it. The tests allow far less."""
PATIENCE = 30
"""Seconds after which an input is taken for one that never ends."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--seconds", type=int, default=10, help="for each target (10)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        fuzz(chosen.inside, chosen.seconds)
        return
    unknown = set(chosen.targets) - set(TARGETS)
    if unknown:
        sys.exit(f"There is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = [target for target in chosen.targets or TARGETS if not run(target, chosen.seconds)]
    if failed:
        sys.exit(f"Found something in: {', '.join(failed)}. Fix it, and commit the file with the fix.")


def run(target: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own; whether nothing was found."""
    before = set((HERE / "corpus" / target).glob("found-*"))
    words = [sys.executable, "-m", "fuzz.run", "--inside", target, "--seconds", str(seconds)]
    done = subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True, errors="replace")
    told = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    found = sorted(set((HERE / "corpus" / target).glob("found-*")) - before)
    print(f"{target:14} {told[1] if told else '?':>9} executions  {len(found)} found", flush=True)
    for file in found:
        print(f"  {file.relative_to(HERE.parent)}")
    if done.returncode and not found:
        print(done.stderr[-3000:], file=sys.stderr)
    elif found:
        raised = re.search(r"=== Uncaught Python exception: ===\n(.*?)(\n==|$)", done.stdout + done.stderr, re.DOTALL)
        print(raised[1] if raised else done.stderr[-2000:])
    return done.returncode == 0


def fuzz(target: str, seconds: int) -> None:
    """Run here until the time is up, or something is found."""
    import atheris  # noqa: PLC0415 — only in the environment that `make fuzz` makes

    with atheris.instrument_imports(include=["pegboard"]):
        check = importlib.import_module(f"fuzz.targets.{target}").check

    def one(data: bytes) -> None:
        began = time.thread_time()
        check(data)
        took = time.thread_time() - began
        assert took < SLOWEST, f"took {took:.1f} s"

    seeds = HERE / "corpus" / target
    learnt = LEARNT / target
    learnt.mkdir(parents=True, exist_ok=True)
    words = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={PATIENCE}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *words, f"-artifact_prefix={seeds}/found-", str(learnt), str(seeds)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
