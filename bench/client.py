"""A keep-alive HTTP load client for machines without wrk: `client.py PORT CONNECTIONS SECONDS FILE`."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvloop
from load import read_requests

MOST_SECONDS = 30.0


class Tally:
    """What all connections have counted."""

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0
        self.took: list[float] = []
        self.answered = asyncio.Event()


class Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, requests: Iterator[bytes], tally: Tally) -> None:
        self._requests = requests
        self._tally = tally
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, blank, body = self._held.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        if len(body) >= int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else body.endswith(b"0\r\n\r\n"):
            self._tally.requests += 1
            self._tally.answered.set()
            self._tally.failed += head[9:10] != b"2"
            self._tally.took.append(time.perf_counter() - self._began)
            self._held = b""
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.failed += exc is not None

    def _next(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(next(self._requests))


async def main(port: int, connections: int, seconds: float, file: Path) -> None:
    tally = Tally()
    requests = itertools.cycle(read_requests(file))
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(requests, tally), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    # A slow server on a busy machine may need longer than that for its first answer.
    async with asyncio.timeout(MOST_SECONDS):
        await tally.answered.wait()
    took = sorted(tally.took)
    said = {"requests": tally.requests, "seconds": time.perf_counter() - began, "failed": tally.failed}
    said |= {"p50": took[len(took) // 2] * 1e6, "p99": took[len(took) * 99 // 100] * 1e6} if took else {}
    print(json.dumps(said))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
