"""Servers that others wrote, kept behind the gateway: listed, called, killed and back."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Caller
from pegboard.config.gateway_config import ServerConfig
from tests.client.process_leftovers import children
from tests.gateway.one_server import Person, Watched, behind, call
from tests.peers.judges import LEGACY, NODE
from tests.peers.test_foreign_servers import EVERYTHING, SERVERS, Server, target
from tests.waiting import until

pytestmark = pytest.mark.peer

ANN = Caller(version=LEGACY, transport="http", principal=Principal("ann"), capabilities={"elicitation": {"form": {}}})


# One server of each era and each language: how a child that was killed comes back does not depend on more.
RESTARTED = {"python-1", "typescript-2"}


async def use(downstream: Watched) -> None:
    assert downstream.state == "ready", downstream.problem
    assert {"add", "steps", "order"} <= set(downstream.tools)
    assert downstream.catalog is not None
    assert downstream.catalog.dropped == ()
    assert downstream.catalog.prompts
    said = await asyncio.gather(*(call(downstream, "add", {"a": n, "b": 1}, caller=ANN) for n in range(64)))
    assert said == [str(n + 1) for n in range(64)]
    ann = Person()
    assert await call(downstream, "steps", {"count": 3}, channel=ann, caller=ANN, wants_progress=True) == "done"
    assert [notice.params["progress"] for notice in ann.heard if "progress" in notice.params] == [1, 2, 3]
    assert downstream.in_flight == 0


@pytest.mark.parametrize(
    ("server", "transport"),
    [pytest.param(one, way, id=f"{one}-{way}") for one in SERVERS for way in ("stdio", *one.paths)],
)
async def test_a_foreign_server_is_kept_and_called(server: Server, transport: str) -> None:
    with target(server, transport) as where:
        config = (
            ServerConfig(name="x", kind="stdio", command=tuple(where), connect_timeout=40)
            if isinstance(where, list)
            else ServerConfig(name="x", kind="sse" if transport == "sse" else "http", url=where, connect_timeout=40)
        )
        others = children()
        async with behind(config) as downstream:
            await use(downstream)
            assert downstream.asks_midway is not server.modern
            if transport == "stdio":
                assert downstream.spawns == 1
            if transport == "stdio" and server.name in RESTARTED:
                [pid] = children() - others
                os.kill(int(pid), signal.SIGKILL)
                await until(lambda: downstream.spawns == 2 and downstream.state == "ready", 40)
                assert await call(downstream, "add", {"a": 1, "b": 1}) == "2"
                assert downstream.spawns == 2


async def test_the_reference_server_is_kept_with_all_that_it_has() -> None:
    config = ServerConfig(
        name="everything", kind="stdio", command=(str(NODE), str(EVERYTHING), "stdio"), connect_timeout=40,
        roots=("file:///work",),
    )  # fmt: skip
    async with behind(config) as downstream:
        assert downstream.state == "ready", downstream.problem
        found = downstream.catalog
        assert found is not None
        assert found.dropped == ()
        assert all((found.tools, found.prompts, found.resources, found.templates))
        assert "hello" in await call(downstream, "echo", {"message": "hello"})
        ann = Person({"action": "decline"})
        said = await call(downstream, "trigger-elicitation-request", channel=ann, caller=ANN)
        assert "decline" in said.lower()
        uri = found.resources[0]["uri"]
        read = await downstream.send("resources/read", {"uri": uri}, NULL_CHANNEL)
        assert read["contents"]
