"""Every foreign client lists the tools of a board and calls one, in every era it speaks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.judges import HERE, MCP1_PYTHON, NODE, Judge, judges_over, run_judge
from tests.peers.serving import PEGBOARD, ROOT, serve

pytestmark = pytest.mark.peer

HELLO = ROOT / "examples" / "hello.py"


@pytest.fixture(scope="module")
def hello() -> Iterator[str]:
    with serve("run", HELLO) as address:
        yield address


@pytest.mark.parametrize("judge", judges_over("http"), ids=str)
def test_a_foreign_client_lists_and_calls_over_http(judge: Judge, hello: str) -> None:
    verdict = run_judge(judge, f"{hello}/mcp", "add", {"a": 2, "b": 3})

    assert "add" in verdict["tools"]
    assert (verdict["result"], verdict["is_error"]) == ("5", False)
    assert verdict["protocol"] == judge.protocol
    assert verdict["server"]["name"]


@pytest.mark.parametrize("judge", judges_over("stdio"), ids=str)
def test_a_foreign_client_lists_and_calls_over_stdio(judge: Judge) -> None:
    verdict = run_judge(judge, [PEGBOARD, "run", HELLO, "--stdio"], "add", {"a": 2, "b": 3})

    assert "add" in verdict["tools"]
    assert (verdict["result"], verdict["is_error"]) == ("5", False)
    assert verdict["protocol"] == judge.protocol


@pytest.mark.parametrize("judge", judges_over("sse"), ids=str)
def test_a_foreign_client_lists_and_calls_over_http_with_sse(judge: Judge, hello: str) -> None:
    verdict = run_judge(judge, f"{hello}/sse", "add", {"a": 2, "b": 3})

    assert "add" in verdict["tools"]
    assert (verdict["result"], verdict["is_error"]) == ("5", False)
    assert verdict["protocol"] == judge.protocol


@pytest.mark.parametrize(
    "program",
    [(MCP1_PYTHON, HERE / "mcp1_life.py"), (NODE, HERE / "node" / "life1.mjs")],
    ids=["python-1", "typescript-1"],
)
def test_a_whole_session_of_http_with_sse_is_lived_through(program: tuple[Path, Path]) -> None:
    with serve("run", HERE / "lively_board.py") as address:
        done = subprocess.run(
            [*map(str, program), f"{address}/sse"], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "protocol": "2025-11-25",
        "progress": [[1, 2, "step 1"], [2, 2, "step 2"]],
        "roots": "file:///here",
        "heard": ["notifications/resources/updated notes://one", "notifications/tools/list_changed"],
        "new": ["another"],
    }
