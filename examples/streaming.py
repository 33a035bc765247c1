"""Tools that stream: bytes in, bytes out, both at once, and text. Serve it with `pegboard run examples/streaming.py --http`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from pegboard import Board, ToolConnector

board = Board("streaming", version="1.0.0")


@board.tool
async def checksum(connector: ToolConnector) -> str:
    """Sums up whatever is sent."""
    digest = hashlib.sha256()
    async for chunk in connector:
        digest.update(chunk)
    return digest.hexdigest()


@board.tool
async def zeros(size: int, connector: ToolConnector) -> str:
    """Sends so many bytes."""
    async with connector.open(name="zeros.bin", mime="application/octet-stream", total_size=size) as stream:
        left = size
        while left:
            piece = min(left, 65536)
            await stream.write(bytes(piece))
            left -= piece
        stream.done({"totalBytes": size})
    return f"{size} bytes sent"


@board.tool
async def echo(connector: ToolConnector) -> None:
    """Sends back what comes, while it comes."""
    async for chunk in connector:
        await connector.write(chunk)


@board.tool
async def count(upto: int) -> AsyncIterator[int]:
    """Counts: each number is a chunk on a stream, and a progress notice everywhere else."""
    for number in range(1, upto + 1):
        yield number


if __name__ == "__main__":
    board.run("http")
