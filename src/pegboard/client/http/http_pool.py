"""HTTP requests over pooled connections: TLS, proxies, redirects, limits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pegboard.client.http.address import Address, Proxy, Zone, find_proxy
from pegboard.client.http.dialer import Dialer, credentials
from pegboard.client.http.http_connection import HttpConnection, Response
from pegboard.errors import ConnectionLost, MalformedMessage, ServerFault, SetupError

CONNECTIONS: Final = 100
REDIRECTS: Final = 5

_FRESH_SECONDS: Final = 0.5
_MAX_IDLE: Final = frozenset({307, 308})
_MOVED: Final = frozenset({301, 302, 303, *_MAX_IDLE})


class HttpRequest(Struct, frozen=True):
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

    def may_use(self, connection: HttpConnection) -> bool:
        return self.within is None or connection.zone <= self.within

    def written(self, *, through_proxy: bytes | None) -> bytes:
        """In wire format; an unencrypted request through a proxy has the whole URL."""
        opening = _opening(self.method, self.address, through_proxy is not None)
        length = b"Content-Length: %d\r\n" % len(self.body) if self.body or self.method == "POST" else b""
        return b"".join((opening, through_proxy or b"", self.fields, self.secrets, length, b"\r\n", self.body))


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
        self._room = asyncio.Semaphore(connections)
        self._idle: defaultdict[tuple[str, str, int], list[HttpConnection]] = defaultdict(list)
        self._busy: dict[HttpConnection, bool] = {}
        self._closed = False

    async def send(self, request: HttpRequest, *, urgent: bool = False) -> Response:
        """Send a request; returns the response once its head has arrived. Redirects are followed if that is safe.

        Requests that others wait for (`urgent`) are sent at once, even if all connections are in use.
        """
        response = await self._send_once(request, urgent)
        redirects = 0
        while response.status in _MOVED and request.follows and (location := response.header(b"location")):
            response.close()
            redirects += 1
            if redirects > REDIRECTS:
                raise MalformedMessage(f"{request.address}: redirected more than {REDIRECTS} times")
            request = _redirected(request, response, location)
            response = await self._send_once(request, urgent)
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

    async def _send_once(self, request: HttpRequest, urgent: bool) -> Response:
        if self._closed:
            raise ConnectionLost(f"{request.address}: this client is closed")
        proxy = self._dialer.proxy(request.address)
        if not urgent:
            await self._room.acquire()
        try:
            connection = self._new_connection(request) or await self._take(request)
        except BaseException:
            if not urgent:
                self._room.release()
            raise
        self._busy[connection] = not urgent
        through = None if proxy is None or request.address.secure else credentials(proxy)
        try:
            return await connection.exchange(request.written(through_proxy=through))
        except ServerFault as fault:
            raise type(fault)(f"{request.address}: {fault}") from None

    def _new_connection(self, request: HttpRequest) -> HttpConnection | None:
        """A connection that was used recently."""
        kept = self._idle.get(request.address.origin)
        if not kept or kept[-1].closed or not request.may_use(kept[-1]):
            return None
        last, now = kept[-1], asyncio.get_running_loop().time()
        return kept.pop() if now < last.good_until and now <= last.idle_since + _FRESH_SECONDS else None

    async def _take(self, request: HttpRequest) -> HttpConnection:
        loop = asyncio.get_running_loop()
        address = request.address
        kept = self._idle[address.origin]
        while kept and request.may_use(kept[-1]):
            connection = kept.pop()
            now = loop.time()
            if now > connection.idle_since + _FRESH_SECONDS:
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
            self._room.release()
        if connection.closed:
            kept = self._idle.get(connection.origin)
            if kept is not None and connection in kept:
                kept.remove(connection)
        elif self._closed:
            connection.abort()
        elif counted is not None:
            self._idle[connection.origin].append(connection)


def _redirected(request: HttpRequest, response: Response, location: str) -> HttpRequest:
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
