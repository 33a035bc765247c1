"""Every foreign client lists the tools of a board and calls one, in every era it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.judges import Judge, judges_over, run_judge
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
