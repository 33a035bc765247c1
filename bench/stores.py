"""What a store costs: an append alone, many logs at once, and word of it in another process; all backends in turns.

`.venv/bin/python bench/stores.py [ROUNDS]` prints µs and entries a second, each beside memory's of the same run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pegboard.limits import Limits
from pegboard.stores.store import Store
from pegboard.stores.store_url import open_store
from tests.middleware.valkey import valkey

DATA = b"x" * 300
ALONE = 300
STREAMS = 64
EACH = 40
LIMITS = Limits(stored_bytes=1 << 30)


@asynccontextmanager
async def started(url: str) -> AsyncIterator[Store]:
    store = open_store(url, LIMITS)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def append_alone(store: Store, session: str) -> list[float]:
    """Seconds of each of many appends, one after the other."""
    log, took = (session, "alone"), []
    await store.logs.open(log)
    for seq in range(1, ALONE + 1):
        begun = time.perf_counter()
        assert await store.logs.append(log, seq, DATA)
        took.append(time.perf_counter() - begun)
    return took


async def append_together(store: Store, session: str) -> float:
    """Entries a second over many logs at once."""

    async def fill(log: tuple[str, str]) -> None:
        await store.logs.open(log)
        for seq in range(1, EACH + 1):
            assert await store.logs.append(log, seq, DATA)

    begun = time.perf_counter()
    await asyncio.gather(*(fill((f"{session}-{number}", "one of many")) for number in range(STREAMS)))
    return STREAMS * EACH / (time.perf_counter() - begun)


async def hear(store: Store, other: Store, session: str) -> list[float]:
    """Seconds from an append in one process until another that waits for it has read it."""
    log, took, woken = (session, "heard"), [], asyncio.Event()
    await store.logs.open(log)
    end = other.logs.watch(log, woken.set)
    await asyncio.sleep(0.1)
    for seq in range(1, 31):
        begun = time.perf_counter()
        await store.logs.append(log, seq, DATA)
        page = None
        while page is None or page.last < seq:
            await woken.wait()
            woken.clear()
            page = await other.logs.read(log, seq - 1, 10)
        took.append(time.perf_counter() - begun)
    end()
    return took


async def measure(url: str, number: int) -> tuple[list[float], float, list[float]]:
    async with started(url) as store, started(url) as other:
        session = f"bench {number}"
        alone = await append_alone(store, session)
        together = await append_together(store, session)
        heard = [] if url == "memory" else await hear(store, other, session)
        await store.logs.drop(session)
        return alone, together, heard


def main(rounds: int) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(valkey())
        urls = {
            "memory": "memory",
            "sqlite": f"sqlite:{folder}/normal.db",
            "sqlite, sync=full": f"sqlite:{folder}/full.db?sync=full",
            "valkey": server.url,
        }
        alone: dict[str, list[float]] = {name: [] for name in urls}
        together: dict[str, list[float]] = {name: [] for name in urls}
        heard: dict[str, list[float]] = {name: [] for name in urls}
        for number in range(rounds):
            for name, url in urls.items():
                one, many, far = asyncio.run(measure(url, number))
                alone[name] += one
                together[name].append(many)
                heard[name] += far
    print(f"{rounds} rounds; {len(DATA)} bytes an entry; {STREAMS} logs at once")
    print(f"{'':20}{'p50 µs':>10}{'p99 µs':>10}{'× memory':>10}{'entries/s':>12}{'× memory':>10}{'heard ms':>10}")
    for name in urls:
        half, rare = median(alone[name]), quantiles(alone[name], n=100)[98]
        rate = median(together[name])
        row = f"{name:20}{half * 1e6:10.1f}{rare * 1e6:10.1f}{half / median(alone['memory']):10.1f}"
        row += f"{rate:12.0f}{rate / median(together['memory']):10.3f}"
        print(row + (f"{median(heard[name]) * 1e3:10.2f}" if heard[name] else ""))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
