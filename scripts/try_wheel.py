"""Builds the wheel and tests it in a clean environment, as a user would install it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from environments import CONSTRAINTS, Words, program, run, say, uv
from interpreters import ROOT, Interpreter

FIX = "the wheel lacks something that the checkout has: check [tool.hatch.build] and the core dependencies in pyproject.toml"
HELLO = '''
from pegboard import Board

board = Board("wheel")


@board.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b
'''
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "add",
        "arguments": {"a": 2, "b": 3},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "try_wheel", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


def main() -> None:
    python = Interpreter(sys.version_info[:3], sys.executable)
    installer = uv(python)
    with tempfile.TemporaryDirectory(prefix="pegboard-wheel-") as place:
        folder = Path(place)
        say("wheel: building")
        build: Words = ["--quiet", "--wheel", "--build-constraints", CONSTRAINTS, "--out-dir", folder]
        run([installer, "build", *build, ROOT], fix=FIX)
        (wheel,) = folder.glob("pegboard-*.whl")
        same_files(wheel)

        say("wheel: installing into a clean environment")
        clean = folder / "clean"
        run([installer, "venv", "--quiet", "--python", python.path, clean], fix=FIX)
        into: Words = ["--python", program(clean, "python"), "--constraints", CONSTRAINTS]
        run([installer, "pip", "install", "--quiet", *into, wheel], fix=FIX)

        say("wheel: testing it")
        (folder / "hello.py").write_text(HELLO)
        same_version(wheel, program(clean, "pegboard"))
        run([program(clean, "python"), "-W", "error", "-c", "from pegboard import Board, Client"], cwd=folder, fix=FIX)
        call_over_stdio([program(clean, "pegboard"), "run", "hello.py", "--stdio"], folder)
        say("wheel: ok")


def same_files(wheel: Path) -> None:
    """Check that every tracked file of the package is in the wheel: modules, py.typed, static files."""
    listed = subprocess.run(["git", "ls-files", "src/pegboard"], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = {line.removeprefix("src/") for line in listed.stdout.splitlines() if (ROOT / line).exists()}
    if missing := kept - set(zipfile.ZipFile(wheel).namelist()):
        sys.exit(f"The wheel lacks {', '.join(sorted(missing))}\nFix: {FIX}")
    if "pegboard/py.typed" not in kept:
        sys.exit("src/pegboard/py.typed is missing\nFix: add it, so that type checkers of users read our annotations")


def same_version(wheel: Path, command: Path) -> None:
    """Check that the installed command reports the version in the name of the wheel."""
    reported = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30).stdout.strip()
    if reported != f"pegboard {wheel.name.split('-')[1]}":
        sys.exit(f"{wheel.name} reports the version {reported!r}\nFix: look at [tool.hatch.version] in pyproject.toml")


def call_over_stdio(command: Words, cwd: Path) -> None:
    """Call a tool in the newest revision over stdio. The end of the input ends the session."""
    sent = json.dumps(CALL) + "\n"
    done = subprocess.run(command, cwd=cwd, input=sent, capture_output=True, text=True, timeout=30)
    try:
        (answer,) = map(json.loads, done.stdout.splitlines())
        assert answer["id"] == 1
        assert answer["result"]["content"][0]["text"] == "5"
    except (ValueError, KeyError, IndexError, AssertionError):
        sys.exit(f"2 + 3 over stdio gave the wrong output:\n{done.stdout}\n{done.stderr}\nFix: {FIX}")


if __name__ == "__main__":
    main()
