"""A server behind a WebSocket: all messages both ways on one connection, opened again when it was lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pegboard.call import Channel, Json
from pegboard.client.duplex import Duplex
from pegboard.client.link import Identity, Outbound
from pegboard.errors import LinkLost, NotAdmitted, ServerFault, SetupError, Unreachable
from pegboard.protocol.versions import MODERN

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_CLOSE_SECONDS: Final = 1.0


class SocketPipe:
    """Carries messages of text; what else a server may send is not for us."""

    transport = "ws"

    def __init__(self, url: str, headers: Mapping[str, str] | None, ca: str | Path | None, timeout: float) -> None:
        self.name = url
        self._headers = headers
        self._ca = ca
        self._timeout = timeout
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def open(self, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]) -> None:
        # Only who opens a WebSocket needs it.
        from websockets.asyncio.client import connect  # noqa: PLC0415
        from websockets.exceptions import InvalidStatus, WebSocketException  # noqa: PLC0415

        options: dict[str, Any] = {"ssl": self._context()} if self.name.startswith("wss://") else {}
        try:
            self._socket = await connect(
                self.name,
                subprotocols=["mcp"],  # type: ignore[list-item]  # a NewType of str
                compression=None,
                max_size=_MESSAGE_BYTES,
                open_timeout=self._timeout,
                close_timeout=_CLOSE_SECONDS,
                additional_headers=self._headers,
                **options,
            )
        except InvalidStatus as refused:
            status, said = (
                refused.response.status_code,
                bytes(refused.response.body or b"")[:200].decode(errors="replace"),
            )
            if status in (401, 403):
                raise NotAdmitted(f"{self.name}: refused with {status}: {said}", status) from None
            raise Unreachable(f"{self.name}: refused with {status}: {said}") from None
        except (OSError, TimeoutError, WebSocketException, ValueError) as problem:
            raise Unreachable(f"{self.name}: cannot be reached: {problem}") from None
        self._reading = asyncio.create_task(self._read(self._socket, receive, lost))

    async def send(self, message: bytes) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        if self._socket is None:
            raise LinkLost(f"{self.name}: is not open")
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as closed:
            raise LinkLost(f"{self.name}: {closed}") from None

    def send_now(self, message: bytes) -> None:
        task = asyncio.create_task(self._send_quietly(message))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _send_quietly(self, message: bytes) -> None:
        try:
            await self.send(message)
        except LinkLost:
            pass

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._telling:
            await asyncio.wait(self._telling, timeout=_CLOSE_SECONDS)
        if self._socket is not None:
            await self._socket.close()

    async def _read(
        self, socket: ClientConnection, receive: Callable[[bytes], None], lost: Callable[[ServerFault], None]
    ) -> None:
        async for message in socket:
            if isinstance(message, str):
                receive(message.encode())
        lost(LinkLost(f"{self.name}: closed the connection ({socket.close_code} {socket.close_reason or ''})".rstrip()))

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca)
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"{self._ca} is no bundle of certificates: {error}") from None


class SocketLink:
    """A link to a WebSocket; one that was lost is opened anew for the next request."""

    transport = "ws"
    authorizer = None
    mirrors = False

    def __init__(
        self,
        url: str,
        identity: Identity,
        lobby: Channel,
        *,
        headers: Mapping[str, str] | None = None,
        version: str | None = None,
        ca: str | Path | None = None,
        connect_timeout: float = 10.0,
    ) -> None:
        self.name = url
        self._identity = identity
        self._lobby = lobby
        self._headers = headers
        self._pinned = version
        self._ca = ca
        self._timeout = connect_timeout
        self._duplex: Duplex | None = None
        self._opening = asyncio.Lock()

    @property
    def version(self) -> str:
        return MODERN if self._duplex is None else self._duplex.version

    async def open(self) -> None:
        await self._ready()

    async def close(self) -> None:
        async with self._opening:
            await self._end()

    async def request(self, out: Outbound) -> Mapping[str, Json]:
        duplex = self._duplex
        if duplex is None or duplex.lost:
            duplex = await self._ready()
        return await duplex.request(out)

    async def _ready(self) -> Duplex:
        async with self._opening:
            if self._duplex is not None and not self._duplex.lost:
                return self._duplex
            await self._end()
            pipe = SocketPipe(self.name, self._headers, self._ca, self._timeout)
            duplex = Duplex(pipe, self._identity, self._lobby, version=self._pinned, timeout=self._timeout)
            try:
                await duplex.open()
            except BaseException:
                await duplex.close()
                raise
            self._duplex = duplex
            return duplex

    async def _end(self) -> None:
        duplex, self._duplex = self._duplex, None
        if duplex is not None:
            await duplex.close()
