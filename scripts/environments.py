"""Builds the isolated environments of this repository, each only if something that defines it has changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interpreters import ROOT, Interpreter, candidates

if sys.platform != "win32":
    import fcntl

Words = list[str | Path]

CONSTRAINTS = ROOT / "constraints.txt"
UV_PINS = ROOT / "scripts" / "uv.txt"
# uv checks every file that it installs against the digests of its constraint.
PINS: Words = ["--constraints", CONSTRAINTS, "--build-constraints", CONSTRAINTS]
_started = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], *, fix: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a command without output. If it fails, print its output, the command and a possible fix, and exit."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nFailed ({done.returncode}): {' '.join(map(str, command))}\nFix: {fix}")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process sets up this checkout. Windows has no `flock`: there, run one set-up at a time."""
    with (ROOT / ".setup.lock").open("w") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another set-up of this checkout is running; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program(folder: Path, name: str) -> Path:
    """The path of a program in an environment."""
    return folder / "Scripts" / f"{name}.exe" if sys.platform == "win32" else folder / "bin" / name


def digest(*parts: Path | str) -> str:
    """A digest of the contents of files and of strings."""
    seen = hashlib.sha256()
    for part in parts:
        seen.update(part.read_bytes() if isinstance(part, Path) else part.encode())
        seen.update(b"\0")
    return seen.hexdigest()


def recipe(*parts: Path | str) -> str:
    """The digest of an environment: its contents, Pegboard's version, the scripts that build it, and the interpreters found."""
    sources = [ROOT / "src" / "pegboard" / "__init__.py", Path(__file__), ROOT / "scripts" / "interpreters.py"]
    return digest(*parts, *sources, *map(str, candidates()))


def is_current(folder: Path, stamp: str) -> bool:
    try:
        return (folder / "stamp").read_text() == stamp
    except OSError:
        return False


def mark_current(folder: Path, stamp: str) -> None:
    (folder / "stamp").write_text(stamp)


def uv(python: Interpreter) -> Path:
    """The path of `uv`: the system's, or else one that is installed from the package index into `.uv`."""
    if (found := shutil.which("uv")) and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return Path(found)
    own = program(ROOT / ".uv", "uv")
    if not own.exists():
        say("installing uv")
        run([python.path, "-m", "venv", ROOT / ".uv"], fix="install the `venv` module for this Python")
        fix = "check that pip can reach a package index (pip config list), then run make again"
        run([own.with_name("python"), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", UV_PINS], fix=fix)
    return own


def build(folder: Path, python: Interpreter, stamp: str, packages: Sequence[str | Path]) -> None:
    """Make `folder` an environment of `python` with exactly `packages` and their dependencies."""
    say(f"{folder.relative_to(ROOT)}: Python {python}")
    installer = uv(python)
    # An environment with this interpreter is updated in place, because a program may be running from it.
    if not _is_made_of(folder, python):
        run([installer, "venv", "--quiet", "--clear", "--python", python.path, folder], fix=f"delete {folder.name}")
    into: Words = ["--quiet", "--exact", "--python", program(folder, "python")]
    fix = f"check the network and the package index settings (UV_DEFAULT_INDEX), or delete {folder.name}"
    run([installer, "pip", "install", *into, *packages], fix=fix)
    mark_current(folder, stamp)


def _is_made_of(folder: Path, python: Interpreter) -> bool:
    try:
        settings = (folder / "pyvenv.cfg").read_text()
    except OSError:
        return False
    home = Path(python.path).resolve().parent
    return f"home = {home}\n" in settings and program(folder, "python").exists()
