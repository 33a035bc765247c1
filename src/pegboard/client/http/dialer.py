"""Opens a connection: direct or through a proxy, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from pegboard.client.http.address import Address, Proxy, Zone, find_proxy, written_zone, zone_of
from pegboard.errors import MalformedMessage, SetupError, Unreachable

_TUNNEL_BYTES: Final = 16 * 1024


class ConnectionProtocol(asyncio.Protocol):
    """The protocol of a client connection; TLS inside a tunnel replaces the transport.

    `zone` is where the other end is; behind a proxy, the zone of the address itself.
    """

    __slots__ = ("_transport", "zone")

    _transport: asyncio.Transport
    zone: Zone

    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP has a transport that reads and writes
        own = transport.get_extra_info("socket")
        if own is not None:
            # A stream may be silent for hours; only this detects a peer that disappeared.
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


T = TypeVar("T", bound=ConnectionProtocol)


class Dialer:
    """Opens connections to the addresses of a client."""

    def __init__(
        self, *, ca: str | Path | None, timeout: float, find_proxy: Callable[[Address], Proxy | None] = find_proxy
    ) -> None:
        self._ca = ca
        self._timeout = timeout
        # The environment is read once per address, not with every request.
        self.proxy = lru_cache(maxsize=256)(find_proxy)
        self._tls: ssl.SSLContext | None = None
        self._zones: dict[tuple[str, str, int], Zone] = {}

    def zone(self, address: Address) -> Zone:
        """The zone of a configured server at its last connection; before that, by its address."""
        return self._zones.get(address.origin, written_zone(address.host))

    async def connect(self, address: Address, make: Callable[[], T], *, tunnels: bool, within: Zone | None = None) -> T:
        """Open a connection; Unreachable if that fails or takes too long.

        A proxy is asked for a tunnel if the address is encrypted, or if the protocol wants one (`tunnels`). An address
        that a server named is connected to only if it is not in a nearer zone than `within`; one that a person
        configured may be anywhere (None).
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._connect(address, make, tunnels=tunnels, within=within)
        except TimeoutError:
            raise Unreachable(f"Cannot reach {address}: no connection within {self._timeout:g} s.") from None
        except ssl.SSLError as error:
            raise Unreachable(f"Cannot reach {address}: {error.reason or error}.{_hint(error)}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreachable(f"Cannot reach {address}: {reason}. Is the server running?") from None

    async def _connect(self, address: Address, make: Callable[[], T], *, tunnels: bool, within: Zone | None) -> T:
        proxy = self.proxy(address)
        if proxy is None:
            connection = await self._connect_straight(address, make, within)
        else:
            # The proxy resolves the name.
            zone = _check(written_zone(address.host), within, address)
            connection = await self._connect_through(proxy, address, make, tunnels=tunnels)
            connection.zone = zone
        if within is None:
            self._zones[address.origin] = connection.zone
        return connection

    async def _connect_straight(self, address: Address, make: Callable[[], T], within: Zone | None) -> T:
        loop = asyncio.get_running_loop()
        context = self._context() if address.secure else None
        name = address.host if address.secure else None
        if within is None:
            transport, connection = await loop.create_connection(
                make, address.host, address.port, ssl=context, server_hostname=name
            )
            peer = transport.get_extra_info("peername")
            connection.zone = Zone.INTERNET if peer is None else zone_of(peer[0])
            return connection
        # Resolved once: a second lookup could give another address than the one checked.
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        places = {str(place[0]): zone_of(str(place[0])) for *_, place in found}
        _check(min(places.values()), within, address)
        problem: OSError | None = None
        for place, zone in places.items():
            if zone > within:
                continue
            try:
                _, connection = await loop.create_connection(
                    make, place, address.port, ssl=context, server_hostname=name
                )
            except OSError as error:
                problem = error
            else:
                connection.zone = zone
                return connection
        assert problem is not None  # noqa: S101 — one of them was near enough
        raise problem

    async def _connect_through(self, proxy: Proxy, address: Address, make: Callable[[], T], *, tunnels: bool) -> T:
        loop = asyncio.get_running_loop()
        context = self._context() if address.secure else None
        if context is None and not tunnels:
            _, connection = await loop.create_connection(make, proxy.host, proxy.port)
            return connection
        transport, tunnel = await loop.create_connection(lambda: _Tunnel(loop), proxy.host, proxy.port)
        try:
            await tunnel.open_tunnel(address, proxy)
            connection = make()
            if context is None:
                transport.set_protocol(connection)
                connection.connection_made(transport)
                return connection
            secured = await loop.start_tls(transport, connection, context, server_hostname=address.host)
            if secured is None:
                raise ConnectionResetError("the proxy closed the connection")
        except BaseException:
            transport.abort()
            raise
        connection.attach(secured)
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self._ca)
            except (OSError, ssl.SSLError) as error:
                raise SetupError(f"{self._ca} is not a certificate bundle: {error}") from None
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel, then hands the connection over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answer: asyncio.Future[bytes] = loop.create_future()
        self._head = b""
        self._transport: asyncio.Transport | None = None

    async def open_tunnel(self, address: Address, proxy: Proxy) -> None:
        assert self._transport is not None  # noqa: S101 — it was made with this protocol
        host = f"[{address.host}]" if ":" in address.host else address.host
        where = f"{host}:{address.port}".encode()
        self._transport.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (where, where, credentials(proxy)))
        line = (await self._answer).partition(b"\r\n")[0].decode("latin-1")
        if line.split(" ")[1:2] != ["200"]:
            raise Unreachable(f"Cannot reach {address}: the proxy {proxy.host}:{proxy.port} responded {line[:80]!r}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP has a transport that reads and writes

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._answer.done():
            return
        if b"\r\n\r\n" in self._head:
            self._answer.set_result(self._head)
        elif len(self._head) > _TUNNEL_BYTES:
            self._answer.set_exception(ConnectionResetError("the proxy's response is not HTTP"))

    def connection_lost(self, exception: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the proxy closed the connection"))


def _check(zone: Zone, within: Zone | None, address: Address) -> Zone:
    if within is not None and zone > within:
        raise MalformedMessage(f"refusing to connect to {address} on {zone}, named by a server on {within}")
    return zone


def credentials(proxy: Proxy) -> bytes:
    return f"Proxy-Authorization: {proxy.credentials}\r\n".encode() if proxy.credentials else b""


def _hint(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f" ({error.verify_message}) Pass its CA bundle with ca=… or SSL_CERT_FILE."
    return ""
