"""What a store said is safe is there after any process was killed, and processes do not get into each other's way."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard.limits import Limits
from pegboard.stores.store import LogPage
from pegboard.stores.store_url import open_store
from tests.middleware.valkey import Valkey
from tests.server_processes import Child
from tests.stores.backends import started
from tests.stores.store_urls import address

pytestmark = pytest.mark.process

APPENDER = Path(__file__).parent / "appender.py"
EVERY = Limits(
    worker_seconds=0.3, stream_events=1_000_000, stream_bytes=1 << 30, session_bytes=1 << 30, stored_bytes=1 << 30
)


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    with address(request.param, server) as found:
        yield found


def appender(url: str, session: str, *mode: str) -> Child:
    return Child(sys.executable, APPENDER, url, session, *mode)


def acknowledged(child: Child, lines: int | None = None) -> dict[str, list[int]]:
    """What the process says is safe: so many lines of it, or all until it ends."""
    assert child.process.stdout is not None
    said: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(iter(child.process.stdout.readline, b""), 1):
        if line.endswith(b"\n"):
            log, seq = line.split()
            said[log.decode()].append(int(seq))
        if number == lines:
            break
    return said


def numbers(page: LogPage | None) -> list[int]:
    assert page is not None
    return [entry.seq for entry in page.entries]


async def kill_one_at_work(url: str, entries: int) -> None:
    session = secrets.token_hex(16)
    with appender(url, session, "own") as child:
        said = acknowledged(child, entries)
        child.process.kill()
        for log, more in acknowledged(child).items():
            said[log] += more
        assert said.keys() == {"a", "b", "c"}, child.said()
    async with started(open_store(url, EVERY)) as store:
        for log, seqs in said.items():
            page = await store.logs.read((session, log), 0, 1_000_000)
            kept = numbers(page)
            assert seqs == list(range(1, len(seqs) + 1))
            # One more may be there: it was safe before its process could say so.
            assert kept in (seqs, [*seqs, len(seqs) + 1])
            assert page is not None
            assert [entry.data for entry in page.entries] == [b"%d" % seq * 20 for seq in kept]
            assert await store.logs.append((session, log), len(kept) + 1, b"the end", end=True)


@pytest.mark.parametrize("entries", [50, 333, 800])
async def test_every_acknowledged_entry_outlives_the_kill_of_its_writer(url: str, entries: int) -> None:
    await kill_one_at_work(url, entries)


@pytest.mark.slow
async def test_every_acknowledged_entry_outlives_many_kills(url: str) -> None:
    for entries in range(10, 2000, 100):
        await kill_one_at_work(url, entries)


async def test_of_processes_that_fight_for_a_number_one_gets_it(url: str) -> None:
    session = secrets.token_hex(16)
    with appender(url, session, "race", "200") as one, appender(url, session, "race", "200") as two:
        won = [acknowledged(child).get("common", []) for child in (one, two)]
        assert (one.wait(), two.wait()) == (0, 0), one.said() + two.said()
    assert sorted(won[0] + won[1]) == list(range(1, 201))
    async with started(open_store(url, EVERY)) as store:
        page = await store.logs.read((session, "common"), 0, 1000)
        assert numbers(page) == list(range(1, 201))
        assert page is not None
        by = defaultdict(list)
        for entry in page.entries:
            by[int(entry.data)].append(entry.seq)
        assert by == {child.process.pid: seqs for child, seqs in zip((one, two), won, strict=True) if seqs}


@pytest.mark.parametrize("fate", ["killed", "held up"])
async def test_another_ends_the_log_of_a_process_that_beats_no_more_which_then_writes_no_more(
    url: str, fate: str
) -> None:
    session = secrets.token_hex(16)
    log = session, "common"
    with appender(url, session, "beat", "20") as child:
        said = acknowledged(child, 20)["common"]
        if fate == "killed":
            child.process.kill()
        async with started(open_store(url, EVERY)) as store:
            page = await store.logs.read(log, 0, 1)
            assert page is not None
            async with asyncio.timeout(10):
                while page.about.decode() in await store.leases.holders():
                    pass
            assert await store.logs.append(log, 21, b"its worker died", end=True)
            if fate == "held up":
                child.signal(signal.SIGCONT)
            said += acknowledged(child)["common"]
            assert child.wait() == (0 if fate == "held up" else -signal.SIGKILL), child.said()
            page = await store.logs.read(log, 0, 100)
            assert page is not None
            assert (page.ended, page.entries[-1].data) == (True, b"its worker died")
            assert numbers(page) == list(range(1, 22))
            assert said == list(range(1, 21))
