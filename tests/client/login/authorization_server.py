"""An authorization server and the locked server that it gives out tokens for, with a person who says yes at once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from pegboard.client.login.browser import Redirect
from tests.client.fakes import Asked, Fake, discovered, faking, reply, result, text


@dataclass
class Person:
    """Logs in where they are sent, once they are let to; `visits` are the addresses that they were sent to."""

    uri: str = "http://127.0.0.1:9/callback"
    answer: dict[str, str] = field(default_factory=dict)
    visits: list[str] = field(default_factory=list)
    may: asyncio.Event | None = None

    @asynccontextmanager
    async def opened(self, registered: str | None) -> AsyncIterator[Redirect]:
        yield self

    async def visit(self, url: str) -> str:
        self.visits.append(url)
        if self.may is not None:
            await self.may.wait()
        asked = dict(parse_qsl(urlsplit(url).query))
        said = {"code": f"code-{len(self.visits)}", "state": asked["state"], **self.answer}
        return f"{self.uri}?{urlencode({name: value for name, value in said.items() if value})}"

    def asked(self, visit: int = -1) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.visits[visit]).query))


@dataclass
class Authority:
    """An authorization server; what it is asked decides nothing but the tokens it gives."""

    metadata: dict[str, Any] = field(default_factory=dict)
    granted: dict[str, Any] = field(default_factory=dict)
    refusals: list[dict[str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    registered: list[dict[str, Any]] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    refreshing: asyncio.Event | None = None
    issuer: str = ""
    name: str = "a"

    def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> Any:
        match asked.method, urlsplit(asked.target).path:
            case "GET", "/.well-known/oauth-authorization-server":
                reply(writer, {**self._metadata(), **self.metadata})
            case "POST", "/register":
                self.registered.append(asked.message)
                made = {
                    "client_id": f"{self.name}-client-{len(self.registered)}",
                    "client_secret": f"{self.name}-secret",
                }
                reply(writer, made, "201 Created")
            case "POST", "/token":
                return self._token(asked, writer)
            case _:
                reply(writer, b"", "404 Not Found")
        return None

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
        }

    async def _token(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        self.forms.append(form)
        self.heads.append(asked.headers)
        if self.refreshing is not None and form["grant_type"] == "refresh_token":
            await self.refreshing.wait()
        if self.refusals:
            reply(writer, self.refusals.pop(0), "400 Bad Request")
            return
        token = f"{self.name}-token-{len(self.tokens) + 1}"
        self.tokens.append(token)
        reply(writer, {"access_token": token, "token_type": "Bearer", **self.granted})


@dataclass
class Locked:
    """A server that lets those in whose token it takes."""

    authority: Authority
    taken: set[str] | None = None
    scope: str = ""
    demand: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    fake: Fake | None = None

    @property
    def url(self) -> str:
        assert self.fake is not None
        return self.fake.url

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    def shown(self) -> list[str]:
        """The tokens that came with calls, in order."""
        assert self.fake is not None
        return [asked.headers.get("authorization", "") for asked in self.fake.asked if asked.method == "POST"]

    def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            if asked.target == "/.well-known/oauth-protected-resource/mcp":
                told = {"resource": self.url, "authorization_servers": [self.authority.issuer]}
                reply(writer, {**told, **self.metadata})
            else:
                reply(writer, b"", "404 Not Found")
            return
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        taken = self.authority.tokens if self.taken is None else self.taken
        where = f'resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        method = asked.message.get("method", "")
        if token not in taken:
            scope = f', scope="{self.scope}"' if self.scope else ""
            reply(writer, b"", "401 Unauthorized", WWW_Authenticate=f"Bearer {where}{scope}")
        elif method in self.demand:
            told = f'Bearer error="insufficient_scope", scope="{self.demand[method]}", {where}'
            reply(writer, b"", "403 Forbidden", WWW_Authenticate=told)
        elif method == "server/discover":
            reply(writer, discovered(asked))
        elif method == "tools/list":
            reply(writer, result(asked, {"tools": [], "ttlMs": 0}))
        else:
            reply(writer, text(asked, "in"))


@asynccontextmanager
async def locked(**knobs: Any) -> AsyncIterator[Locked]:
    """A locked server and its authority, each at an origin of its own."""
    authority = Authority(**knobs)
    server = Locked(authority)
    async with faking(authority.answer) as door, faking(server.answer) as fake:
        authority.issuer = f"http://127.0.0.1:{door.port}"
        server.fake = fake
        yield server


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
