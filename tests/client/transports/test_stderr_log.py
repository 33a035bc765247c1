"""A flood on stderr: a few lines a period are logged, the others are counted, and the end is kept."""

from __future__ import annotations

import logging

import pytest

from pegboard.client.transports import stderr_log
from pegboard.client.transports.stderr_log import LOGGED_LINES, StderrLog
from tests.waiting import until


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_lines_that_come_one_by_one_are_limited_like_a_burst(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pegboard.client")
    log = StderrLog("the child")
    for _ in range(20_000):
        log.receive(b"x\n")
    log.close()
    assert logged(caplog) == ["the child: x"] * LOGGED_LINES + ["the child: 19900 more lines on stderr are not logged"]


async def test_a_new_period_says_what_the_last_one_left_out_and_logs_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr_log, "PERIOD_SECONDS", 0.0)
    caplog.set_level(logging.DEBUG, "pegboard.client")
    log = StderrLog("the child")
    log.receive(b"x\n" * (LOGGED_LINES + 1))
    assert len(logged(caplog)) == LOGGED_LINES
    await until(lambda: logged(caplog)[-1] == "the child: 1 more lines on stderr are not logged")
    log.receive(b"again\n")
    assert logged(caplog)[-1] == "the child: again"
    log.close()


async def test_the_end_of_the_output_is_kept_with_a_line_that_is_not_complete() -> None:
    log = StderrLog("the child")
    log.receive(b"first\nsecond\nthi")
    log.receive(b"rd")
    assert log.tail == ["first", "second", "third"]
    log.close()


async def test_a_line_without_an_end_is_cut_into_parts() -> None:
    log = StderrLog("the child")
    for _ in range(100):
        log.receive(b"x" * 5000)
    assert sum(map(len, log.tail)) <= stderr_log.STDERR_BYTES + 8192
    log.close()
