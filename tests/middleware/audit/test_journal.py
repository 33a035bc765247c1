"""The journal: one sync of the disk serves many records, and a bounded number of them waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from pegboard.middleware.audit.journal import Journal
from tests.waiting import SOON, until


class SlowSink:
    """A disk that writes when told."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.taken = 0
        self.batches: list[int] = []

    def append(self, rows: Sequence[bytes]) -> None:
        self.taken += 1
        assert self.go.acquire(timeout=SOON)
        self.batches.append(len(rows))

    def close(self) -> None: ...


async def test_one_sync_serves_all_that_came_meanwhile_and_the_loop_is_free() -> None:
    sink = SlowSink()
    journal = Journal(sink)
    first = asyncio.ensure_future(journal.put(b"{}"))
    await until(lambda: sink.taken == 1)
    rest = [asyncio.ensure_future(journal.put(b"{}")) for _ in range(50)]
    await asyncio.sleep(0)
    assert not first.done()
    sink.go.release()
    await first
    assert not any(task.done() for task in rest)
    sink.go.release()
    await asyncio.gather(*rest)
    assert sink.batches == [1, 50]
    journal.close()


async def test_when_too_many_records_wait_for_the_disk_callers_wait_for_room() -> None:
    sink = SlowSink()
    journal = Journal(sink, pending=2)
    tasks = [asyncio.ensure_future(journal.put(b"{}")) for _ in range(20)]
    await asyncio.sleep(0)
    assert len(journal._rows) <= 2
    sink.go.release(40)
    await asyncio.gather(*tasks)
    assert sum(sink.batches) == 20
    assert max(sink.batches) <= 2
    journal.close()


async def test_a_journal_serves_several_event_loops() -> None:
    sink = SlowSink()
    sink.go.release(100)
    journal = Journal(sink)

    def elsewhere() -> None:
        with asyncio.Runner() as runner:
            runner.run(journal.put(b"{}"))

    await asyncio.gather(journal.put(b"{}"), *(asyncio.to_thread(elsewhere) for _ in range(3)))
    assert sum(sink.batches) == 4
    journal.close()
    with pytest.raises(OSError, match="closed"):
        await journal.put(b"{}")
