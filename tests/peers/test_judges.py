"""The judges themselves: one that cannot judge says why, and nobody waits for it forever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.peers.judges import LEGACY, ROOT, Judge, NoVerdict, Question, ask


def test_a_missing_peer_fails_and_names_the_fix() -> None:
    judge = Judge("gone", (ROOT / ".peers" / "gone" / "bin" / "python",), "auto", LEGACY)

    with pytest.raises(NoVerdict, match="run `make setup`"):
        ask(Question(judge, "http://127.0.0.1:1/mcp", "add", {}))


def test_a_judge_that_fails_shows_what_it_said(tmp_path: Path) -> None:
    script = tmp_path / "grumpy.py"
    script.write_text("import sys; sys.exit('no tool of that name')")

    judge = Judge("grumpy", (Path(sys.executable), script), "auto", LEGACY)

    with pytest.raises(NoVerdict, match=r"status 1(?s:.*)no tool of that name"):
        ask(Question(judge, "http://127.0.0.1:1/mcp", "add", {}))


def test_a_judge_that_hangs_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import threading; threading.Event().wait()")
    judge = Judge("slow", (Path(sys.executable), script), "auto", LEGACY)

    with pytest.raises(NoVerdict, match=r"did not finish within 0\.5 s"):
        ask(Question(judge, "http://127.0.0.1:1/mcp", "add", {}), deadline=0.5)
