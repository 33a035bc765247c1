"""`pegboard bench` makes a bounded load, and measures it."""

from __future__ import annotations

import json

import pytest

from tests.cli.in_process import run_here

HELLO = "examples/hello.py"


def test_calls_are_counted_and_measured() -> None:
    code, out, _ = run_here("bench", HELLO, "add", "a=2", "b=3", "--calls", "40", "--concurrency", "4", "--json")
    figures = json.loads(out)
    assert code == 0
    assert (figures["calls"], figures["failures"]) == (40, 0)
    assert figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]


def test_without_a_tool_the_list_of_tools_is_requested() -> None:
    code, out, _ = run_here("bench", HELLO, "--calls", "5")
    assert code == 0
    assert out.startswith("5 calls in ")


def test_calls_that_fail_are_exit_code_1() -> None:
    code, out, _ = run_here("bench", HELLO, "add", "a=x", "b=3", "--calls", "3", "--json")
    assert code == 1
    assert json.loads(out)["failures"] == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("http://192.0.2.1/mcp",), "add --yes if you may put load on it"),
        ((HELLO, "--calls", "0"), "--calls 0: choose from 1"),
        ((HELLO, "--concurrency", "1000"), "--concurrency 1000: choose from 1 to 256"),
    ],
)
def test_a_load_without_bounds_or_on_another_machine_is_rejected(words: tuple[str, ...], told: str) -> None:
    code, _, err = run_here("bench", *words)
    assert code == 2
    assert told in err
