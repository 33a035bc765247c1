"""The listening sockets of several workers.

Theory of operation. Workers that accept from one socket race, and the first to wake takes all waiting connections: 16
that arrive together go to one worker. Where the system distributes connections over sockets of one address (Linux,
SO_REUSEPORT), each worker slot therefore has its own socket. The overseer holds all of them, so connections that wait
in the slot of a worker that died are served by its successor; a slot that stays empty for longer is closed, and new
connections go to the others.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from pegboard.server.http.listener import BACKLOG, bind_tcp, bind_unix, port_of, unlink


class WorkerSockets:
    """The sockets of a number of worker slots at one address."""

    def __init__(self, count: int, host: str, port: int, uds: str | None) -> None:
        self._host = host
        self._several = count > 1 and uds is None and sys.platform == "linux"
        self._opened: list[Sequence[socket.socket]] = []
        first = bind_tcp(host, port) if uds is None else bind_unix(uds)
        self.port = port_of(first)
        if not self._several:
            self._opened = [first] * count
            return
        # Bound exclusively before it is bound to be shared, so that another server at this address is an error.
        for listening in first:
            listening.close()
        try:
            for _ in range(count):
                self._opened.append(self._bind())
        except BaseException:
            self.close()
            raise

    def open(self, place: int) -> None:
        """Open the sockets of a slot for a worker that is about to start."""
        if not self._opened[place]:
            self._opened[place] = self._bind()

    def give_up(self, place: int) -> None:
        """Close the sockets of a slot that has no worker for a while."""
        if self._several:
            for listening in self._opened[place]:
                listening.close()
            self._opened[place] = ()

    def take(self, place: int) -> Sequence[socket.socket]:
        """The sockets of a slot, for its worker; closes those of the other slots."""
        if self._several:
            for other, sockets in enumerate(self._opened):
                for listening in sockets if other != place else ():
                    listening.close()
        return self._opened[place]

    def close(self) -> None:
        for sockets in self._opened:
            for listening in sockets:
                if listening.fileno() >= 0:
                    unlink(listening)
                    listening.close()

    def _bind(self) -> Sequence[socket.socket]:
        opened = bind_tcp(self._host, self.port, reuse_port=True)
        for listening in opened:
            listening.listen(BACKLOG)
        return opened
