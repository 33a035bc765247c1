"""Several workers, and sessions that are left behind: `workers.py [ROUNDS] [SESSIONS]`.

Prints the CPU that a call of a session costs alone, with its session kept in a file, and by two workers that share the
file; then what so many abandoned sessions hold.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from statistics import median

import messages
from load import Measured, measure, warm_up
from processes import Server

DOORS = {"http": "one process, in memory", "kept": "one process, in a file", "workers": "two workers, in a file"}
SECONDS = 2.0


def measure_calls(rounds: int, python: str = sys.executable) -> dict[str, dict[str, float]]:
    """Requests a second and CPU µs a request of each way to serve."""
    found: dict[str, list[Measured]] = defaultdict(list)
    for number in range(rounds):
        for door in DOORS if number % 2 else reversed(DOORS):
            with Server("board.py", door, python=python) as server:
                server.wait()
                requests = messages.legacy_posts(server.port, *messages.ADD, server.open_session())
                warm_up(server, requests, 0.5)
                found[DOORS[door]].append(measure(server, requests, SECONDS))
    return {
        what: {"rate": median(one.rate for one in all_of), "cpu": median(one.cpu_us for one in all_of)}
        for what, all_of in found.items()
    }


def measure_abandoned(count: int, door: str, python: str = sys.executable) -> float:
    """The MB that a server grows by while so many clients open a session and never come back."""
    with Server("board.py", door, python=python) as server:
        server.wait()
        asyncio.run(_abandon(server.port, 200))
        before = server.memory()
        asyncio.run(_abandon(server.port, count))
        return (server.memory() - before) / 1e6


async def _abandon(port: int, count: int) -> None:
    hello = messages.post(port, messages.write(*messages.INITIALIZE, 0), {})

    async def open_some(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(number):
            writer.write(hello)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()

    await asyncio.gather(*(open_some(count // 16 + 1) for _ in range(16)))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    calls = measure_calls(rounds)
    alone = calls[DOORS["http"]]
    for what, figure in calls.items():
        ratio = figure["cpu"] / alone["cpu"]
        print(f"{what:26} {figure['rate']:10,.0f} requests/s {figure['cpu']:8.1f} µs CPU a request {ratio:6.2f} ×")
    for door in ("http", "kept"):
        print(f"{sessions:,} abandoned sessions, {DOORS[door]}: {measure_abandoned(sessions, door):.1f} MB")


if __name__ == "__main__":
    main()
