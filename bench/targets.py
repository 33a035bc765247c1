"""The targets, and how a run's figures compare with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Figures: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Target:
    """One figure to reach: `at least` or `at most` a bound, computed from the figures of one run."""

    what: str
    bound: float
    value: Callable[[Figures], float]
    at_most: bool = False
    unit: str = "×"
    floor: Callable[[Figures], float] | None = None
    """What a program that does nothing gets."""


def _cheaper(workload: str, peer: str) -> Callable[[Figures], float]:
    """How many times less CPU ours takes than a peer."""
    return lambda figures: figures[f"{workload}: {peer}"]["cpu"] / figures[f"{workload}: ours"]["cpu"]


def _faster(workload: str, peer: str) -> Callable[[Figures], float]:
    """How many times more requests a second ours serves than a peer."""
    return lambda figures: figures[f"{workload}: ours"]["rate"] / figures[f"{workload}: {peer}"]["rate"]


def _start(name: str, kind: str) -> Callable[[Figures], float]:
    return lambda figures: figures[f"start {name}"][kind] / figures["start a bare interpreter with asyncio"][kind]


def _figure(name: str, kind: str) -> Callable[[Figures], float]:
    return lambda figures: figures[name][kind]


def _both(workload: str, peer: str, bound: float) -> list[Target]:
    return [
        Target(f"{workload}: CPU against {peer}", bound, _cheaper(workload, peer)),
        Target(f"{workload}: requests/s against {peer}", bound, _faster(workload, peer)),
    ]


def _calls(workload: str) -> list[Target]:
    return [
        *_both(workload, "raw uvicorn", 1.3),
        *_both(workload, "raw node", 1.2),
        *_both(workload, "official SDK", 15),
        *_both(workload, "FastMCP", 35),
        Target(
            f"{workload}: raw uvicorn's CPU against ours under uvicorn",
            0.75,
            lambda figures: (
                figures[f"{workload}: raw uvicorn"]["cpu"] / figures[f"{workload}: ours under uvicorn"]["cpu"]
            ),
        ),
        Target(
            f"{workload}: 1,000 tools against 2, CPU",
            1.1,
            lambda figures: figures[f"{workload}: ours, 1000 tools"]["cpu"] / figures[f"{workload}: ours"]["cpu"],
            at_most=True,
        ),
    ]


def _client(workload: str) -> list[Target]:
    """All clients ask our server, which bounds the requests of the fastest."""
    return [
        target
        for peer in ("official SDK", "FastMCP")
        for target in (
            Target(f"{workload}: CPU against {peer}", 20, _cheaper(workload, peer)),
            Target(f"{workload}: requests/s against {peer}", 10, _faster(workload, peer)),
        )
    ]


def _hop(kind: str, era: str, bound: float) -> list[Target]:
    """Against a direct call of the server over which the gateways were compared when the targets were set."""
    hop = f"hop {kind} {era}, official SDK: ours"
    return [
        Target(f"gateway, {kind} {era}: p50 against direct", bound, _figure(hop, "ratio"), at_most=True),
        Target(f"gateway, {kind} {era}: tools/list against direct", 1.0, _figure(hop, "list ratio"), at_most=True),
    ]


def _own_hop(kind: str, era: str) -> list[Target]:
    """Against a direct call of our own board, which responds in less time than other servers; and what the hop itself computes."""
    hop, load = f"hop {kind} {era}, our board", f"16 connections, {kind} {era}: ours"
    ours, floor = _figure(f"{hop}: ours", "ratio"), _figure(f"{hop}: a copy of bytes", "ratio")
    return [
        Target(f"gateway, {kind} {era}, our board: p50 against direct", 2.0, ours, at_most=True, floor=floor),
        Target(f"gateway, {kind} {era}, our board: CPU of a hop", 60, _figure(load, "cpu"), at_most=True, unit="µs"),
    ]


_CHILD = "stdio child: ours"

TARGETS: tuple[Target, ...] = (
    *_calls("call 2025-11-25"),
    *_calls("call 2026-07-28"),
    *_both("call 2025-11-25, 16 sessions mixed", "raw uvicorn", 1.3),
    *_both("list of 100", "raw uvicorn", 1.5),
    *_both("list of 100", "official SDK", 100),
    *_both("list of 100", "FastMCP", 100),
    *_both("10 progress events", "raw uvicorn", 1.0),
    *_client("client 2026-07-28, 64 in flight"),
    *_client("client 2025-11-25, 64 in flight"),
    *_both("stdio 1", "TypeScript SDK", 12),
    *_both("stdio 64", "TypeScript SDK", 18),
    Target("stdio 1: CPU against official SDK", 30, _cheaper("stdio 1", "official SDK")),
    Target("stdio 1: requests/s against official SDK", 25, _faster("stdio 1", "official SDK")),
    *_both("stdio 64", "official SDK", 30),
    Target("in process, a call", 10, _figure("in process call: ours", "cpu"), at_most=True, unit="µs"),
    Target(
        "in process, a repaired argument adds",
        20,
        lambda figures: figures["in process repaired: ours"]["cpu"] - figures["in process call: ours"]["cpu"],
        at_most=True,
        unit="µs",
    ),
    Target(
        "in process, a repaired call against one that fits",
        10,
        lambda figures: figures["in process repaired: ours"]["cpu"] / figures["in process call: ours"]["cpu"],
        at_most=True,
    ),
    Target("import pegboard against bare", 2.5, _start("import pegboard", "cpu"), at_most=True),
    Target("from pegboard import Board against bare", 2.5, _start("from pegboard import Board", "cpu"), at_most=True),
    Target("pegboard --help against bare", 2.5, _start("pegboard --help", "cpu"), at_most=True),
    Target("stdio child's first answer against bare", 2.5, _start(_CHILD, "wall"), at_most=True),
    Target("stdio child, resident", 35, _figure(f"start {_CHILD}", "resident"), at_most=True, unit="MB"),
    Target("memory per session", 1.0, _figure("kB per session: ours", "kB"), at_most=True, unit="kB"),
    Target("memory per listen", 4.0, _figure("kB per stream: a listen of 2026-07-28", "kB"), at_most=True, unit="kB"),
    Target("memory per GET stream", 4.0, _figure("kB per stream: a GET of 2025-11-25", "kB"), at_most=True, unit="kB"),
    Target(
        "two workers, CPU of a call against one process",
        1.15,
        lambda figures: (
            figures["workers: two workers, in a file"]["cpu"] / figures["workers: one process, in memory"]["cpu"]
        ),
        at_most=True,
    ),
    Target(
        "100,000 abandoned sessions",
        25,
        _figure("abandoned sessions: one process, in a file", "MB"),
        at_most=True,
        unit="MB",
    ),
    *_hop("http", "2025-11-25", 2.0),
    *_hop("http", "2026-07-28", 2.0),
    *_both("16 connections, http 2025-11-25", "FastMCP's proxy", 100),
    *_both("16 connections, http 2026-07-28", "FastMCP's proxy", 100),
    *_hop("stdio", "2025-11-25", 1.9),
    *_hop("stdio", "2026-07-28", 1.9),
    *_own_hop("http", "2025-11-25"),
    *_own_hop("http", "2026-07-28"),
    *_own_hop("stdio", "2025-11-25"),
    *_own_hop("stdio", "2026-07-28"),
    *(
        Target(
            f"gateway, {kind}: a megabyte against a copy of bytes",
            1.3,
            _figure(f"a megabyte, {kind}: ours", "ratio"),
            at_most=True,
        )
        for kind in ("http", "stdio")
    ),
    Target("gateway, four servers listed", 1.5, _figure("gateway of four", "seconds"), at_most=True, unit="s"),
    Target("gateway, resident with four servers", 60, _figure("gateway of four", "MB"), at_most=True, unit="MB"),
    Target("a call with an idle console against one without", 1.05, _figure("observed: idle", "ratio"), at_most=True),
    Target("floods: p99 of others", 3, _figure("floods", "p99"), at_most=True, unit="s"),
    Target("floods: others answered wrong", 0, _figure("floods", "wrong"), at_most=True, unit=""),
    Target("floods: memory over baseline", 200, _figure("floods", "peak"), at_most=True, unit="MB"),
    Target("floods: memory not given back", 40, _figure("floods", "kept"), at_most=True, unit="MB"),
    Target("memory per served call", 100, _figure("bytes per served call", "bytes"), at_most=True, unit="B"),
)


def judge(figures: Figures, *, judged: bool = True) -> str:
    """A line a target: what is wanted, what was got, and, if it is judged, whether that is enough; unmeasured ones, and shares of no time, are left out."""
    lines = [f"  {'':58} {'target':>10} {'got':>9}"]
    for target in TARGETS:
        try:
            got = target.value(figures)
        except (KeyError, ZeroDivisionError):
            continue
        enough = got <= target.bound if target.at_most else got >= target.bound
        bound = f"{'≤' if target.at_most else '≥'} {target.bound:g} {target.unit}"
        verdict = ("ok" if enough else "short") if judged else ""
        if target.floor is not None:
            verdict += f" (a copy of bytes: {target.floor(figures):.2f})"
        lines.append(f"  {target.what:58} {bound:>10} {got:9.2f}  {verdict}".rstrip())
    return "\n".join(lines)
