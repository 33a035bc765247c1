"""Megabytes a second through /ws beside a raw websockets echo, and what it takes: `ws.py [MEGABYTES]`."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 64 * 1024
MEGABYTE = 1024 * 1024
BOARD = [sys.executable, "-m", "pegboard", "run", str(ROOT / "examples" / "streaming.py"), "--http", "--port", "0"]
RAW = """
import asyncio, sys
import uvloop
from websockets.asyncio.server import serve
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", 0, compression=None) as server:
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", file=sys.stderr, flush=True)
        await server.serve_forever()
uvloop.run(main())
"""


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        found = None
        while found is None:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError(f"the server ended with {process.wait()}")
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        self.url = f"ws://127.0.0.1:{found[1]}/ws"

    def memory(self) -> int:
        """The most that it has ever held, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


@contextmanager
def start(command: list[str]) -> Iterator[Server]:
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


async def begin(socket: ClientConnection, tool: str, **arguments: int) -> tuple[str, bytes]:
    guid = uuid4()
    meta = {"method": tool, "binary": True, "arguments": arguments}
    await socket.send(json.dumps({"type": "start", "id": str(guid), "meta": meta}))
    return str(guid), guid.bytes_le


async def send(socket: ClientConnection, stream_id: str, key: bytes, size: int) -> None:
    payload = bytes(CHUNK)
    for index in range(size // CHUNK):
        await socket.send(key + index.to_bytes(8, "little") + payload)
    await socket.send(json.dumps({"type": "done", "id": stream_id}))


async def chunks(socket: ClientConnection, stream_id: str) -> AsyncIterator[bytes]:
    """What comes until the call has ended."""
    async for message in socket:
        if isinstance(message, bytes):
            yield message
            continue
        told = json.loads(message)
        if told["type"] == "error":
            raise RuntimeError(told["error"]["message"])
        if told["type"] == "done" and told["id"] == stream_id:
            return


async def take(socket: ClientConnection, stream_id: str) -> int:
    return sum([len(chunk) - 24 async for chunk in chunks(socket, stream_id)])


async def upload(url: str, size: int) -> int:
    async with connect(url, compression=None) as socket:
        stream_id, key = await begin(socket, "checksum")
        await send(socket, stream_id, key, size)
        await take(socket, stream_id)
    return size


async def download(url: str, size: int) -> int:
    async with connect(url, compression=None) as socket:
        stream_id, _ = await begin(socket, "zeros", size=size)
        return await take(socket, stream_id)


async def both(url: str, size: int) -> int:
    async with connect(url, compression=None) as socket:
        stream_id, key = await begin(socket, "echo")
        _, taken = await asyncio.gather(send(socket, stream_id, key, size), take(socket, stream_id))
        return taken


async def raw(url: str, size: int) -> int:
    """The same bytes to and fro where nothing is done with them."""
    async with connect(url, compression=None) as socket:
        message = bytes(24 + CHUNK)

        async def fill() -> None:
            for _ in range(size // CHUNK):
                await socket.send(message)

        async def drain() -> int:
            return sum([len(await socket.recv()) - 24 for _ in range(size // CHUNK)])

        _, taken = await asyncio.gather(fill(), drain())
        return taken


def measure(megabytes: int) -> tuple[dict[str, float], float]:
    """Megabytes a second of each way, and by how many our server grew over what it held after a first small run."""
    speeds: dict[str, float] = {}
    size = megabytes * MEGABYTE
    with start(BOARD) as board, start([sys.executable, "-c", RAW]) as echo:
        ways = (
            ("upload", upload, board),
            ("download", download, board),
            ("echo", both, board),
            ("raw echo", raw, echo),
        )
        for _, way, server in ways:
            asyncio.run(way(server.url, MEGABYTE))
        before = board.memory()
        for name, way, server in ways:
            since = time.perf_counter()
            carried = asyncio.run(way(server.url, size))
            speeds[name] = carried / MEGABYTE / (time.perf_counter() - since)
            if carried != size:
                raise RuntimeError(f"{name}: {carried} of {size} bytes came through")
        return speeds, (board.memory() - before) / MEGABYTE


if __name__ == "__main__":
    speeds, grown = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
    for name, speed in speeds.items():
        print(f"{name}: {speed:.0f} MB/s")
    print(f"our server grew by {grown:.1f} MB")
