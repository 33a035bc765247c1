"""What every gateway takes at least: `floor.py PORT TARGET …` copies bytes between a client and a port, or the command of a server on stdio.

It reads no message: over HTTP it copies what comes, and in front of stdio it only replaces the head of a request by the end of a line, and the
other way round. Nothing is checked, and each request is expected in one piece, so nobody may use it as a gateway.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nMcp-Session-Id: floor\r\nContent-Length: %d\r\n\r\n"


class Copy(asyncio.Protocol):
    """One end of a connection: what it receives goes to the other end."""

    transport: asyncio.Transport | None = None

    def __init__(self, other: Copy | None = None, port: int = 0) -> None:
        self.other = other or Copy(self)
        self._port = port
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._port:
            loop = asyncio.get_running_loop()
            self._opening = loop.create_task(loop.create_connection(lambda: self.other, "127.0.0.1", self._port))
        elif self.other._early:
            self.transport.write(self.other._early)

    def data_received(self, data: bytes) -> None:
        if self.other.transport is None:
            self._early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other.transport is not None:
            self.other.transport.close()


class Child(asyncio.SubprocessProtocol):
    """The server on stdio; its next line is for the client that has asked last."""

    client: asyncio.Transport
    _line = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pipe = cast("asyncio.SubprocessTransport", transport).get_pipe_transport(0)
        self.write = cast("asyncio.WriteTransport", pipe).write

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._line += data
        if self._line.endswith(b"\n"):
            self.client.write(HEAD % (b"200 OK", len(self._line)) + self._line)
            self._line = b""


class Unwrap(asyncio.Protocol):
    """A client: the body of each request becomes a line."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        body = data[data.find(b"\r\n\r\n") + 4 :]
        self._child.client = self._transport
        self._child.write(body + b"\n")
        if body.startswith(b'{"jsonrpc":"2.0","method":"notifications/'):
            self._transport.write(HEAD % (b"202 Accepted", 0))


async def main(port: int, target: list[str]) -> None:
    # As our servers do (`_tune_malloc` in server/event_loop.py): otherwise it gets and returns the memory of each megabyte.
    bytes(8 * 2**20)
    loop = asyncio.get_running_loop()
    if target[0].isdecimal():
        server = await loop.create_server(lambda: Copy(port=int(target[0])), "127.0.0.1", port)
    else:
        _, child = await loop.subprocess_exec(Child, *target, stderr=None)
        server = await loop.create_server(lambda: Unwrap(child), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2:]))
