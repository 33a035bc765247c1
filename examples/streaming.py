"""Streaming tools: bytes in, bytes out, both at once, and text. Serve it with `pegboard run examples/streaming.py --http`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from pegboard import Board, ToolConnector

board = Board("streaming", version="1.0.0")


@board.tool
async def checksum(connector: ToolConnector) -> str:
    """Returns the SHA-256 of the data sent."""
    digest = hashlib.sha256()
    async for chunk in connector:
        digest.update(chunk)
    return digest.hexdigest()


@board.tool
async def zeros(size: int, connector: ToolConnector) -> str:
    """Sends the given number of zero bytes."""
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
    """Sends each chunk back as it arrives."""
    async for chunk in connector:
        await connector.write(chunk)


@board.tool
async def count(upto: int) -> AsyncIterator[int]:
    """Counts: each number is a chunk on a stream, and a progress notification elsewhere."""
    for number in range(1, upto + 1):
        yield number


if __name__ == "__main__":
    board.run("http")
