"""Every foreign client lists the tools of a board and calls one, in every era it speaks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.judges import DEADLINE, HERE, JUDGES, MCP1_PYTHON, NODE, Question, ask
from tests.peers.serving import PEGBOARD, ROOT, serve

pytestmark = pytest.mark.peer

HELLO = ROOT / "examples" / "hello.py"


@pytest.fixture(scope="module")
def hello() -> Iterator[str]:
    with serve("run", HELLO) as address:
        yield address


@pytest.mark.parametrize("program", {judge.program: None for judge in JUDGES}, ids=lambda program: program[-1].name)
def test_a_foreign_client_lists_and_calls_over_each_transport_in_each_era(
    program: tuple[Path, ...], hello: str
) -> None:
    targets = {"http": f"{hello}/mcp", "sse": f"{hello}/sse", "stdio": [PEGBOARD, "run", HELLO, "--stdio"]}
    questions = [
        Question(judge, targets[transport], "add", {"a": 2, "b": 3})
        for judge in JUDGES
        if judge.program == program
        for transport in sorted(judge.transports)
    ]

    for question, verdict in zip(questions, ask(*questions), strict=True):
        assert "add" in verdict["tools"], question
        assert (verdict["result"], verdict["is_error"]) == ("5", False), question
        assert verdict["protocol"] == question.judge.protocol, question
        assert verdict["server"]["name"], question


@pytest.mark.parametrize(
    "program",
    [(MCP1_PYTHON, HERE / "mcp1_life.py"), (NODE, HERE / "node" / "life1.mjs")],
    ids=["python-1", "typescript-1"],
)
def test_a_whole_session_of_http_with_sse_is_lived_through(program: tuple[Path, Path]) -> None:
    with serve("run", HERE / "lively_board.py") as address:
        done = subprocess.run(
            [*map(str, program), f"{address}/sse"], capture_output=True, text=True, timeout=DEADLINE, check=False
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
