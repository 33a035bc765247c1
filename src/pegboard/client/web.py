"""HTTP requests over a few kept connections: TLS, proxies, redirects, and a bound on all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pegboard.client.address import Address, Proxy, find_proxy
from pegboard.client.connection import Connection, Response
from pegboard.errors import Garbled, LinkLost, ServerFault, SetupError, Unreachable

CONNECTIONS: Final = 100
REDIRECTS: Final = 5
IDLE_SECONDS: Final = 4.0
"""A connection is not used again after this long: common servers close theirs after five seconds."""

_TUNNEL_BYTES: Final = 16 * 1024
_KEPT: Final = frozenset({307, 308})
_MOVED: Final = frozenset({301, 302, 303, *_KEPT})


class Request(Struct, frozen=True):
    """A request; `fields` and `secrets` are header lines as they are sent, the secrets to its own origin alone.

    Where it does not follow, a redirect is an answer like any other.
    """

    method: str
    address: Address
    fields: bytes = b""
    secrets: bytes = b""
    body: bytes = b""
    follows: bool = True

    def __repr__(self) -> str:
        return f"Request({self.method} {self.address})"

    def written(self, *, through_proxy: bytes | None) -> bytes:
        """As the wire has it; a plain request through a proxy names its address whole."""
        opening = _opening(self.method, self.address, through_proxy is not None)
        length = b"Content-Length: %d\r\n" % len(self.body) if self.body or self.method == "POST" else b""
        return b"".join((opening, through_proxy or b"", self.fields, self.secrets, length, b"\r\n", self.body))


@lru_cache(maxsize=256)
def _opening(method: str, address: Address, whole: bool) -> bytes:
    """The first two lines of a request."""
    target = str(address) if whole else address.target
    return f"{method} {target} HTTP/1.1\r\nHost: {address.authority}\r\n".encode()


def header_lines(fields: Mapping[str, str], where: str) -> bytes:
    """Header lines of what a person configured; refused where a value would end its line."""
    lines = []
    for name, value in fields.items():
        if not name or not all(33 <= ord(char) < 127 and char not in '()<>@,;:\\"/[]?={}' for char in name):
            raise SetupError(f"{where}: {name!r} is no name of a header")
        if any(char in "\r\n\0" for char in value):
            raise SetupError(f"{where}: the value of the header {name!r} has a line break in it")
        lines.append(f"{name}: {value.strip()}\r\n".encode())
    return b"".join(lines)


class Web:
    """Connections to whatever a client asks; `close` ends them all."""

    def __init__(
        self,
        *,
        ca: str | Path | None = None,
        connections: int = CONNECTIONS,
        connect_timeout: float = 10.0,
        find_proxy: Callable[[Address], Proxy | None] = find_proxy,
    ) -> None:
        self._ca = ca
        self._connect_timeout = connect_timeout
        # The environment is read once for each origin, and not with every request.
        self._find_proxy = lru_cache(maxsize=256)(find_proxy)
        self._room = asyncio.Semaphore(connections)
        self._idle: defaultdict[tuple[str, str, int], list[Connection]] = defaultdict(list)
        self._busy: dict[Connection, bool] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def send(self, request: Request, *, urgent: bool = False) -> Response:
        """The answer, once its head is here; redirects are followed where that is safe.

        What others wait for goes out at once (`urgent`), even where all connections are taken by those who wait.
        """
        for _ in range(REDIRECTS + 1):
            response = await self._send_once(request, urgent)
            if response.status not in _MOVED or not request.follows:
                return response
            location = response.header(b"location")
            if not location:
                return response
            response.close()
            request = _redirected(request, response.status, location)
        raise Garbled(f"{request.address}: redirected more than {REDIRECTS} times")

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in [*self._busy, *(one for kept in self._idle.values() for one in kept)]:
            connection.abort()
        self._idle.clear()
        # Transports say goodbye in the loop's next rounds; nothing is left open once they have.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _send_once(self, request: Request, urgent: bool) -> Response:
        if self._closed:
            raise LinkLost(f"{request.address}: this client is closed")
        proxy = self._find_proxy(request.address)
        if not urgent:
            await self._room.acquire()
        try:
            connection = await self._take(request.address, proxy)
        except BaseException:
            if not urgent:
                self._room.release()
            raise
        self._busy[connection] = not urgent
        through = None if proxy is None or request.address.secure else _credentials(proxy)
        try:
            return await connection.exchange(request.written(through_proxy=through))
        except ServerFault as fault:
            raise type(fault)(f"{request.address}: {fault}") from None

    async def _take(self, address: Address, proxy: Proxy | None) -> Connection:
        loop = asyncio.get_running_loop()
        kept = self._idle[address.origin]
        while kept:
            connection = kept.pop()
            age = loop.time() - connection.idle_since
            if age > 0.5:
                # Its end may have come and not been read yet.
                await asyncio.sleep(0)
            if not connection.closed and age < min(IDLE_SECONDS, (connection.keep_seconds or IDLE_SECONDS + 1) - 1):
                return connection
            if not connection.closed:
                connection.abort()
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._connect(address, proxy, loop)
        except TimeoutError:
            raise Unreachable(f"Cannot reach {address}: no connection within {self._connect_timeout:g} s.") from None
        except ssl.SSLError as error:
            raise Unreachable(f"Cannot reach {address}: {error.reason or error}.{_hint(error)}") from None
        except OSError as error:
            told = error.strerror or str(error)
            raise Unreachable(f"Cannot reach {address}: {told}. Is the server running?") from None

    async def _connect(self, address: Address, proxy: Proxy | None, loop: asyncio.AbstractEventLoop) -> Connection:
        def make() -> Connection:
            return Connection(address.origin, loop, self._free)

        if proxy is None:
            _, connection = await loop.create_connection(
                make, address.host, address.port, ssl=self._context() if address.secure else None
            )
            return connection
        if not address.secure:
            _, connection = await loop.create_connection(make, proxy.host, proxy.port)
            return connection
        transport, tunnel = await loop.create_connection(lambda: _Tunnel(loop), proxy.host, proxy.port)
        try:
            await tunnel.dig(address, proxy)
            connection = make()
            secured = await loop.start_tls(transport, connection, self._context(), server_hostname=address.host)
            if secured is None:
                raise ConnectionResetError("the proxy hung up")
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
                raise SetupError(f"{self._ca} is no bundle of certificates: {error}") from None
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _free(self, connection: Connection) -> None:
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


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel, and steps aside."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answer: asyncio.Future[bytes] = loop.create_future()
        self._head = b""
        self._transport: asyncio.Transport | None = None

    async def dig(self, address: Address, proxy: Proxy) -> None:
        assert self._transport is not None  # noqa: S101 — it was made with this protocol
        host = f"[{address.host}]" if ":" in address.host else address.host
        where = f"{host}:{address.port}".encode()
        self._transport.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (where, where, _credentials(proxy)))
        line = (await self._answer).partition(b"\r\n")[0].decode("latin-1")
        if line.split(" ")[1:2] != ["200"]:
            raise Unreachable(f"Cannot reach {address}: the proxy {proxy.host}:{proxy.port} answered {line[:80]!r}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP has a transport that reads and writes

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._answer.done():
            return
        if b"\r\n\r\n" in self._head:
            self._answer.set_result(self._head)
        elif len(self._head) > _TUNNEL_BYTES:
            self._answer.set_exception(ConnectionResetError("the proxy answers no HTTP"))

    def connection_lost(self, exception: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the proxy hung up"))


def _credentials(proxy: Proxy) -> bytes:
    return f"Proxy-Authorization: {proxy.credentials}\r\n".encode() if proxy.credentials else b""


def _redirected(request: Request, status: int, location: str) -> Request:
    here = request.address
    try:
        there = here.join(location)
    except SetupError:
        raise Garbled(f"{here}: redirected to no address, {location[:200]!r}") from None
    if request.method != "GET" and status not in _KEPT:
        # These turn a POST into a GET, which is nobody's intent here.
        raise Garbled(f"{here}: has moved to {there} (status {status}); use that address")
    if here.secure and not there.secure:
        raise Garbled(f"{here}: redirected to {there}, which is not encrypted; nothing is sent there")
    if there.is_loopback and not here.is_loopback:
        raise Garbled(f"{here}: redirected to {there}, which is this machine; nothing is sent there")
    # What identifies its user belongs to the origin it was given for.
    secrets = request.secrets if here.origin == there.origin else b""
    return replace(request, address=there, secrets=secrets)


def _hint(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f" ({error.verify_message}) Name the bundle of its authority with ca=… or SSL_CERT_FILE."
    return ""
