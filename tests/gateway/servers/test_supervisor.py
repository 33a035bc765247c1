"""The watch over a server: what is looked at, when, and what becomes of what is found."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from pegboard.config.gateway_config import ServerConfig
from pegboard.gateway.servers import supervisor as module
from tests.client.fakes import Asked, Fake, data, error, faking, reply, result, stream
from tests.client.process_leftovers import nothing_left
from tests.gateway.minimal_gateway import MODERN
from tests.gateway.one_server import Watched, behind, call
from tests.waiting import until

pytestmark = pytest.mark.process


class Server:
    """A modern server over HTTP whose every answer can be changed."""

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities = {"tools": {}, **capabilities}
        self.tools = ["one"]
        self.more: dict[str, Any] = {}
        self.down = ""
        self.hung = False

    def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if self.hung:
            return
        if self.down:
            reply(writer, {}, self.down, Retry_After="1", WWW_Authenticate="Bearer")
            return
        match asked.message.get("method"):
            case "server/discover":
                reply(writer, result(asked, {"supportedVersions": [MODERN], "capabilities": self.capabilities}))
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
                reply(writer, result(asked, {"tools": tools, **self.more}))
            case "tools/call":
                reply(writer, result(asked, {"content": [{"type": "text", "text": "called"}]}))
            case "subscriptions/listen":
                meta = {"io.modelcontextprotocol/subscriptionId": asked.message["id"]}
                told = {"method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta}}
                stream(writer, data({"jsonrpc": "2.0", **told}))
            case _:
                reply(writer, error(asked, -32601, "no"), "404 Not Found")


def far(fake: Fake, **options: Any) -> ServerConfig:
    return ServerConfig(**{"name": "far", "kind": "http", "url": fake.url, "version": MODERN, **options})


async def test_a_server_that_tells_no_changes_is_listed_again_when_its_lists_do_not_hold_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHORTEST_TTL", 0.05)
    server = Server()
    server.more = {"ttlMs": 1}
    async with faking(server) as fake, behind(far(fake)) as downstream:
        server.tools = ["one", "two"]
        await until(lambda: downstream.tools == ["one", "two"])
        assert len(downstream.digests) == 2


async def test_a_server_that_tells_changes_is_not_listed_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_TTL", 0.01)
    monkeypatch.setattr(module, "HEALTH_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(module, "DEBOUNCE_SECONDS", 0.0)
    server = Server(tools={"listChanged": True})
    server.more = {"ttlMs": 1}
    async with faking(server) as fake, behind(far(fake)):
        # Listed again once the subscription has begun: a change before that was not reported.
        await until(lambda: fake.methods.count("tools/list") == 2)
        checked = fake.methods.count("server/discover")
        await until(lambda: fake.methods.count("server/discover") > checked + 4)
        assert fake.methods.count("tools/list") == 2
        assert fake.methods.count("subscriptions/listen") == 1


async def test_a_server_that_has_gone_unnoticed_is_found_out_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_CHECK_SECONDS", 0.05)
    server = Server()
    async with faking(server) as fake, behind(far(fake, connect_timeout=0.3)) as downstream:
        first = downstream.catalog
        server.down = "503 Service Unavailable"
        await until(lambda: downstream.state == "failed")
        assert downstream.catalog is first
        assert "answered 503" in downstream.problem
        assert downstream.describe_problem == "cannot be reached now; the gateway keeps trying"
        server.down = ""
        await until(lambda: downstream.state == "ready")
        assert downstream.catalog is first
        server.hung = True
        await until(lambda: downstream.state == "failed")
        assert "no response to server/discover within 0.3 s" in downstream.problem
        server.hung = False
        await until(lambda: downstream.state == "ready")


async def test_a_server_is_still_retried_after_a_thousand_failures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.0)
    server = Server()
    server.down = "503 Service Unavailable"
    caplog.set_level(logging.DEBUG, "pegboard.gateway")
    async with faking(server) as fake, behind(far(fake)):
        # 2**1024 does not fit a float.
        await until(lambda: len(caplog.records) > 1100 or "is not supervised" in caplog.text[-1000:])
    assert "is not supervised any more" not in caplog.text


async def test_a_login_that_was_lost_is_shown_and_the_next_one_found() -> None:
    server = Server()
    async with faking(server) as fake, behind(far(fake)) as downstream:
        server.down = "401 Unauthorized"
        with pytest.raises(Exception, match="requires credentials"):
            await call(downstream, "one")
        await until(lambda: downstream.state == "needs_login")
        assert downstream.tools == ["one"]
        server.down = ""
        await until(lambda: downstream.state == "ready")


async def test_a_server_that_ends_every_subscription_stays_ready_and_is_not_asked_ever_faster() -> None:
    class Restless(Server):
        def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
            if asked.message.get("method") == "subscriptions/listen":
                reply(writer, result(asked, {}))
            else:
                super().__call__(asked, writer)

    server = Restless(tools={"listChanged": True})
    async with faking(server) as fake, behind(far(fake)) as downstream:
        await until(lambda: fake.methods.count("subscriptions/listen") == 3)
        assert {state for state, _ in downstream.changes[1:]} == {"ready"}
        assert fake.methods.count("tools/list") <= 4
        assert await call(downstream, "one") == "called"


async def test_a_server_that_cries_wolf_is_listed_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEBOUNCE_SECONDS", 0.01)
    listed: list[float] = []

    class Timed(Server):
        def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
            if asked.message.get("method") == "tools/list":
                listed.append(asyncio.get_running_loop().time())
            super().__call__(asked, writer)

    async with faking(Timed()) as fake, behind(far(fake)) as downstream:
        while len(listed) < 7:
            downstream._supervisor._lists_changed()
            await asyncio.sleep(0.005)
        assert len(downstream.digests) == 1
    for number, (before, after) in enumerate(pairwise(listed)):
        assert after - before > 0.009 * 2**number


async def test_a_listener_that_fails_is_logged_and_the_server_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(Watched):
        def _note(self, downstream: Any) -> None:
            raise ValueError("clumsy")

    async with faking(Server()) as fake, nothing_left():
        downstream = Clumsy(far(fake))
        await downstream.wait_connected()
        assert downstream.state == "ready"
        await downstream.stop()
    assert "failed to handle a change" in caplog.text


async def test_a_misconfigured_server_is_reported_as_failed_without_raising() -> None:
    for wrong in ({"url": "ftp://x"}, {"version": "1999-01-01"}, {"headers": {"bad name": "x"}}):
        async with faking(Server()) as fake, behind(far(fake, **wrong)) as downstream:
            assert downstream.state == "failed"
            assert downstream.problem
    async with behind(ServerConfig(name="b", kind="board", board="gone.py:board")) as downstream:
        assert "there is no board 'gone.py:board'" in downstream.problem
