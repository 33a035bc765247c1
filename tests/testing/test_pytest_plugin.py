"""The pytest plugin, in a run of pytest of its own, as its users have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

pytestmark = pytest.mark.process

TESTS = """
import sys

LOADED = {name for name in sys.modules if name.startswith("pegboard.")}

import pytest
from pegboard import Board, Context

board = Board("plugin")

@board.tool
async def version(ctx: Context) -> str:
    return ctx.caller.version

seen = []

async def test_both_eras(mcp_client, mcp_era):
    async with mcp_client(board) as client:
        seen.append((mcp_era, (await client.call("version")).text))

def test_seen():
    assert seen == [("modern", "2026-07-28"), ("legacy", "2025-11-25")]

@pytest.mark.parametrize("mcp_era", ["2024-11-05"], indirect=True)
async def test_one_revision(mcp_client):
    async with mcp_client(board) as client:
        assert (await client.call("version")).text == "2024-11-05"

@pytest.mark.pegboard
async def test_marked():
    # The plugin itself loads no client and no server.
    assert LOADED == {"pegboard.lazy_names", "pegboard.testing", "pegboard.testing.pytest_plugin"}

async def test_failing(mcp_client):
    async with mcp_client(board) as client:
        assert (await client.call("version")).text == "never"

async def test_unmarked():
    raise RuntimeError("not ours to run")
"""


def test_async_tests_run_in_both_eras_with_pytest_alone(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "--strict-markers"]
    done = subprocess.run(
        [*command, "-p", "no:xdist", "test_it.py", *sorted(map(str, EXAMPLES.glob("testing_*.py")))],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "3 failed, 11 passed" in done.stdout, done.stdout + done.stderr
    assert "test_failing[modern]" in done.stdout
    assert "test_failing[legacy]" in done.stdout
    # Tests that have nothing to do with us are left to other plugins.
    assert "async def functions are not natively supported" in done.stdout
