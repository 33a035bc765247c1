"""A locked WebSocket: its handshake is refused and comes again with a token, as a request over HTTP would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from pegboard import Client, ClientCredentials, OAuth
from pegboard.client.login.storage import MemoryStorage
from pegboard.errors import LoginFailed, SetupError, Unauthorized
from tests.client.fakes import faking
from tests.client.login.authorization_server import Authority, Person
from tests.client.process_leftovers import nothing_left
from tests.client.websocket_servers import Peer, Server, serving


@dataclass
class LockedSocket:
    """Opens for those whose token it takes; `scopes` are what each of its handshakes wants besides."""

    authority: Authority
    scopes: list[str] = field(default_factory=list)
    taken: list[str] | None = None
    shown: list[str] = field(default_factory=list)
    server: Server | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url.partition("?")[0]

    @property
    def site(self) -> str:
        return self.url.replace("ws", "http", 1).removesuffix("/ws")

    def admit(self, protocol: ServerProtocol, request: Request) -> Response:
        if request.path == "/.well-known/oauth-protected-resource/ws":
            about = {"resource": f"{self.site}/ws", "authorization_servers": [self.authority.issuer]}
            response = protocol.reject(HTTPStatus.OK, json.dumps(about))
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        shown = request.headers.get("Authorization", "")
        self.shown.append(shown)
        where = f'resource_metadata="{self.site}/.well-known/oauth-protected-resource/ws"'
        if shown.removeprefix("Bearer ") not in (self.authority.tokens if self.taken is None else self.taken):
            return _refused(protocol, HTTPStatus.UNAUTHORIZED, f"Bearer {where}")
        if self.scopes:
            wanted = self.scopes.pop(0)
            return _refused(
                protocol, HTTPStatus.FORBIDDEN, f'Bearer error="insufficient_scope", scope="{wanted}", {where}'
            )
        return protocol.accept(request)


def _refused(protocol: ServerProtocol, status: HTTPStatus, challenge: str) -> Response:
    response = protocol.reject(status, "no")
    response.headers["WWW-Authenticate"] = 'Basic realm="elsewhere"'
    response.headers["WWW-Authenticate"] = challenge
    return response


def let_in(peer: Peer, asked: dict[str, Any]) -> None:
    if asked["params"]["name"] == "hang up":
        peer.writer.close()
    else:
        peer.answer(asked, "in")


@asynccontextmanager
async def locked(**knobs: Any) -> AsyncIterator[LockedSocket]:
    authority = Authority(**knobs)
    lock = LockedSocket(authority)
    async with faking(authority.answer) as door, serving(let_in, admit=lock.admit) as server:
        authority.issuer = f"http://127.0.0.1:{door.port}"
        lock.server = server
        yield lock


async def test_a_person_logs_in_once_and_each_handshake_carries_the_token() -> None:
    async with nothing_left(), locked() as lock:
        person, storage = Person(), MemoryStorage()
        for _ in range(2):
            async with Client(lock.url, auth=OAuth(login=person, storage=storage)) as client:
                assert (await client.call("any")).text == "in"
        assert lock.shown == ["", "Bearer a-token-1", "Bearer a-token-1"]
        assert len(person.visits) == 1
        assert person.asked()["resource"] == f"{lock.site}/ws"


async def test_many_calls_wait_for_one_login() -> None:
    async with nothing_left(), locked() as lock:
        person = Person(may=asyncio.Event())
        client = Client(lock.url, auth=OAuth(login=person))
        asyncio.get_running_loop().call_later(0.05, person.may.set)  # type: ignore[union-attr]
        async with client:
            told = await asyncio.gather(*(client.call("any") for _ in range(8)))
        assert [one.text for one in told] == ["in"] * 8
        assert len(person.visits) == 1


async def test_scopes_that_a_handshake_wants_are_asked_for() -> None:
    async with nothing_left(), locked() as lock:
        lock.scopes = ["more"]
        person = Person()
        async with Client(lock.url, auth=OAuth(login=person)) as client:
            assert (await client.call("any")).text == "in"
        assert person.asked()["scope"] == "more"
        assert lock.shown == ["", "Bearer a-token-1", "Bearer a-token-2"]


async def test_a_connection_that_was_lost_comes_back_with_a_fresh_token() -> None:
    async with nothing_left(), locked() as lock:
        async with Client(lock.url, auth=ClientCredentials("me", "secret")) as client:
            assert (await client.call("any")).text == "in"
            with pytest.raises(Exception, match="closed the connection"):
                await client.call("hang up")
            lock.taken = ["a-token-2"]
            assert (await client.call("any")).text == "in"
        assert lock.shown[-2:] == ["Bearer a-token-1", "Bearer a-token-2"]


async def test_a_server_that_refuses_every_token_is_left() -> None:
    async with nothing_left(), locked() as lock:
        lock.taken = []
        with pytest.raises(LoginFailed, match="rejects the token that was just issued for it"):
            async with Client(lock.url, auth=OAuth(login=Person())):
                pass
        assert len(lock.authority.tokens) == 1


async def test_without_auth_the_error_says_what_to_do() -> None:
    async with nothing_left(), locked() as lock:
        with pytest.raises(
            Unauthorized, match=r"answered 401.*send them as a header.*, or .*auth=OAuth\(\)"
        ) as refused:
            async with Client(lock.url):
                pass
        assert "resource_metadata" in refused.value.challenge


def test_both_auth_and_a_header_are_refused() -> None:
    with pytest.raises(SetupError, match="has both auth and a header Authorization"):
        Client("wss://there.example/ws", auth=OAuth(), headers={"authorization": "Bearer x"})
