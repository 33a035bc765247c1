"""What a gateway adds to a call: ours beside those of others and a direct call, in one run (`bench/gateway.py [ROUNDS]`).

Latency is taken as its users feel it: one call after the other by a client that costs next to nothing, in turns of a few
with direct calls to the same server, so that whatever else the machine does hits all alike. Throughput is that of 16
connections, and CPU that of the gateway's own process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from statistics import median, quantiles
from typing import Any

import many_tools
import messages
from load import CONNECTIONS, Measured, generator, measure, warm_up
from processes import CORES, Listening, Server, on_one_core, pin, stop
from routes import (
    TOOL,
    TOOLS,
    Downstream,
    Gateway,
    Piping,
    Posting,
    Route,
    byte_copy,
    fastmcp_proxy,
    mcp_proxy,
    mcp_proxy_words,
    our_config,
    our_entry,
    our_gateway,
    our_words,
    through,
    wait_until_listed,
)
from targets import Figures

DIRECT, OURS, OURS_PIPED = "direct", "ours", "ours, at stdio"
OURS_UNOBSERVED = "ours without console and history"
FASTMCP, MCP_PROXY, FLOOR = "FastMCP's proxy", "mcp-proxy", "a copy of bytes"
ERAS = {"2025-11-25": messages.LEGACY, "2026-07-28": messages.MODERN}
# The server that the gateways were compared over when the targets were set, and the hardest one: our own.
SERVERS = {"official SDK": "official_sdk.py", "our board": "board.py"}
TURNS, AT_A_TURN, FAR_AT_A_TURN = 10, 20, 2
FAR = frozenset({FASTMCP, MCP_PROXY})
FLEETS = {"four": 4, "ten": 10}
SLOW_AT_ONE = 4
LARGE_TURNS, LARGE_AT_A_TURN = 16, 5
SLOW = CONNECTIONS * SLOW_AT_ONE


def measure_all(figures: Figures, rounds: int, seconds: float, python: str) -> None:
    """Every figure of the gateway, printed as it is found."""
    _measure_latency(figures, rounds, python)
    _measure_large(figures, rounds, python)
    _measure_throughput(figures, rounds, seconds, python)
    _measure_ready(figures, max(3, rounds), python)
    many_tools.measure(figures, python)


# One call after the other.


def _measure_latency(figures: Figures, rounds: int, python: str) -> None:
    for owner, script in SERVERS.items():
        for kind in ("http", "stdio"):
            for label, era in ERAS.items():
                times: dict[str, list[list[float]]] = defaultdict(list)
                lists: dict[str, list[list[float]]] = defaultdict(list)
                for number in range(rounds):
                    _say(f"gateway, {kind} to {owner}, {label}: round {number + 1} of {rounds}")
                    with contextlib.ExitStack() as stack:
                        routes = _open_routes(stack, script, kind, era, python)
                        for route in _in_turns(routes):
                            times[route.name].append(route.calls)
                            lists[route.name].append(route.lists)
                _tell_latency(figures, f"hop {kind} {label}, {owner}", times, lists)


def _open_routes(stack: contextlib.ExitStack, script: str, kind: str, era: str, python: str) -> list[Route]:
    """All that lead to one server; the far ones only where they were compared, in their own words for it."""
    downstream = Downstream(script, kind)
    routes: list[Route] = []
    if kind == "http":
        server = stack.enter_context(Server(script, "http", TOOLS, python))
        server.wait()
        downstream = Downstream(script, kind, server.port)
        routes.append(stack.enter_context(Route(DIRECT, Posting(server, era), "add")))
    else:
        routes.append(stack.enter_context(Route(DIRECT, Piping(downstream.words(python), era), "add")))
    config = our_config({"one": our_entry(downstream, era, python)})
    ours = our_gateway(config, python)
    routes.append(stack.enter_context(through(OURS, ours, era, TOOL)))
    wait_until_listed(ours, TOOLS)
    if kind == "stdio":
        piped = Piping([*our_words(config, python), "--stdio"], era)
        routes.append(stack.enter_context(Route(OURS_PIPED, piped, TOOL)))
    if script == SERVERS["our board"]:
        routes.append(stack.enter_context(through(FLOOR, byte_copy(downstream, python), era, "add")))
    else:
        routes.append(stack.enter_context(through(FASTMCP, fastmcp_proxy(downstream), era, "add")))
        if era == messages.LEGACY and kind == "http":
            routes.append(stack.enter_context(Route(MCP_PROXY, Piping(mcp_proxy_words(downstream), era), "add")))
        elif era == messages.LEGACY:
            routes.append(stack.enter_context(through(MCP_PROXY, mcp_proxy(downstream), era, "add")))
    return routes


def _in_turns(routes: list[Route]) -> list[Route]:
    """Calls and lists over all routes, on one core.

    A client, a gateway and a server that wait for each other never run at once. On two cores, a direct call stays on one of them, but a call through
    a gateway moves between them, and to wake a core that sleeps takes longer than the call.
    """
    with on_one_core():
        return _take_turns(routes)


def _take_turns(routes: list[Route]) -> list[Route]:
    for route in routes:
        route.check()
        route.call(AT_A_TURN if route.name not in FAR else FAR_AT_A_TURN)
        route.calls.clear()
    for turn in range(TURNS):
        for route in routes if turn % 2 else reversed(routes):
            count = FAR_AT_A_TURN if route.name in FAR else AT_A_TURN
            route.call(count)
            route.list_tools(count // 2)
    return routes


def _tell_latency(
    figures: Figures, what: str, times: dict[str, list[list[float]]], lists: dict[str, list[list[float]]]
) -> None:
    print(
        f"\n{what:36} {'p50 ms':>8} {'× direct':>20} {'p10 ms':>8} {'× direct':>9} {'list p50 ms':>12} {'× direct':>9}"
    )
    for name, rounds in times.items():
        ratios = [median(one) / median(direct) for one, direct in zip(rounds, times[DIRECT], strict=True)]
        listed = [median(one) / median(direct) for one, direct in zip(lists[name], lists[DIRECT], strict=True)]
        calls, direct = [took for one in rounds for took in one], [took for one in times[DIRECT] for took in one]
        quick, quiet = quantiles(calls, n=10)[0], quantiles(calls, n=10)[0] / quantiles(direct, n=10)[0]
        list50 = median(took for one in lists[name] for took in one) * 1e3
        figures[f"{what}: {name}"] = {
            "p50": median(calls) * 1e3, "ratio": median(ratios), "p10": quick * 1e3, "quiet ratio": quiet,
            "list": list50, "list ratio": median(listed),
        }  # fmt: skip
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"  {name:34} {median(calls) * 1e3:8.3f} {spread:>20} {quick * 1e3:8.3f} {quiet:9.2f}", end=" ")
        print(f"{list50:12.3f} {median(listed):9.2f}", flush=True)


def _measure_large(figures: Figures, rounds: int, python: str) -> None:
    """Results of a megabyte, in front of our own server."""
    for kind in ("http", "stdio"):
        times: dict[str, list[float]] = defaultdict(list)
        for number in range(rounds):
            _say(f"gateway, a megabyte, {kind}: round {number + 1} of {rounds}")
            with contextlib.ExitStack() as stack:
                server = stack.enter_context(Server("large.py", "http", TOOLS, python))
                server.wait()
                downstream = Downstream("large.py", kind, server.port)
                config = our_config({"one": our_entry(downstream, messages.MODERN, python)})
                listening: dict[str, Listening] = {DIRECT: server} if kind == "http" else {}
                listening |= {FLOOR: byte_copy(downstream, python), OURS: our_gateway(config, python)}
                listening[OURS_UNOBSERVED] = our_gateway(config, python, "--no-console", "--no-history")
                for one in listening.values():
                    stack.callback(stop, one.process)
                    one.wait()
                for name in (OURS, OURS_UNOBSERVED):
                    wait_until_listed(listening[name], 1)
                ways = {name: Posting(one, messages.MODERN) for name, one in listening.items()}
                _ask_for_megabytes(ways, times)
        _tell_large(figures, f"a megabyte, {kind}", times)


def _ask_for_megabytes(ways: dict[str, Posting], times: dict[str, list[float]]) -> None:
    requests = {}
    for name, way in ways.items():
        way.connect()
        params = {"name": "bench__one__text" if name.startswith(OURS) else "text", "arguments": {"number": 5}}
        requests[name] = way.ready("tools/call", params)
    with on_one_core():
        for turn in range(LARGE_TURNS):
            for name in ways if turn % 2 else reversed(ways):
                took = [_ask_for_megabyte(name, ways[name], next(requests[name])) for _ in range(LARGE_AT_A_TURN)]
                # The first turn fills the caches, and the first call of a turn finds those of the core cold.
                times[name] += took[1:] if turn else []
    for way in ways.values():
        way.close()


def _ask_for_megabyte(name: str, way: Posting, request: bytes) -> float:
    began = time.perf_counter()
    said = way.ask(request)
    took = time.perf_counter() - began
    if b'"text":"5' not in said or len(said) < 1_000_000:
        raise RuntimeError(f"{name} answered {said[:500]!r}")
    return took


def _tell_large(figures: Figures, what: str, times: dict[str, list[float]]) -> None:
    print(f"\n{what:36} {'p50 ms':>8} {'× a copy':>9}")
    for name, took in times.items():
        ratio = median(took) / median(times[FLOOR])
        figures[f"{what}: {name}"] = {"p50": median(took) * 1e3, "ratio": ratio}
        print(f"  {name:34} {median(took) * 1e3:8.2f} {ratio:9.2f}", flush=True)


# Many at once.


def _measure_throughput(figures: Figures, rounds: int, seconds: float, python: str) -> None:
    for kind in ("http", "stdio"):
        for label, era in ERAS.items():
            found: dict[str, list[Measured]] = defaultdict(list)
            for number in range(rounds):
                _say(f"gateway, 16 connections, {kind}, {label}: round {number + 1} of {rounds}")
                with Server("board.py", "http", TOOLS, python) as server:
                    server.wait()
                    found[DIRECT].append(_load(server, era, "add", seconds))
                    pin(server.process.pid, CORES[-1:])
                    config = our_config({"one": our_entry(Downstream("board.py", kind, server.port), era, python)})
                    with our_gateway(config, python) as gateway:
                        gateway.wait()
                        wait_until_listed(gateway, TOOLS)
                        found[OURS].append(_load(gateway, era, TOOL, seconds))
                # In front of a server that they understand: a number as structured content, which 2026-07-28 allows, they do not.
                with Server("official_sdk.py", "http", TOOLS) as server:
                    pin(server.process.pid, CORES[-1:])
                    server.wait()
                    for name, gateway in _others(Downstream("official_sdk.py", kind, server.port), era):
                        with gateway:
                            gateway.wait()
                            found[name].append(_load_slow(gateway, era))
            _tell_throughput(figures, f"16 connections, {kind} {label}", found)


def _others(downstream: Downstream, era: str) -> Iterator[tuple[str, Gateway]]:
    yield FASTMCP, fastmcp_proxy(downstream)
    if downstream.kind == "stdio" and era == messages.LEGACY:
        yield MCP_PROXY, mcp_proxy(downstream)


def _load(server: Listening, era: str, tool: str, seconds: float) -> Measured:
    requests = list(islice(Posting(server, era).ready("tools/call", _sum(tool)), len(messages.NUMBERS)))
    server.ask(requests[0])
    warm_up(server, requests, 0.5)
    return measure(server, requests, seconds)


def _load_slow(gateway: Gateway, era: str) -> Measured:
    """For those that answer a few requests a second: so many, however long they take."""
    ways = [Posting(gateway, era) for _ in range(CONNECTIONS)]
    # No two with one id, all of one session.
    requests = ways[0].ready("tools/call", _sum("add"))
    for way in ways:
        way.connect()
    said = ways[0].ask(next(requests))
    if b'"text":"5' not in said.replace(b'": "', b'":"'):
        raise RuntimeError(f"{gateway.name} answered {said[:500]!r}")

    def ask(way: Posting) -> float:
        since = time.perf_counter()
        for _ in range(SLOW_AT_ONE):
            way.ask(next(requests))
        return (time.perf_counter() - since) / SLOW_AT_ONE

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        # Warm, as ours is when it is measured.
        list(threads.map(ask, ways))
        before, began = gateway.cpu_seconds(), time.perf_counter()
        took = list(threads.map(ask, ways))
        count, seconds = SLOW, time.perf_counter() - began
        used = gateway.cpu_seconds() - before
    for way in ways:
        way.close()
    return Measured(count / seconds, used / count * 1e6, median(took) * 1e6, 0, count)


def _sum(tool: str) -> dict[str, Any]:
    return {"name": tool, "arguments": {"a": 2, "b": 3}}


def _tell_throughput(figures: Figures, what: str, found: dict[str, list[Measured]]) -> None:
    print(f"\n{what:34} {'requests/s':>12} {'its own CPU µs a request':>26} {'p50 ms':>9}")
    for name, told in found.items():
        rate, cpu = median(one.rate for one in told), median(one.cpu_us for one in told)
        figures[f"{what}: {name}"] = {"rate": rate, "cpu": cpu}
        print(f"  {name:32} {rate:12,.0f} {cpu:26,.1f} {median(one.p50_us for one in told) / 1e3:9.2f}", flush=True)
    print(
        f"  (ours in front of our board, by {generator()}; others in front of the official SDK, {SLOW} requests each)"
    )


# From the start.


def _measure_ready(figures: Figures, rounds: int, python: str) -> None:
    entry = our_entry(Downstream("board.py", "stdio"), messages.MODERN, python)
    del entry["version"]
    print(
        f"\n{'from the start of a gateway':36} {'listens, s':>11} {'all listed, s':>20} {'its own CPU, s':>15} {'MB':>6}"
    )
    for name, count in FLEETS.items():
        config = our_config({f"server-{one}": entry for one in range(count)})
        listens, took, used, held = [], [], [], []
        for number in range(rounds):
            _say(f"gateway, {count} servers: round {number + 1} of {rounds}")
            began = time.perf_counter()
            with our_gateway(config, python) as gateway:
                pin(gateway.process.pid, CORES)
                gateway.wait()
                listens.append(time.perf_counter() - began)
                wait_until_listed(gateway, count * TOOLS)
                took.append(time.perf_counter() - began)
                used.append(gateway.cpu_seconds())
                held.append(gateway.memory() / 1e6)
        figures[f"gateway of {name}"] = {
            "listens": median(listens), "seconds": median(took), "cpu": median(used), "MB": median(held)
        }  # fmt: skip
        spread = f"{median(took):.2f} ({min(took):.2f}–{max(took):.2f})"
        print(f"  {f'{count} servers on stdio':34} {median(listens):11.2f} {spread:>20}", end=" ")
        print(f"{median(used):15.2f} {median(held):6.1f}", flush=True)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    measure_all({}, int(sys.argv[1]) if len(sys.argv) > 1 else 3, 2.0, sys.executable)
