"""Asks the issuers that a server trusts: metadata, keys and introspection."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from urllib.parse import quote_plus

from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool
from pegboard.client.login.discovery import server_locations
from pegboard.client.login.login_http import LoginClient, LoginResponse
from pegboard.errors import MalformedMessage, ServerFault, Unreachable

_SECONDS = 10.0


class IssuerClient:
    """Sends requests to one issuer."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._pool = HttpPool()
        self._client = LoginClient(self._pool, read_address(issuer), _SECONDS)

    async def discover(self) -> Mapping[str, object]:
        """The metadata of the issuer, from the first of its well-known URLs that has them."""
        for url in server_locations(self._issuer):
            reply = await self._client.get(url)
            if reply.document is not None and reply.status == 200:
                # "the issuer value in the document MUST be identical" (Authorization Server Metadata Discovery)
                if reply.document.get("issuer") != self._issuer:
                    raise MalformedMessage(f"{url}: this is the metadata of another issuer")
                return reply.document
        raise Unreachable(f"{self._issuer}: none of its well-known URLs has its metadata")

    async def get(self, url: str) -> Mapping[str, object]:
        return _document(await self._client.get(url), url)

    async def post(self, url: str, form: Sequence[tuple[str, str]], user: str, secret: str) -> Mapping[str, object]:
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        basic = b64encode(f"{quote_plus(user)}:{quote_plus(secret)}".encode())
        field = b"Authorization: Basic " + basic + b"\r\n" if user else b""
        reply = await self._client.post_form(url, form, field)
        if reply.reason:
            hidden = [secret, *(value for _, value in form)]
            raise ServerFault(f"{url}: {reply.describe_error(hidden)}")
        return _document(reply, url)

    async def close(self) -> None:
        await self._pool.close()


def _document(reply: LoginResponse, url: str) -> Mapping[str, object]:
    if reply.status != 200 or reply.document is None:
        raise ServerFault(f"{url}: returned status {reply.status} in place of a JSON document")
    return reply.document
