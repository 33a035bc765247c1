"""Builds everything that is needed to run and test this repository, unless it is up to date.

`set_up.py python` leaves out the npm packages, which take as long as all the rest.
"""

from __future__ import annotations

import shutil
import sys

import node
from environments import CONSTRAINTS, PINS, Words, build, is_current, mark_current, one_at_a_time, program, recipe, say
from interpreters import ROOT, newest_and_oldest

PROJECT = ROOT / "pyproject.toml"
MCP1 = ROOT / "tests" / "peers" / "mcp1.txt"

MAIN_FOLDER = ROOT / ".venv"
OLDEST_FOLDER = ROOT / ".venv-oldest"
MCP1_FOLDER = ROOT / ".peers" / "mcp1"
# The official SDK 1.x and packages that need it: servers to put behind the gateway, and a proxy.
MCP1_PACKAGES = ("mcp", "mcp-proxy", "mcp-server-git", "mcp-server-time")

# Pegboard itself, editable, with every extra.
PEGBOARD: Words = [*PINS, "--editable", ".[all]"]


def main() -> None:
    with one_at_a_time():
        system = node.system_node()
        groups = ["--group", "dev"] if system else ["--group", "dev", "--group", "node"]
        main_stamp = recipe(PROJECT, CONSTRAINTS, *groups)
        oldest_stamp = recipe(PROJECT, CONSTRAINTS, "test")
        mcp1_stamp = recipe(MCP1, *MCP1_PACKAGES)

        is_node_ready = "python" in sys.argv[1:] or node.is_ready()
        is_main_ready = is_current(MAIN_FOLDER, main_stamp)
        if sys.platform == "win32":
            # The other environments are for tests that need POSIX processes and signals.
            if not is_main_ready:
                build(MAIN_FOLDER, newest_and_oldest()[0], main_stamp, [*PEGBOARD, *groups])
            return
        is_oldest_ready = is_current(OLDEST_FOLDER, oldest_stamp)
        is_mcp1_ready = is_current(MCP1_FOLDER, mcp1_stamp)
        if is_main_ready and is_oldest_ready and is_mcp1_ready and is_node_ready:
            return

        newest, oldest = newest_and_oldest()
        if not is_main_ready:
            build(MAIN_FOLDER, newest, main_stamp, [*PEGBOARD, *groups])
        if not is_oldest_ready and oldest.version[:2] != newest.version[:2]:
            build(OLDEST_FOLDER, oldest, oldest_stamp, [*PEGBOARD, "--group", "test"])
        elif not is_oldest_ready:
            # There is no older interpreter to test with: record that as a folder with a stamp and no interpreter.
            shutil.rmtree(OLDEST_FOLDER, ignore_errors=True)
            OLDEST_FOLDER.mkdir()
            mark_current(OLDEST_FOLDER, oldest_stamp)
        if not is_mcp1_ready:
            build(MCP1_FOLDER, newest, mcp1_stamp, ["--constraints", MCP1, *MCP1_PACKAGES])
        if not is_node_ready:
            node.install(system or node.wheel_node(program(MAIN_FOLDER, "python")))
        say("ready")


if __name__ == "__main__":
    main()
