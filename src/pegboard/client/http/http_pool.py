"""HTTP requests over pooled connections: TLS, proxies, redirects, limits."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pegboard.client.http.address import CONNECTIONS, Address, Proxy, Zone, find_proxy
from pegboard.client.http.dialer import Dialer, credentials
from pegboard.client.http.http_connection import FRESH_SECONDS, HttpConnection, Response
from pegboard.errors import ConnectionLost, MalformedMessage, ServerFault, SetupError

REDIRECTS: Final = 5

_encode: Final = msgspec.json.Encoder().encode
_MAX_IDLE: Final = frozenset({307, 308})
_MOVED: Final = frozenset({301, 302, 303, *_MAX_IDLE})


class PooledRequest(Struct, frozen=True):
    """A request; `fields` and `secrets` are header lines as sent, the secrets to its own origin only.

    If redirects are not followed, one is a response like any other. `within` is the zone of the server that named the
    address: nearer zones are not connected to. None means that a person configured it.
    """

    method: str
    address: Address
    fields: bytes = b""
    secrets: bytes = b""
    body: bytes = b""
    follows: bool = True
    within: Zone | None = None

    def __repr__(self) -> str:
        return f"Request({self.method} {self.address})"

    def written(self, *, through_proxy: bytes | None) -> bytes:
        """In wire format; an unencrypted request through a proxy has the whole URL."""
        opening = _opening(self.method, self.address, through_proxy is not None)
        if through_proxy:
            opening += through_proxy
        fields, secrets, body = self.fields, self.secrets, self.body
        if not body and self.method != "POST":
            return b"".join((opening, fields, secrets, b"\r\n"))
        return b"".join((opening, fields, secrets, b"Content-Length: ", _encode(len(body)), b"\r\n\r\n", body))


@lru_cache(maxsize=256)
def _opening(method: str, address: Address, whole: bool) -> bytes:
    """The first two lines of a request."""
    target = str(address) if whole else address.target
    return f"{method} {target} HTTP/1.1\r\nHost: {address.authority}\r\n".encode()


def header_lines(fields: Mapping[str, str], where: str) -> bytes:
    """Header lines from configured values; rejects values that would end their line."""
    lines = []
    for name, value in fields.items():
        if not name or not all(33 <= ord(char) < 127 and char not in '()<>@,;:\\"/[]?={}' for char in name):
            raise SetupError(f"{where}: {name!r} is not a valid header name")
        if any(char in "\r\n\0" for char in value):
            raise SetupError(f"{where}: the value of the header {name!r} contains a line break")
        lines.append(f"{name}: {value.strip()}\r\n".encode())
    return b"".join(lines)


class HttpPool:
    """The connections of a client; `close` ends them all."""

    def __init__(
        self,
        *,
        ca: str | Path | None = None,
        connections: int = CONNECTIONS,
        connect_timeout: float = 10.0,
        find_proxy: Callable[[Address], Proxy | None] = find_proxy,
        dialer: Dialer | None = None,
    ) -> None:
        self._dialer = dialer or Dialer(ca=ca, timeout=connect_timeout, find_proxy=find_proxy)
        # How many more requests may be sent now, and those that wait.
        self._room = connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: defaultdict[tuple[str, str, int], list[HttpConnection]] = defaultdict(list)
        self._busy: dict[HttpConnection, bool] = {}
        self._closed = False

    async def send(self, request: PooledRequest, *, urgent: bool = False, redirects: int = 0) -> Response:
        """Send a request; returns the response once its head has arrived. Redirects are followed if that is safe.

        Requests that others wait for (`urgent`) are sent at once, even if all connections are in use.
        """
        if self._closed:
            raise ConnectionLost(f"{request.address}: this client is closed")
        proxy = self._dialer.proxy(request.address)
        if not urgent:
            if self._room:
                self._room -= 1
            else:
                await self._wait_for_room()
        kept = self._idle.get(request.address.origin)
        try:
            connection = kept.pop() if kept and kept[-1].is_fresh(request.within) else await self._take(request)
        except BaseException:
            if not urgent:
                self._give_room()
            raise
        self._busy[connection] = not urgent
        through = None if proxy is None or request.address.secure else credentials(proxy)
        waiter = connection.send(request.written(through_proxy=through))
        try:
            response = await waiter
        except BaseException as problem:
            connection.leave(waiter)
            if isinstance(problem, ServerFault):
                raise type(problem)(f"{request.address}: {problem}") from None
            raise
        if response.status in _MOVED and request.follows and (location := response.header(b"location")):
            response.close()
            if redirects == REDIRECTS:
                raise MalformedMessage(f"{request.address}: redirected more than {REDIRECTS} times")
            return await self.send(_redirected(request, response, location), urgent=urgent, redirects=redirects + 1)
        return response

    def zone(self, server: Address) -> Zone:
        """The zone of a configured server, which limits the addresses that it may name."""
        return self._dialer.zone(server)

    def open(self) -> None:
        """Accept requests again after a close."""
        self._closed = False

    async def close(self) -> None:
        """Close every connection, and open no others."""
        self._closed = True
        for connection in [*self._busy, *(idle for kept in self._idle.values() for idle in kept)]:
            connection.abort()
        self._idle.clear()
        # Transports close in the next turns of the loop; after that nothing is left open.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                # It got its turn, and does not need it any more.
                self._give_room()
            raise

    def _give_room(self) -> None:
        """A request has ended: the next one that waits may begin."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._room += 1

    async def _take(self, request: PooledRequest) -> HttpConnection:
        loop = asyncio.get_running_loop()
        address = request.address
        kept = self._idle[address.origin]
        while kept and (request.within is None or kept[-1].zone <= request.within):
            connection = kept.pop()
            now = loop.time()
            if now > connection.idle_since + FRESH_SECONDS:
                # It may have been closed without our having read that yet.
                await asyncio.sleep(0)
            if not connection.closed and now < connection.good_until:
                return connection
            if not connection.closed:
                connection.abort()
        return await self._dialer.connect(
            address, lambda: HttpConnection(address.origin, loop, self._free), tunnels=False, within=request.within
        )

    def _free(self, connection: HttpConnection) -> None:
        counted = self._busy.pop(connection, None)
        if counted:
            if self._waiting:
                self._give_room()
            else:
                self._room += 1
        if connection.closed:
            kept = self._idle.get(connection.origin)
            if kept is not None and connection in kept:
                kept.remove(connection)
        elif self._closed:
            connection.abort()
        elif counted is not None:
            self._idle[connection.origin].append(connection)


def _redirected(request: PooledRequest, response: Response, location: str) -> PooledRequest:
    here, status = request.address, response.status
    try:
        there = here.join(location)
    except SetupError:
        raise MalformedMessage(f"{here}: redirected to an invalid URL, {location[:200]!r}") from None
    if request.method != "GET" and status not in _MAX_IDLE:
        # These turn a POST into a GET, which is never intended here.
        raise MalformedMessage(f"{here}: has moved to {there} (status {status}); use that address")
    if here.secure and not there.secure:
        raise MalformedMessage(f"{here}: redirected to {there}, which is not encrypted; refusing to follow")
    # Credentials belong to the origin that they were given for.
    secrets = request.secrets if here.origin == there.origin else b""
    return replace(request, address=there, secrets=secrets, within=response.zone)
