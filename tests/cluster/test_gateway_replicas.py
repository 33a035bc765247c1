"""Two gateways with the same configuration and store: a client is served by either of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.servers import guest
from tests.server.http_clients import Response
from tests.server_processes import ROOT, HttpChild
from tests.waiting import wait_until

pytestmark = pytest.mark.process

BATTERY = str(ROOT / "tests" / "client" / "battery_board.py")


def replica(folder: Path, store: str, name: str) -> HttpChild:
    server = {"command": sys.executable, "args": ["-m", "pegboard", "run", BATTERY, "--stdio"], "required": True}
    toolbox = {"description": "all", "names": "plain", "mcpServers": {"battery": server}}
    config = folder / f"{name}.json"
    config.write_text(json.dumps({"toolboxes": {"main": toolbox}}))
    return HttpChild("--store", store, verb="up", target=config)


async def updated(stream: Response) -> dict[str, Any]:
    """The first update of a resource on a stream."""
    number = 0
    while True:
        number += 1
        messages = await stream.read(number)
        for message in messages:
            if message["method"] == "notifications/resources/updated":
                return message


async def test_a_resource_is_followed_by_the_replica_that_holds_the_stream(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store, "one") as one, replica(tmp_path, store, "two") as two:
        for child in (one, two):
            wait_until(lambda child=child: child.get("/ready")[0] == 200)  # type: ignore[misc]
        async with guest(one) as client:
            other = client.at(two)
            listening = await other.send("GET", accept="text/event-stream")
            assert (await client.ask("resources/subscribe", {"uri": "memo://days/1"})).json["result"] == {}
            # The lists of the servers may change before.
            reading = asyncio.create_task(updated(listening))
            while not reading.done():
                # The server of the replica that holds the stream reports changes once it has its subscription.
                await other.text("touch", uri="memo://days/1")
                await asyncio.wait({reading}, timeout=0.1)
            assert (await reading)["params"] == {"uri": "memo://days/1"}
