"""What the audit log costs: the server's CPU a call with records that survive `kill -9`, and that survive a power failure.

`.venv/bin/python bench/audited_calls.py [SECONDS]` prints each as a ratio to a call without an audit log, all in one run.
"""

from __future__ import annotations

import contextlib
import sys

import messages
from load import measure, warm_up
from processes import Server

WAYS = ("bare", "normal", "full", "hash")
ROUNDS = 5


def main(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        servers = {way: stack.enter_context(Server("audited.py", way)) for way in WAYS}
        for server in servers.values():
            server.wait()
        costs: dict[str, list[float]] = {way: [] for way in WAYS}
        for server in servers.values():
            warm_up(server, messages.modern_posts(server.port, *messages.ADD), min(seconds, 0.5))
        for _ in range(ROUNDS if seconds >= 0.5 else 1):
            for way, server in servers.items():
                costs[way].append(measure(server, messages.modern_posts(server.port, *messages.ADD), seconds).cpu_us)
    # The least disturbed round of each: whatever else runs on the machine only adds to the others.
    base = min(costs["bare"])
    print(f"a call without an audit log: {base:.1f} µs of the server's CPU ({max(costs['bare']):.1f} at most)")
    for way in WAYS[1:]:
        print(f"  {way:8} {min(costs[way]) / base:.3f} ×  ({min(costs[way]):.1f} to {max(costs[way]):.1f} µs)")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
