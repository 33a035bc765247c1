"""What guards the other tests against stalls finds them."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from pegboard.limits import Limits
from pegboard.server.http.listener import listen
from pegboard.server.http_types import Answer
from tests.server_processes import ROOT, HttpChild
from tests.stalls import BOUND, Meter
from tests.waiting import wait_until


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


class Slow:
    """An endpoint that computes for each request."""

    def accept(self, *_: object) -> Answer:
        compute(2 * BOUND)
        return Answer(200, b"slow")


async def test_a_server_that_computes_for_a_request_is_found() -> None:
    with Meter() as meter:
        server = await listen(Slow(), Limits())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await reader.readline()
        writer.close()
        await server.close()
    assert 2 * BOUND <= meter.longest < 10 * BOUND
    assert "_read_ready" in meter.what


async def test_what_the_test_itself_and_the_collector_do_is_not_a_stall() -> None:
    with Meter() as meter:
        await asyncio.sleep(0)
        compute(2 * BOUND)
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        loop.call_soon(gc.collect)
        await asyncio.sleep(0)
    assert meter.longest < BOUND


def serve_with_a_stall() -> None:
    with HttpChild(target=ROOT / "tests" / "stalling_board.py") as child:
        child.text("compute", seconds=0.6)
        wait_until(lambda: "the event loop was blocked" in child.said())


@pytest.mark.process
def test_a_child_that_reports_a_stall_fails_its_test() -> None:
    with pytest.raises(AssertionError, match=r"blocked for .* by tool compute"):
        serve_with_a_stall()
