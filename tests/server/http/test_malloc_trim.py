"""Memory that was freed is given back after a flood, and nobody pays for looking when there was none."""

from __future__ import annotations

import pytest

from pegboard.server.http.malloc_trim import (
    GROWN_BYTES,
    LEAST_SECONDS,
    MOST_SECONDS,
    MallocTrim,
    resident_bytes,
    trim_heap,
)

MEGABYTE = 1024 * 1024


class Process:
    """One whose memory is what a test says: what is in use, and what an allocator has kept beyond that."""

    def __init__(self) -> None:
        self.used = 30 * MEGABYTE
        self.kept = 0
        self.circles = 0
        self.trims = 0
        self.now = 1000.0
        self.slack = MallocTrim(lambda: self.used + self.kept + self.circles, self.trim, self.collect)
        self.slack.check(self.now)

    def trim(self) -> None:
        self.kept = 0
        self.trims += 1

    def collect(self) -> None:
        self.kept += self.circles
        self.circles = 0

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.slack.check(self.now)


def test_what_a_flood_has_left_behind_is_given_back_soon() -> None:
    process = Process()
    process.kept = 200 * MEGABYTE
    process.pass_time(2 * LEAST_SECONDS)
    assert (process.kept, process.trims) == (0, 1)


def test_what_died_in_circles_is_given_back_too() -> None:
    process = Process()
    process.circles = 200 * MEGABYTE
    process.pass_time(2 * LEAST_SECONDS)
    assert process.circles + process.kept == 0


def test_one_that_has_not_grown_by_much_is_left_alone() -> None:
    process = Process()
    process.used += GROWN_BYTES - 1
    process.pass_time(1000)
    assert process.trims == 0


def test_one_that_needs_its_memory_is_asked_less_and_less_often_and_gives_it_back_when_it_no_longer_does() -> None:
    process = Process()
    process.used += 500 * MEGABYTE
    process.pass_time(600)
    assert process.trims < 2 * (600 / MOST_SECONDS + 6)
    process.used, process.kept = process.used - 500 * MEGABYTE, 500 * MEGABYTE
    process.pass_time(MOST_SECONDS + 1)
    assert process.kept == 0


@pytest.mark.skipif(not resident_bytes(), reason="only Linux says what a process holds")
def test_this_process_is_seen_and_can_be_asked() -> None:
    before = resident_bytes()
    trim_heap()
    assert 5 * MEGABYTE < resident_bytes() <= before + MEGABYTE
