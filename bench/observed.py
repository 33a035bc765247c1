"""What observing calls costs: the server's CPU a call with the console idle and open, with metrics and with tracing.

`.venv/bin/python bench/observed.py [SECONDS]` prints each as a ratio to a call without any of them, all in one run.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

import messages
from load import measure, warm_up
from processes import Server

WAYS = ("bare", "idle", "open", "metrics", "tracing")
ROUNDS = 5
BUDGET = 1.05


@contextlib.contextmanager
def watched(server: Server) -> Iterator[None]:
    """An open page: a connection that reads the stream of events."""
    with socket.create_connection(("127.0.0.1", server.port)) as page:
        host = b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port
        page.sendall(b"GET /console/?token=bench" + host + b"\r\n")
        cookie = page.recv(8192).partition(b"set-cookie: ")[2].partition(b";")[0]
        page.sendall(b"GET /console/events" + host + b"Cookie: " + cookie + b"\r\n\r\n")
        page.recv(1024)
        page.setblocking(False)
        yield


def main(seconds: float) -> bool:
    with contextlib.ExitStack() as stack:
        servers = {way: stack.enter_context(Server("observed.py", way)) for way in WAYS}
        for server in servers.values():
            server.wait()
        stack.enter_context(watched(servers["open"]))
        costs: dict[str, list[float]] = {way: [] for way in WAYS}
        for server in servers.values():
            warm_up(server, messages.modern_posts(server.port, *messages.ADD), min(seconds, 0.5))
        for _ in range(ROUNDS if seconds >= 0.5 else 1):
            for way, server in servers.items():
                costs[way].append(measure(server, messages.modern_posts(server.port, *messages.ADD), seconds).cpu_us)
    # The least disturbed round of each: whatever else runs on the machine only adds to the others.
    base = min(costs["bare"])
    print(f"a call without observers: {base:.1f} µs of the server's CPU ({max(costs['bare']):.1f} at most)")
    for way in WAYS[1:]:
        print(f"  {way:8} {min(costs[way]) / base:.3f} ×  ({min(costs[way]):.1f} to {max(costs[way]):.1f} µs)")
    within = min(costs["idle"]) / base <= BUDGET
    print(f"budget {BUDGET} × for an idle console: {'kept' if within else 'EXCEEDED'}")
    return within


if __name__ == "__main__":
    sys.exit(not main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))
