"""HTTP requests for a login: bounded, JSON only, no secrets in plain text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pegboard import __version__
from pegboard.client.http.address import Address, read_address, written_zone
from pegboard.client.http.http_connection import Response
from pegboard.client.http.http_pool import HttpPool, PooledRequest
from pegboard.client.links.server_output import shorten_output
from pegboard.errors import MalformedMessage, ResponseTimeout, SetupError, Unreachable

REQUEST_SECONDS: Final = 15.0
DOCUMENT_BYTES: Final = 256 * 1024
REDIRECTS: Final = 3
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_FIELDS: Final = f"User-Agent: pegboard/{__version__}\r\nAccept: application/json\r\n".encode()

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class LoginResponse(Struct, frozen=True):
    """A response; `document` is None if it is not a JSON object."""

    status: int
    document: Mapping[str, Any] | None

    def __repr__(self) -> str:
        # It may contain a token.
        return f"Reply({self.status})"

    @property
    def reason(self) -> str:
        """The OAuth error code."""
        code = None if self.document is None else self.document.get("error")
        return code if isinstance(code, str) else ""

    def describe_error(self, hidden: Sequence[str] = ()) -> str:
        """The error for people; secrets of the request are not repeated."""
        description = None if self.document is None else self.document.get("error_description")
        parts = [self.reason or f"status {self.status}", description if isinstance(description, str) else ""]
        text = ", ".join(part for part in parts if part)
        for secret in hidden:
            if secret:
                text = text.replace(secret, "…")
        return shorten_output(text)


class LoginClient:
    """Sends login requests for a client of one server, which names the URLs: so not every URL is allowed."""

    def __init__(self, pool: HttpPool, server: Address, seconds: float = REQUEST_SECONDS) -> None:
        self._pool = pool
        self._server = server
        self._seconds = seconds

    def check_address(self, url: str) -> Address:
        """The address, if it may be contacted: encrypted, and not in a nearer zone than the server.

        A host name is checked when it is connected to.
        """
        try:
            address = read_address(url)
        except SetupError:
            raise MalformedMessage(f"invalid URL, named by login metadata: {url[:200]!r}") from None
        if not address.secure and not address.is_loopback:
            raise MalformedMessage(f"refusing to contact {address}, named by login metadata: it is not https")
        zone = written_zone(address.host)
        if zone > self._pool.zone(self._server):
            raise MalformedMessage(
                f"refusing to contact {address}, named by login metadata: it is on {zone}, unlike its server"
            )
        return address

    async def reach_server(self) -> None:
        """Connect to the server itself, which a person has configured: its zone limits the addresses that it names."""
        async with asyncio.timeout(self._seconds):
            response = await self._pool.send(PooledRequest("GET", self._server, _FIELDS, follows=False), urgent=True)
            response.close()

    async def get(self, url: str) -> LoginResponse:
        """Get a document; redirects are followed to allowed addresses."""
        address = self.check_address(url)
        for _ in range(REDIRECTS + 1):
            reply, location = await self._send(PooledRequest("GET", address, _FIELDS, follows=False))
            if not location:
                return reply
            try:
                address = self.check_address(str(address.join(location)))
            except SetupError:
                raise MalformedMessage(f"{address}: redirected to an invalid URL, {location[:200]!r}") from None
        raise MalformedMessage(f"{url}: redirected more than {REDIRECTS} times")

    async def post_form(self, url: str, form: Sequence[tuple[str, str]], secrets: bytes = b"") -> LoginResponse:
        """Post a form, which contains secrets: it is sent to this address only."""
        fields = _FIELDS + b"Content-Type: application/x-www-form-urlencoded\r\n"
        return await self._post(url, fields, secrets, urlencode(form).encode())

    async def post_json(self, url: str, value: Mapping[str, Any]) -> LoginResponse:
        return await self._post(url, _FIELDS + b"Content-Type: application/json\r\n", b"", _encode(value))

    async def _post(self, url: str, fields: bytes, secrets: bytes, body: bytes) -> LoginResponse:
        request = PooledRequest("POST", self.check_address(url), fields, secrets, body, follows=False)
        reply, location = await self._send(request)
        if location:
            raise MalformedMessage(
                f"{request.address}: has moved (status {reply.status}); secrets are not sent to another address"
            )
        return reply

    async def _send(self, request: PooledRequest) -> tuple[LoginResponse, str]:
        try:
            async with asyncio.timeout(self._seconds):
                within = self._pool.zone(self._server)
                response = await self._pool.send(replace(request, within=within), urgent=True)
                try:
                    return await _read(response, request.address)
                finally:
                    response.close()
        except TimeoutError:
            raise ResponseTimeout(f"{request.address}: no response within {self._seconds:g} s") from None


async def _read(response: Response, address: Address) -> tuple[LoginResponse, str]:
    if response.status >= 500 or response.status == 429:
        raise Unreachable(f"{address}: returned status {response.status}, so it is unavailable now.")
    if response.status in _MOVED and response.header(b"location"):
        return LoginResponse(response.status, None), response.header(b"location")
    try:
        body = await response.read_all(DOCUMENT_BYTES)
    except MalformedMessage as problem:
        raise MalformedMessage(f"{address}: {problem}") from None
    try:
        return LoginResponse(response.status, _decode(body)), ""
    except msgspec.DecodeError:
        return LoginResponse(response.status, None), ""
