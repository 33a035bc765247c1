"""What a session has opened goes with it, wherever it goes on; and its list is no other's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pegboard.call import NULL_CHANNEL, Call, Caller, EncodedResult
from pegboard.config.gateway_config import PrincipalConfig
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.modes.meta_tool_definitions import CLOSE, LIST, OPEN
from pegboard.limits import Limits
from pegboard.protocol.revisions import MODERN
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.stores.memory import MemoryStore
from tests.gateway.modes.test_served_modes import LEGACY, gateway

ADD, ROLL_OUT = "dev__calc__add", "live__ops__roll_out"


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways of one configuration on one store."""
    store = MemoryStore()
    one, other = gateway("dynamic"), gateway("dynamic")
    try:
        for made in (one, other):
            await made.start(SharedStore(store, Cluster(store, Limits(worker_seconds=10.0))))
        yield one, other
    finally:
        for made in (one, other):
            await made.stop()


async def ask(served: Gateway, method: str, name: str = "", **arguments: Any) -> Any:
    """What a session is answered there."""
    caller = Caller(version=LEGACY, transport="http", session="one and the same")
    raw = Raw(msgspec.json.encode(arguments))
    reply = await served.handler(Call(method=method, caller=caller, channel=NULL_CHANNEL, id=1, name=name, raw=raw))
    return reply.result.value if isinstance(reply.result, EncodedResult) else reply.result


async def listed(served: Gateway) -> set[str]:
    return {tool["name"] for tool in (await ask(served, "tools/list"))["tools"]} & {ADD, ROLL_OUT}


async def test_what_was_opened_before_stays_open_when_a_session_opens_more_elsewhere() -> None:
    async with two() as (one, other):
        await ask(one, "tools/call", OPEN, toolbox_name="dev")
        await ask(other, "tools/call", OPEN, toolbox_name="live")

        assert await listed(other) == {ADD, ROLL_OUT}
        assert await listed(one) == {ADD, ROLL_OUT}


async def test_what_was_opened_elsewhere_is_known_to_be_open_and_can_be_closed() -> None:
    async with two() as (one, other):
        await ask(one, "tools/call", OPEN, toolbox_name="dev")
        told = msgspec.json.decode((await ask(other, "tools/call", LIST))["content"][0]["text"])
        closed = await ask(other, "tools/call", CLOSE, toolbox_name="dev")

        assert [box["is_open"] for box in told["toolboxes"]] == [True, False]
        assert not closed.get("isError")
        assert await listed(one) == set()


async def test_only_a_list_that_is_the_same_for_all_may_be_kept_for_others() -> None:
    one = gateway("dynamic")
    await one.start()
    stranger = Call(method="tools/list", caller=Caller(version=MODERN, transport="http"), channel=NULL_CHANNEL, id=1)
    same = (await one.handler(stranger)).result.value["cacheScope"]
    own = (await ask(one, "tools/list"))["cacheScope"]
    await one.reload(one.config, replace(one.config, principals={"ann": PrincipalConfig(mode="all")}))
    by_principal = (await one.handler(stranger)).result.value["cacheScope"]
    await one.stop()

    assert (same, own, by_principal) == ("public", "private", "private")
