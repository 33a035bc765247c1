"""What an open stream holds: `streams.py [COUNT]` opens listens, then GETs of sessions, at our HTTP door and prints kB of each."""

from __future__ import annotations

import contextlib
import resource
import socket
import sys

import messages
from processes import Listening, Server

WARM_UP = 200
LISTEN = ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}})


def open_stream(server: Listening, request: bytes) -> socket.socket:
    """Send a request whose answer does not end, and read how it begins."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(request)
    begun = connection.recv(65536)
    if b"200 OK" not in begun or b"text/event-stream" not in begun:
        raise RuntimeError(f"{server.name} opened no stream: {begun[:500]!r}")
    return connection


def listen(server: Listening) -> bytes:
    """A listen of 2026-07-28."""
    method, params = LISTEN
    headers = {"MCP-Protocol-Version": messages.MODERN, "Mcp-Method": method}
    return messages.post(server.port, messages.modern(method, params, 1), headers)


def get(server: Server, session: str) -> bytes:
    """A GET of a session of 2025-11-25."""
    lines = (
        "GET /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Accept: text/event-stream",
        f"MCP-Protocol-Version: {messages.LEGACY}",
        f"Mcp-Session-Id: {session}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def measure(count: int, python: str = sys.executable) -> dict[str, float]:
    """kB that each of so many streams holds, beside its session where it has one."""
    allow_files(count + WARM_UP + 100)
    held: dict[str, float] = {}
    with Server("board.py", python=python) as server:
        server.wait()
        requests = [listen(server)] * (WARM_UP + count)
        held["a listen of 2026-07-28"] = _hold(server, requests)
    with Server("board.py", python=python) as server:
        server.wait()
        requests = [get(server, server.open_session()) for _ in range(WARM_UP + count)]
        held["a GET of 2025-11-25"] = _hold(server, requests)
    return held


def _hold(server: Server, requests: list[bytes]) -> float:
    with contextlib.ExitStack() as open_streams:
        for request in requests[:WARM_UP]:
            open_streams.enter_context(open_stream(server, request))
        before = server.memory()
        for request in requests[WARM_UP:]:
            open_streams.enter_context(open_stream(server, request))
        return (server.memory() - before) / (len(requests) - WARM_UP) / 1024


def allow_files(count: int) -> None:
    """Raise the limit of open files to so many, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard > 0 else count, hard))


if __name__ == "__main__":
    for what, kilobytes in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000).items():
        print(f"kB per open stream, {what}: {kilobytes:.1f}")
