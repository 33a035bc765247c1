"""Opens the listening sockets, and owns the connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import ssl as tls
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.server.http.connections import Connections
from pegboard.server.http.http1_connection import Http1Connection
from pegboard.server.http.malloc_trim import MallocTrim
from pegboard.server.http.port_owner import find_port_owner
from pegboard.server.http_types import Endpoint

log = logging.getLogger("pegboard.http")

SWEEP_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 1.0
WARNING_SECONDS: Final = 60.0
LATE_REQUEST_SECONDS: Final = 0.25
"""How long a connection without a request is kept open when another process takes over."""
BACKLOG: Final = 1024
UNSENT_BYTES: Final = 128 * 1024


def bind_tcp(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Bind every address of the host name to the same port; with `reuse_port`, other sockets may share it."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SetupError(
            f"Cannot listen on host {host!r}: {error.strerror}. Use an address of this machine."
        ) from error
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            opened.append(listening)
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _hold_little(listening)
            listening.bind((address[0], port or opened[0].getsockname()[1], *address[2:]))
            listening.setblocking(False)
    except OSError as error:
        for listening in opened:
            listening.close()
        owner = find_port_owner(port) if error.errno == errno.EADDRINUSE else ""
        user = f" by {owner}. Stop it" if owner else ". Stop the program that uses it"
        raise SetupError(
            f"Cannot listen on {host}:{port}: {error.strerror}{user}, or choose another port with --port (0: any free one)."
        ) from error
    return opened


def _hold_little(listening: socket.socket) -> None:
    """Limit the unsent data in the kernel, for all connections that this socket accepts.

    By default the kernel buffers megabytes for a peer that does not read: memory that is not counted, filled by a call
    that does not notice that it should wait.
    """
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        listening.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)


def bind_unix(path: str) -> list[socket.socket]:
    """Bind a socket file that only its owner may use; replaces one that a dead server left behind."""
    if not hasattr(socket, "AF_UNIX"):
        raise SetupError("--uds needs a system with Unix sockets, such as Linux or macOS: use --host and --port")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(Path(path).stat().st_mode):
                raise SetupError(f"{path} exists and is not a socket: choose another path for the socket.")
            try:
                listening.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()
            else:
                raise SetupError(f"Another server is listening on {path}: stop it, or choose another path.")
            finally:
                listening.close()
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        previous = os.umask(0o177)
        try:
            listening.bind(path)
        finally:
            os.umask(previous)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise SetupError(f"Cannot listen on {path}: {error.strerror}.") from error
    except SetupError:
        listening.close()
        raise
    return [listening]


def port_of(sockets: Sequence[socket.socket]) -> int:
    """The port of the first; 0 for a socket file."""
    name = sockets[0].getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def unlink(listening: socket.socket) -> None:
    """Remove the file of a socket, if it has one."""
    if listening.family == getattr(socket, "AF_UNIX", None):
        Path(listening.getsockname()).unlink(missing_ok=True)


class Http1Server:
    """A listening server: its sockets, its connections, and the periodic sweep.

    At the limit of connections it stops accepting: the listening sockets stay open, so that new connections wait in the
    kernel's queue until another one closes. Sockets that are `shared` with other processes stay open after it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits,
        sockets: Sequence[socket.socket],
        *,
        ssl: tls.SSLContext | None = None,
        backlog: int = BACKLOG,
        clock: Callable[[], float] = time.monotonic,
        shared: bool = False,
    ) -> None:
        self.sockets = tuple(sockets)
        self._shared = shared
        self.connections = Connections(limits, clock=clock, changed=self._count)
        self._endpoint = endpoint
        self._limits = limits
        self._ssl = ssl
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._opening: asyncio.Task[None] | None = None
        self._accepting = False
        self._warned = -math.inf
        self._empty = asyncio.Event()
        self._sweeping: asyncio.TimerHandle | None = None
        self._malloc_trim = MallocTrim()

    @property
    def port(self) -> int:
        """The port of the first socket; 0 for a socket file."""
        return port_of(self.sockets)

    @property
    def busy(self) -> int:
        """The number of connections with an unanswered request."""
        return self.connections.busy

    async def start(self) -> None:
        """Start accepting connections and sweeping."""
        self._accepting = True
        await self._open()
        self._sweep()

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay."""
        self._accepting = False
        self._shut()
        for listening in self.sockets:
            self._unlink(listening)
            listening.close()
        self.sockets = ()

    async def hand_over(self, hurried: asyncio.Event) -> None:
        """Leave new connections to another process that has the same sockets; a connection ends with its response.

        A client that has just connected may not have sent its request yet, so idle connections close a moment later.
        """
        self.stop_accepting()
        self.connections.keep = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hurried.wait(), LATE_REQUEST_SECONDS)
        for connection in tuple(self.connections.live):
            if not connection.busy:
                connection.close()

    async def drain(self, seconds: float) -> bool:
        """Wait until no connection is busy, at most this long; from now on every response closes its connection."""
        self.connections.keep = False
        self.connections.quiet = asyncio.Event()
        self.connections.notify_if_quiet()
        try:
            await asyncio.wait_for(self.connections.quiet.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            self.connections.quiet = None
        return True

    async def close(self) -> None:
        """Stop accepting, and close every connection: the idle ones gracefully, the others at once."""
        self.stop_accepting()
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
        for connection in tuple(self.connections.live):
            if connection.busy:
                connection.abort()
            else:
                connection.close()
        self._count()
        try:
            await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
        except TimeoutError:
            for connection in tuple(self.connections.live):
                connection.abort()
            await self._empty.wait()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep(self) -> None:
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self.connections.sweep()
        self._malloc_trim.check(self.connections.now)

    def _connect(self) -> Http1Connection:
        return Http1Connection(self._endpoint, self._limits, self._loop, self.connections, secure=self._ssl is not None)

    async def _open(self) -> None:
        handshake = self._limits.head_seconds if self._ssl is not None else None
        for listening in self.sockets:
            # A copy: asyncio closes its socket when it stops, and this one must continue to queue new connections.
            server = await self._loop.create_server(
                self._connect,
                sock=listening.dup(),
                ssl=self._ssl,
                backlog=self._backlog,
                ssl_handshake_timeout=handshake,
            )
            self._servers.append(server)
        self._opening = None

    def _shut(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    def _count(self) -> None:
        """A connection was opened or closed."""
        count = len(self.connections.live)
        full = count >= self._limits.connections
        if full and self._servers:
            if self.connections.now - self._warned > WARNING_SECONDS:
                self._warned = self.connections.now
                log.warning("%d connections are open: no more are accepted until one closes", count)
            self._shut()
        elif not full and not self._servers and self._accepting and self._opening is None:
            self._opening = self._loop.create_task(self._open())
        if not count and not self._accepting:
            self._empty.set()

    def _unlink(self, listening: socket.socket) -> None:
        if not self._shared:
            unlink(listening)


async def listen(
    endpoint: Endpoint,
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    uds: str | None = None,
    ssl: tls.SSLContext | None = None,
    backlog: int = BACKLOG,
    clock: Callable[[], float] = time.monotonic,
) -> Http1Server:
    """Serve the endpoint on a host and port, or on a socket file."""
    sockets = bind_tcp(host, port) if uds is None else bind_unix(uds)
    server = Http1Server(endpoint, limits, sockets, ssl=ssl, backlog=backlog, clock=clock)
    await server.start()
    return server


class WorkerSockets:
    """The sockets of a number of worker slots at one address.

    Theory of operation. Workers that accept from one socket race, and the first to wake takes all waiting connections: 16
    that arrive together go to one worker. Where the system distributes connections over sockets of one address (Linux,
    SO_REUSEPORT), each worker slot therefore has its own socket. The overseer holds all of them, so connections that wait
    in the slot of a worker that died are served by its successor; a slot that stays empty for longer is closed, and new
    connections go to the others.
    """

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
