"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import os
import socket
from itertools import cycle

# Below the ports that a system gives to sockets that do not ask for one (from 32768 on Linux, 49152 elsewhere), which may be
# taken again before the server listens. Each process of a test run has a part of its own.
_FIRST, _EACH, _PARTS = 12_000, 1_500, 12
_PART = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PARTS
_START = os.getpid() % _EACH
_ports = cycle(_FIRST + _PART * _EACH + (_START + number) % _EACH for number in range(_EACH))


def free_port() -> int:
    """A port that nothing uses."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
