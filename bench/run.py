"""Measures Pegboard, its peers and the raw limits in one interleaved run: `make bench`, or `bench/run.py --quick`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import clients
import floods
import growth
import kept_figures
import load
import messages
import observed
import starts
import streams
import workers
from load import Measured, measure, warm_up
from noise import Noise
from pipe import Child, Piped
from processes import HERE, NODE, ROOT, Server
from targets import Figures, judge

import gateway

OURS, MOUNTED, RAW, NODE_RAW = "ours", "ours under uvicorn", "raw uvicorn", "raw node"
OFFICIAL, FASTMCP, TYPESCRIPT = "official SDK", "FastMCP", "TypeScript SDK"
STREAMS = 1000
SCRIPTS = {
    OURS: ("board.py", "http"),
    MOUNTED: ("board.py", "asgi"),
    RAW: ("raw_asgi.py", "http"),
    NODE_RAW: ("raw_http.mjs", "http"),
    OFFICIAL: ("official_sdk.py", "http"),
    FASTMCP: ("fastmcp_board.py", "http"),
}
FEW, MANY, VERY_MANY = 2, 100, 1000
SESSIONS = 16
WARM_SECONDS = 0.4
# The noise of the machine during each part; the last one belongs to the part that is being measured.
NOISE: list[Noise] = []


@dataclass(frozen=True)
class Workload:
    """One kind of request, and the servers it is sent to: each by name and number of tools."""

    name: str
    requests: Callable[[Server], list[bytes]]
    servers: tuple[tuple[str, int], ...]


def _few(*names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, FEW) for name in names)


def _many(*names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, MANY) for name in names)


WORKLOADS = (
    Workload(
        "call 2025-11-25",
        lambda server: messages.legacy_posts(server.port, *messages.ADD, server.open_session()),
        (*_few(OURS, RAW, NODE_RAW, MOUNTED, OFFICIAL, FASTMCP), (OURS, VERY_MANY)),
    ),
    Workload(
        "call 2026-07-28",
        lambda server: messages.modern_posts(server.port, *messages.ADD),
        (*_few(OURS, RAW, NODE_RAW, MOUNTED, OFFICIAL, FASTMCP), (OURS, VERY_MANY), *_many(OFFICIAL, FASTMCP)),
    ),
    Workload(
        "call 2025-11-25, 16 sessions mixed",
        lambda server: messages.mixed_posts(
            server.port, *messages.ADD, [server.open_session() for _ in range(SESSIONS)]
        ),
        _few(OURS, RAW, MOUNTED),
    ),
    Workload(
        "list of 100",
        lambda server: messages.modern_posts(server.port, *messages.LIST),
        _many(OURS, RAW, OFFICIAL, FASTMCP),
    ),
    Workload(
        "10 progress events",
        lambda server: messages.modern_posts(server.port, *messages.STEPS, token=True),
        _few(OURS, RAW, MOUNTED, OFFICIAL, FASTMCP),
    ),
)
PIPED = {OURS: "board.py", TYPESCRIPT: "typescript_sdk.mjs", OFFICIAL: "official_sdk.py"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes instead of twenty")
    parser.add_argument("--rounds", type=int, help="how often each measurement is repeated (its median counts)")
    parser.add_argument("--seconds", type=float, help="how long each measurement takes")
    parser.add_argument(
        "--only",
        default="",
        help="only these parts, with commas between: http, stdio, client, inside, start, memory, workers, gateway, observed, floods",
    )
    parser.add_argument("--alone", action="store_true", help="leave the SDKs out of the http part")
    parser.add_argument("--ours", default=sys.executable, help="the Python that runs Pegboard and the raw application")
    parser.add_argument(
        "--plots", action="store_true", help="measure how the cost of a call grows, and draw docs/images/growth.svg"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write bench/figures.json, from which bench/tables.py makes the tables of the docs",
    )
    chosen = parser.parse_args()
    # Whoever ends this run, by `timeout` for one, ends its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell in which Python writes no bytecode would have every start compile all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rounds = chosen.rounds or (1 if chosen.quick else 6)
    seconds = chosen.seconds or (1.0 if chosen.quick else 2.0)
    figures = Figures()
    machine = _machine(chosen.ours)
    print(machine, flush=True)
    parts: dict[str, Callable[[Figures], None]] = {
        "http": lambda found: _measure_http(found, rounds, seconds, chosen.ours, alone=chosen.alone),
        "stdio": lambda found: _measure_stdio(found, rounds, seconds / 2, chosen.ours),
        "client": lambda found: _measure_clients(found, max(1, rounds // 2), chosen.ours),
        "inside": lambda found: _measure_inside(found, rounds, seconds / 2, chosen.ours),
        "start": lambda found: _measure_starts(found, 3 if chosen.quick else 9, chosen.ours),
        "memory": lambda found: _measure_memory(found, 200 if chosen.quick else 2000, chosen.ours),
        "workers": lambda found: _measure_workers(found, rounds, chosen.ours, 12_000 if chosen.quick else 100_000),
        "gateway": lambda found: gateway.measure_all(found, max(1, rounds // 2), seconds, chosen.ours),
        "observed": lambda found: _measure_observed(found, 2 if chosen.quick else observed.PROCESSES, chosen.ours),
        "floods": lambda found: _measure_floods(found, chosen.quick, chosen.ours),
    }
    if chosen.plots:
        parts = {"growth": lambda found: _measure_growth(found, max(1, rounds // 2), seconds / 2, chosen.ours)}
    began = time.monotonic()
    runs: dict[str, kept_figures.Run] = {}
    wanted = chosen.only.split(",") if chosen.only else list(parts)
    if unknown := set(wanted) - set(parts):
        parser.error(f"--only {','.join(sorted(unknown))}: the parts are {', '.join(parts)}")
    for name in wanted:
        found, noise = Figures(), Noise()
        NOISE.append(noise)
        noise.sample()
        parts[name](found)
        noise.sample()
        figures |= found
        runs[name] = kept_figures.Run(
            date=time.strftime("%Y-%m-%d"),
            machine=f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
            versions=kept_figures.versions(_build(chosen.ours), _node()),
            noise=noise.figures,
            figures=found,
        )
    print(f"\nTargets (ratios of medians within this run, which took {time.monotonic() - began:.0f} s)")
    print(
        "CPU is the µs a request of the side that is measured: the steady figure. The rate depends on what else runs."
    )
    noisy = {name: noise for name, noise in zip(wanted, NOISE, strict=True) if noise.noisy}
    print(judge(figures, judged=not noisy))
    for name, noise in noisy.items():
        print(f"{name}: {noise}. Not judged: run it again on an idle machine.")
    if chosen.quick:
        print("A quick run, one process of each: expect two of the same server to differ by a third.")
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "latest.json").write_text(json.dumps({name: vars(run) for name, run in runs.items()}, indent=1))
    if chosen.keep and noisy:
        sys.exit("The figures were not kept: the machine was too noisy.")
    if chosen.keep:
        kept_figures.keep(runs)


def _node() -> str:
    return subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _machine(python: str) -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {_build(python)}, Node {_node()}, "
        f"load average {os.getloadavg()[0]:.1f}; load by {load.generator()}, {load.CONNECTIONS} connections on loopback"
    )


def _build(python: str) -> str:
    """Which Python it is, and whether it was built to be fast, as those of most distributions are."""
    ask = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_config_var('CONFIG_ARGS') or '')"
    version, _, options = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=True
    ).stdout.partition(" ")
    tuned = "with" if "--enable-optimizations" in options else "without"
    return f"Python {version} built {tuned} --enable-optimizations"


def _python_of(name: str, ours: str) -> str:
    """Peers need their own packages, which only the development environment has."""
    return ours if name in (OURS, RAW) else sys.executable


def _measure_http(figures: Figures, rounds: int, seconds: float, ours: str, *, alone: bool) -> None:
    left_out = (OFFICIAL, FASTMCP) if alone else ()
    places = sorted({place for workload in WORKLOADS for place in workload.servers if place[0] not in left_out})
    measured: dict[tuple[str, str, int], list[Measured]] = defaultdict(list)
    for number in _rounds("HTTP", rounds):
        # Back and forth, so that nobody always follows the same neighbour.
        for name, tools in places if number % 2 else reversed(places):
            far = name in (OFFICIAL, FASTMCP)
            if far and number % 2:
                continue
            with Server(*SCRIPTS[name], tools, _python_of(name, ours)) as server:
                server.wait()
                for workload in WORKLOADS:
                    if (name, tools) in workload.servers:
                        requests = _prepare(workload, server)
                        warm_up(server, requests, min(seconds, WARM_SECONDS))
                        found = measure(server, requests, min(seconds, 1.0) if far else seconds)
                        measured[workload.name, name, tools].append(found)
    _tell_http(figures, measured)


def _prepare(workload: Workload, server: Server) -> list[bytes]:
    requests = workload.requests(server)
    _, answer = server.ask(requests[0])
    result = answer.get("result", {})
    wanted = MANY if "list" in workload.name else 1
    if len(result.get("tools" if "list" in workload.name else "content", [])) != wanted or result.get("isError"):
        raise RuntimeError(f"{workload.name}: {server.name} answered {str(answer)[:500]}")
    return requests


def _tell_http(figures: Figures, measured: dict[tuple[str, str, int], list[Measured]]) -> None:
    for workload in WORKLOADS:
        print(f"\n{workload.name:28} {'requests/s':>26} {'CPU µs a request':>24} {'p50 µs':>8}")
        for name, tools in workload.servers:
            found = measured.get((workload.name, name, tools))
            if found is None:
                continue
            label = name if tools == FEW or "list" in workload.name else f"{name}, {tools} tools"
            figure: dict[str, float] = {}
            figures[f"{workload.name}: {label}"] = figure
            rate = _note(figure, "rate", [one.rate for one in found], 0)
            cpu = _note(figure, "cpu", [one.cpu_us for one in found], 1)
            print(f"  {label:26} {rate:>26} {cpu:>24} {median(one.p50_us for one in found):8,.0f}")
    calls = [one for key, found in measured.items() if key[1:] == (OURS, FEW) for one in found]
    figures["bytes per served call"] = {
        "bytes": max(0, sum(one.grown for one in calls)) / sum(one.requests for one in calls)
    }


def _note(figure: dict[str, float], kind: str, values: list[float], digits: int) -> str:
    """Keep the median of the rounds and how far they lie apart; the words for it."""
    figure[kind], low, high = median(values), min(values), max(values)
    figure[f"{kind} low"], figure[f"{kind} high"] = low, high
    return f"{figure[kind]:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def _measure_stdio(figures: Figures, rounds: int, seconds: float, ours: str) -> None:
    measured: dict[tuple[str, int], list[Piped]] = defaultdict(list)
    for _ in _rounds("stdio", rounds):
        for name, script in PIPED.items():
            with Child(script, _python_of(name, ours)) as child:
                child.check()
                child.measure(64, WARM_SECONDS)
                for in_flight in (1, 64):
                    measured[name, in_flight].append(child.measure(in_flight, seconds))
    for in_flight in (1, 64):
        print(f"\n{f'stdio, {in_flight} in flight':28} {'round trips/s':>26} {'CPU µs a request':>24}")
        for name in PIPED:
            found = measured[name, in_flight]
            figure: dict[str, float] = {}
            figures[f"stdio {in_flight}: {name}"] = figure
            rate = _note(figure, "rate", [one.rate for one in found], 0)
            print(f"  {name:26} {rate:>26} {_note(figure, 'cpu', [one.cpu_us for one in found], 1):>24}")


def _measure_clients(figures: Figures, rounds: int, ours: str) -> None:
    measured: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in _rounds("clients", rounds):
        for key, found in clients.measure(ours):
            measured[key].append(found)
    for (version, in_flight, name), told in sorted(measured.items(), key=lambda one: one[0][:2], reverse=True):
        workload = f"client {version}, {in_flight} in flight"
        if name == OURS:
            print(f"\n{workload:28} {'calls/s':>26} {'CPU µs a call':>24}")
        figure: dict[str, float] = {}
        figures[f"{workload}: {name}"] = figure
        rate = _note(figure, "rate", [one[0] for one in told], 0)
        print(f"  {name:26} {rate:>26} {_note(figure, 'cpu', [one[1] for one in told], 1):>24}")


def _measure_inside(figures: Figures, rounds: int, seconds: float, ours: str) -> None:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in _rounds("in process", rounds):
        for name in ("ours", "official", "fastmcp"):
            words = [ours if name == "ours" else sys.executable, str(HERE / "inside.py"), name, str(seconds)]
            done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
            found[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    print("\nin process                       CPU µs a call")
    for name, told in found.items():
        for kind in told[0]:
            cost = median(one[kind] for one in told)
            figures[f"in process {kind}: {name}"] = {"cpu": cost}
            print(f"  {name + ('' if kind == 'call' else ', ' + kind):28} {cost:12,.1f}")


def _measure_starts(figures: Figures, rounds: int, ours: str) -> None:
    found: dict[str, list[starts.Start]] = defaultdict(list)
    for _ in _rounds("starts", rounds):
        for name, words in starts.commands(ours).items():
            found[name].append(starts.run(words))
        for name, script in PIPED.items():
            found[f"stdio child: {name}"].append(starts.answer(script, _python_of(name, ours)))
    print("\nstart                            wall ms   CPU ms   resident MB")
    for name, told in found.items():
        wall, cpu = median(one.wall for one in told) * 1e3, median(one.cpu for one in told) * 1e3
        figures[f"start {name}"] = {"wall": wall, "cpu": cpu}
        held = [one.resident for one in told if one.resident is not None]
        if held:
            figures[f"start {name}"]["resident"] = median(held) / 1e6
        print(f"  {name:30} {wall:8,.0f} {cpu:8,.0f}" + (f" {median(held) / 1e6:13,.1f}" if held else ""))


def _measure_memory(figures: Figures, sessions: int, ours: str) -> None:
    print("\nmemory per session                    kB")
    for name, count in ((OURS, sessions), (OFFICIAL, sessions // 10), (FASTMCP, sessions // 10)):
        with Server(*SCRIPTS[name], FEW, _python_of(name, ours)) as server:
            server.wait()
            for _ in range(20):
                server.open_session()
            before = server.memory()
            for _ in range(count):
                server.open_session()
            held = (server.memory() - before) / count / 1000
        figures[f"kB per session: {name}"] = {"kB": held}
        print(f"  {name:28} {held:12,.2f}")
    print("\nmemory per open stream                kB")
    for what, held in streams.measure(STREAMS, ours).items():
        figures[f"kB per stream: {what}"] = {"kB": held}
        print(f"  {what:28} {held:12,.2f}")


def _measure_workers(figures: Figures, rounds: int, ours: str, sessions: int) -> None:
    print(f"\n{'call 2025-11-25, sessions':28} {'requests/s':>26} {'CPU µs a request':>24}")
    for what, figure in workers.measure_calls(rounds, ours).items():
        figures[f"workers: {what}"] = figure
        print(f"  {what:26} {figure['rate']:26,.0f} {figure['cpu']:24.1f}")
    for door in ("http", "kept"):
        held = workers.measure_abandoned(sessions, door, ours)
        figures[f"abandoned sessions: {workers.DOORS[door]}"] = {"MB": held}
        print(f"  {sessions:,} abandoned sessions, {workers.DOORS[door]}: {held:.1f} MB")


def _measure_observed(figures: Figures, processes: int, ours: str) -> None:
    found = observed.measure(processes, observed.ROUNDS, ours)
    observed.tell(found)
    for way, ratios in found.items():
        figures[f"observed: {way}"] = {"cpu" if way == "bare" else "ratio": median(ratios)}


def _measure_growth(figures: Figures, rounds: int, seconds: float, ours: str) -> None:
    figures |= growth.measure_all(rounds, seconds, ours, on_round=NOISE[-1].sample)
    print(growth.report(figures))
    growth.write_picture(figures)


def _measure_floods(figures: Figures, quick: bool, ours: str) -> None:
    print(f"\n{floods.HEADING}")
    floods.allow_files()
    measured: list[floods.Figures] = []
    for flood in floods.FLOODS:
        size, seconds = (flood.small, 1.5) if quick else (flood.large, 8.0)
        measured.append(floods.measure(flood, size, seconds, ours))
        print(floods.tell(measured[-1]), flush=True)
    figures["floods"] = {
        "p99": max(one.p99 for one in measured),
        "peak": max(one.peak for one in measured),
        "kept": max(one.kept for one in measured),
        "wrong": float(sum(len(one.wrong) for one in measured)),
    }


def _rounds(what: str, count: int) -> Iterator[int]:
    """Count the rounds, and tell somebody who waits how far we are."""
    for number in range(count):
        print(f"{what}: round {number + 1} of {count}", file=sys.stderr, flush=True)
        NOISE[-1].sample()
        yield number


if __name__ == "__main__":
    main()
