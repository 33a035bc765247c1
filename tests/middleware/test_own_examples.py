"""The examples of operating a board and of writing one's own middleware: each does what it says."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest

from pegboard import Client
from tests.middleware.audit.audit_records import records_of
from tests.middleware.test_examples import load


async def test_the_complete_example_of_the_seed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "lifecycle")
    example = load("lifecycle")
    await example.main()
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["You said: hello", "You said: after a while"]
    assert said[2].startswith("lifecycle_example failed, error id ")
    assert "text: required" in said[4]
    assert said[6:8] == ["lifecycle_example is closed now; try again tomorrow", "You said: hello!"]
    # The one refused at the door (order 5) never reached the timing (order 20).
    assert example.timing.grades.total() == 5
    assert example.timing.grades["failed"] == 2
    assert example.timing.grades["slow"] >= 1
    assert [example.timing.grade(elapsed) for elapsed in (20, 21, 100, 101)] == ["fast", "normal", "normal", "slow"]
    by_logger = {
        name: [r.getMessage() for r in caplog.records if r.name == name]
        for name in ("lifecycle.calls", "lifecycle.timing")
    }
    # The log observes it nevertheless.
    assert len(by_logger["lifecycle.calls"]) == 6
    assert "lifecycle_example was slow: " in by_logger["lifecycle.timing"][0]
    # After in reverse order: the timing, inside, speaks before the log.
    ours = [record for record in caplog.records if record.name.startswith("lifecycle")]
    (slow, *_) = [place for place, record in enumerate(ours) if "was slow" in record.getMessage()]
    assert ours[slow + 1].name == "lifecycle.calls"


async def test_operating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    example = load("operating")
    async with Client(example.board) as client:
        for _ in range(3):
            assert (await client.call("forecast", {"city": "Bern"})).text == "Rain in Bern."
        scraped = (await client.call("scrape")).text
    example.audit.close()
    records = records_of(tmp_path / "pegboard-audit")
    assert [record["name"] for record in records] == ["forecast"] * 3 + ["scrape"]
    assert example.cache.hits == 2
    assert 'gen_ai_tool_name="forecast"} 3' in scraped


async def test_testing() -> None:
    example = load("testing_middleware")
    await example.test_only_owners_delete()
    await example.test_hooks_inside_a_refusal_are_not_entered()
