"""Floods cost others nothing but a moment, and memory that is bounded and given back: what `bench/floods.py` measures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.server_processes import ROOT
from tests.stalls import reported_stalls

pytestmark = pytest.mark.process

FLOODS = (
    "slow readers: POST 2025-11-25",
    "slow readers: POST 2026-07-28",
    "slow readers: GET",
    "slow readers: listen",
    "slow readers: long answers",
    "slow readers: /ws",
    "half-open: heads",
    "half-open: bodies",
    "half-open: short header lines",
    "half-open: pipelined requests",
    "half-open: small chunks",
    "half-open: frames of /ws",
    "half-open: small messages of /ws",
    "half-open: uploads nobody reads",
    "storm: reconnects",
    "storm: sessions",
    "storm: /ws",
)
QUICK = (
    "slow readers: POST 2025-11-25",
    "half-open: bodies",
    "half-open: pipelined requests",
    "half-open: frames of /ws",
    "half-open: small messages of /ws",
    "storm: reconnects",
)


def measure(flood: str, *more: str) -> dict[str, Any]:
    """What a flood does to a server in a process of its own, and to those who call it meanwhile from another one."""
    words = [sys.executable, str(ROOT / "bench" / "floods.py"), flood, "--json", *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    # The watchdog sees whole turns of the loop, and in a flood many callers have theirs in the same one.
    assert reported_stalls(done.stderr, over=1.0) == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("flood", QUICK)
def test_a_flood_does_not_affect_other_clients(flood: str) -> None:
    found = measure(flood, "--small", "--seconds", "1")
    # Nobody was answered wrong or refused; memory stayed in its bounds, and was given back.
    assert found["faults"] == []
    # Who is not answered by then gives up.
    assert found["longest"] < 3
    assert found["calls"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
def test_a_large_flood_does_not_affect_other_clients(flood: str) -> None:
    found = measure(flood)
    print(found)
    assert found["faults"] == []
    assert found["calls"] > 100
