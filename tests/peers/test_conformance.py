"""The official conformance suite judges `examples/everything.py`: everything it knows, and no warning is let pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.serving import ROOT, serve
from tests.peers.suite import ALWAYS_SKIPPED, SCENARIOS, judge

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    with serve("run", ROOT / "examples" / "everything.py") as address:
        yield address


@pytest.mark.parametrize("revision", SCENARIOS)
def test_the_official_suite_finds_nothing_to_complain_about(revision: str, everything: str, tmp_path: Path) -> None:
    checks = judge(f"{everything}/mcp", revision, tmp_path)

    complaints = [check for check in checks if check.is_complaint]
    skipped = {check.scenario for check in checks if check.status == "SKIPPED"}
    scenarios = {check.scenario for check in checks}
    assert not complaints
    assert skipped <= ALWAYS_SKIPPED
    assert len(scenarios) == SCENARIOS[revision], sorted(scenarios)
    # One that only skips or informs has judged nothing.
    judged = Counter(check.scenario for check in checks if check.status == "SUCCESS")
    assert scenarios - set(judged) <= ALWAYS_SKIPPED
