"""A process that appends to logs and tells of each entry once the store says it is safe: URL, session, then a mode.

`own` fills three logs of its own at once; `race` fights with others over the numbers of one log, up to a count; `beat`
fills one log and beats between entries, until an entry is refused, and holds itself up after a count.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from pegboard.limits import Limits
from pegboard.stores.cluster import Workers
from pegboard.stores.store import LogName, Store
from pegboard.stores.store_url import open_store

ALL = Limits(
    worker_seconds=0.3, stream_events=1_000_000, stream_bytes=1 << 30, session_bytes=1 << 30, stored_bytes=1 << 30
)


def told(log: LogName, seq: int) -> None:
    os.write(1, f"{log[1]} {seq}\n".encode())


async def fill(store: Store, log: LogName) -> None:
    assert await store.logs.open(log)
    seq = 0
    while True:
        seq += 1
        assert await store.logs.append(log, seq, b"%d" % seq * 20)
        told(log, seq)


async def race(store: Store, log: LogName, count: int) -> None:
    await store.logs.open(log)
    seq = 1
    while seq <= count:
        if await store.logs.append(log, seq, b"%d" % os.getpid()):
            told(log, seq)
        page = await store.logs.read(log, seq, 1)
        assert page is not None
        seq = page.last + 1


async def beat(store: Store, log: LogName, count: int) -> None:
    workers = Workers(store, ALL)
    assert await store.logs.open(log, workers.me.encode())
    seq = 1
    await workers.beat()
    while await store.logs.append(log, seq, b"x"):
        told(log, seq)
        await workers.beat()
        if seq == count:
            # Not in the midst of writing: a file would stay locked for everybody.
            os.kill(os.getpid(), signal.SIGSTOP)
        seq += 1


async def main(url: str, session: str, mode: str, count: str = "0") -> None:
    store = open_store(url, ALL)
    await store.start()
    if mode == "own":
        await asyncio.gather(*(fill(store, (session, name)) for name in "abc"))
    elif mode == "beat":
        await beat(store, (session, "common"), int(count))
    else:
        await race(store, (session, "common"), int(count))
    await store.close()


asyncio.run(main(*sys.argv[1:]))
