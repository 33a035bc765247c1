"""What one call through a gateway costs, in counts: files, calls of our functions, and memory.

`pytest -s tests/test_hop.py` prints the functions. The gateway is in this process, its server is not: only the hop is
counted, from the request of a client on HTTP to the response.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from pegboard import Gateway
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from tests.client.fakes import LEGACY, MODERN, Asked, discovered, faking, initialized, reply, result
from tests.gateway.one_server import battery
from tests.test_walk import HOME, Connection, Trace, serving

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
TOOL = {"name": "add", "inputSchema": SCHEMA, "outputSchema": {"type": "number"}}


def answer(asked: Asked, writer: object) -> None:
    """A server of both eras on HTTP, which has nothing of ours."""
    match asked.message.get("method"):
        case "server/discover":
            told = discovered(asked)
        case "initialize":
            told = initialized(asked)
        case "tools/list":
            told = result(asked, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "public"})
        case "tools/call":
            told = result(asked, {"content": [{"type": "text", "text": "3"}], "structuredContent": 3})
        case _:
            reply(writer, b"", "202 Accepted" if asked.method == "POST" else "405 Method Not Allowed")  # type: ignore[arg-type]  # the writer of a fake
            return
    reply(writer, told)  # type: ignore[arg-type]  # the same


@asynccontextmanager
async def hopping(kind: str, era: str) -> AsyncIterator[Connection]:
    """A client of a gateway in front of one server, both of that era."""
    version = MODERN if era == "modern" else LEGACY
    async with AsyncExitStack() as stack:
        if kind == "http":
            fake = await stack.enter_async_context(faking(answer))
            server = ServerConfig(name="battery", kind="http", url=fake.url, version=version)
        else:
            server = battery(version=version)
        toolbox = ToolboxConfig(name="dev", description="For tests", servers={server.name: server})
        gateway = Gateway(GatewayConfig(path="gateway.json", lock="off", toolboxes={"dev": toolbox}))
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        await gateway.downstreams[0].wait_connected()
        client, _ = await stack.enter_async_context(serving(gateway, era))
        for _ in range(5):
            await hop(client)
        yield client


async def hop(client: Connection) -> None:
    told = await client.call("dev__battery__add", {"a": 1, "b": 2})
    assert told["structuredContent"] in (3, {"result": 3})


# Before Python 3.12 there are no eager tasks, and comprehensions are functions.
MORE = 8 if sys.version_info < (3, 12) else 0
WAYS = [
    pytest.param("stdio", "modern", 29, 57, marks=pytest.mark.process),
    pytest.param("stdio", "legacy", 31, 60, marks=pytest.mark.process),
    pytest.param("http", "modern", 35, 70),
    pytest.param("http", "legacy", 36, 71),
]


@pytest.mark.parametrize(("kind", "era", "most_files", "most_calls"), WAYS)
async def test_a_hop_takes_few_calls_in_few_files(kind: str, era: str, most_files: int, most_calls: int) -> None:
    counts = []
    async with hopping(kind, era) as client:
        for _ in range(6):
            with Trace() as trace:
                await hop(client)
            counts.append(
                Counter(f"{code.co_filename.removeprefix(HOME)}:{code.co_qualname}" for code in trace.entered)
            )
    # A timer or a finalizer that runs meanwhile is not a part of the hop.
    least = counts[0]
    for count in counts:
        least &= count
    files = {function.partition(":")[0] for function in least}
    print(f"\n{kind}, {era}: {len(files)} files, {least.total()} calls:", *sorted(least), sep="\n  ")
    assert len(files) <= most_files
    assert least.total() <= most_calls + MORE


HOPS = 400


# The server of the other tests on HTTP is in this process, and keeps what it was asked.
@pytest.mark.process
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_hops_leave_nothing_in_memory(era: str) -> None:
    async with hopping("stdio", era) as client:
        for _ in range(HOPS):
            await hop(client)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(HOPS):
            await hop(client)
        gc.collect()
        kept = sys.getallocatedblocks() - before
    print(f"\n{era}: {kept} blocks of memory after {HOPS} calls")
    assert kept < HOPS // 4
