"""A thousand tools over twenty servers, and what each mode costs a model, with definitions that others wrote.

The definitions are those of the servers in tests/gateway/lock/test_scan_real.py and of the demo, each as its server lists it;
there are not a thousand of them, so they are told again by other servers (`servers/replayed.py`), of fifty tools each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import messages
from processes import CORES, HERE, Listening, free_port, pin
from routes import Gateway, our_config, our_words, wait_until_listed, written
from targets import Figures

sys.path.insert(0, str(HERE.parent))

from pegboard import Client
from pegboard.cli.commands.serving.demo_command import Demo
from pegboard.gateway.modes.meta_tool_host import Visibility
from pegboard.gateway.modes.meta_tools import MetaTools
from pegboard.middleware.observability.token_count import count_tokens
from tests.gateway.lock.test_scan_real import SERVERS

TOTAL, AMONG = 1000, 20
QUERIES = ("read a file", "commit changes to a repository", "what time is it", "add two numbers", "search nodes")
MODES = ("all", "dynamic", "proxy")

Definition = Mapping[str, Any]


def measure(figures: Figures, python: str) -> None:
    """Print what a thousand tools cost a client, the gateway, and a model."""
    real = asyncio.run(_collect())
    print(f"\n{TOTAL:,} tools over {AMONG} servers on stdio: {len(real)} real definitions, repeated", flush=True)
    config = our_config(_replayed(real))
    lists: dict[str, Sequence[Definition]] = {}
    for mode in MODES:
        began = time.perf_counter()
        with _gateway(config, mode, python) as gateway:
            gateway.wait()
            if mode == "all":
                lists[mode] = wait_until_listed(gateway, TOTAL)
                figures["gateway of 1,000 tools"] = _use(gateway, time.perf_counter() - began, lists[mode])
            else:
                lists[mode] = _listed_in_session(gateway)
    _tell_tokens(figures, f"{TOTAL:,} tools", lists)
    _tell_tokens(figures, "the demo", asyncio.run(_demo()))


async def _collect() -> list[Definition]:
    """The tools of real servers, two at a time."""
    turns = asyncio.Semaphore(2)

    async def ask(words: Sequence[str | Path]) -> list[Definition]:
        async with turns, Client([str(word) for word in words], connect_timeout=60) as client:
            return list(await client.list_tools())

    return [tool for tools in await asyncio.gather(*map(ask, SERVERS.values())) for tool in tools]


def _replayed(real: Sequence[Definition]) -> dict[str, Any]:
    """Servers that tell these again; what one of them has twice has a number."""
    told, each = cycle(real), TOTAL // AMONG
    servers = {}
    for number in range(AMONG):
        tools: dict[str, Definition] = {}
        for tool in islice(told, each):
            name = tool["name"] if tool["name"] not in tools else f"{tool['name']}_{len(tools)}"
            tools[name] = {**tool, "name": name}
        script = str(HERE / "servers" / "replayed.py")
        servers[f"server-{number}"] = {"command": sys.executable, "args": ["-S", script, written(list(tools.values()))]}
    return servers


def _gateway(config: str, mode: str, python: str) -> Gateway:
    port = free_port()
    gateway = Gateway("pegboard up", port, [*our_words(config, python), "--http", "--port", str(port), "--mode", mode])
    pin(gateway.process.pid, CORES)
    return gateway


def _use(gateway: Gateway, ready: float, tools: Sequence[Definition]) -> dict[str, float]:
    """List, search, call for the first time and again; the milliseconds of each."""
    listed, said = _timed(gateway, *messages.LIST)
    first, _ = _timed(gateway, "tools/call", {"name": tools[-1]["name"], "arguments": {}})
    found = {"ready": ready, "list": listed, "bytes": len(json.dumps(said)), "call": first}
    for kind in ("search", "search again"):
        took = [_timed(gateway, "tools/call", {"name": "search_tools", "arguments": {"query": q}})[0] for q in QUERIES]
        found[kind] = max(took) if kind == "search" else sum(took) / len(took)
    found["MB"] = gateway.memory() / 1e6
    print(
        f"  all listed {ready:.2f} s after the start; listed again in {listed:.1f} ms ({found['bytes'] / 1e6:.1f} MB)"
    )
    print(
        f"  first search, index made, {found['search']:.1f} ms; {len(QUERIES)} more {found['search again']:.1f} ms each"
    )
    print(f"  first call {first:.1f} ms; the gateway itself holds {found['MB']:.1f} MB", flush=True)
    return found


def _listed_in_session(gateway: Gateway) -> list[Definition]:
    """What a session begins with: only there toolboxes can be opened."""
    request = messages.legacy_posts(gateway.port, *messages.LIST, gateway.open_session())[0]
    tools: list[Definition] = gateway.ask(request)[1]["result"]["tools"]
    return tools


def _timed(server: Listening, method: str, params: Mapping[str, Any]) -> tuple[float, Any]:
    request = messages.modern_posts(server.port, method, params)[0]
    began = time.perf_counter()
    _, said = server.ask(request)
    took = (time.perf_counter() - began) * 1e3
    if "result" not in said:
        raise RuntimeError(f"{method} {params}: {str(said)[:300]}")
    return took, said["result"]


async def _demo() -> dict[str, Sequence[Definition]]:
    """What the demo lists in each mode."""
    demo = Demo()
    await demo.start()
    try:
        await demo.wait_connected(30)
        lists: dict[str, Sequence[Definition]] = {"all": [entry.definition for entry in demo.endpoints[0].directory]}
        for mode in ("dynamic", "proxy"):
            lists[mode] = list(MetaTools(demo.endpoints[0], mode).listed(Visibility(), frozenset()))
        return lists
    finally:
        await demo.stop()


def _tokens(tools: Sequence[Definition]) -> int:
    return sum(count_tokens(json.dumps(one, separators=(",", ":"), ensure_ascii=False)) for one in tools)


def _tell_tokens(figures: Figures, what: str, lists: Mapping[str, Sequence[Definition]]) -> None:
    whole, begins, proxy = (_tokens(lists[mode]) for mode in MODES)
    opened = begins + whole
    figures[f"tokens: {what}"] = {"all": whole, "dynamic": begins, "dynamic, all open": opened, "proxy": proxy}
    print(f"\ntokens of the list that a model reads (o200k), {what}: {len(lists['all'])} tools")
    print(f"  all      {whole:9,}")
    print(f"  dynamic  {begins:9,} at first, {opened:,} with every toolbox open")
    print(
        f"  proxy    {proxy:9,}: {1 - proxy / opened:.1%} less than dynamic, {1 - proxy / whole:.1%} less than all",
        flush=True,
    )


if __name__ == "__main__":
    measure({}, sys.executable)
