"""How the cost of a call grows with the size of the server: `growth.py [ROUNDS] [SECONDS]`, or `run.py --plots`.

For each size a server is started, filled and sent calls by 16 connections. Sizes take turns in each round, so that other programs
disturb all alike. The figure is the CPU time of the server per call, and per event or hook where a call has several.
"""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import messages
import streams
from load import Measured, measure, warm_up
from plot import Panel, draw
from processes import ROOT, Listening, Server
from routes import Downstream, our_config, our_entry, our_gateway, wait_until_listed

TOOLS = 2
PICTURE = ROOT / "docs" / "images" / "growth.svg"


@dataclass(frozen=True)
class Growth:
    """One thing of which a server may have many."""

    name: str
    title: str
    sizes: tuple[int, ...]
    serve: Callable[[int, str], contextlib.AbstractContextManager[tuple[Listening, list[bytes]]]]
    for_each: bool = False
    """Whether the cost of a call is shared among so many: it has as many events, or as many hooks."""


@contextlib.contextmanager
def _tools(count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    with _started(Server("board.py", "http", count, python)) as server:
        yield server, messages.modern_posts(server.port, *messages.ADD)


@contextlib.contextmanager
def _sessions(count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    """Calls of all sessions in turn."""
    with _started(Server("board.py", "http", TOOLS, python)) as server:
        sessions = [server.open_session() for _ in range(count)]
        yield server, messages.legacy_posts(server.port, *messages.ADD, *sessions)


@contextlib.contextmanager
def _streams(count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    streams.allow_files(count + 100)
    with _started(Server("board.py", "http", TOOLS, python)) as server, contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(streams.open_stream(server, streams.listen(server)))
        yield server, messages.modern_posts(server.port, *messages.ADD)


@contextlib.contextmanager
def _events(count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    """A call that sends so many events on a stream."""
    with _started(Server("board.py", "http", TOOLS, python)) as server:
        steps = ("tools/call", {"name": "steps", "arguments": {"count": count}})
        yield server, messages.modern_posts(server.port, *steps, token=True)


@contextlib.contextmanager
def _growing(kind: str, count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    with _started(Server("growing.py", kind, count, python)) as server:
        yield server, messages.modern_posts(server.port, *messages.ADD)


@contextlib.contextmanager
def _servers(count: int, python: str) -> Iterator[tuple[Listening, list[bytes]]]:
    """So many entries of a gateway's file; all name one board, which is not measured."""
    with _started(Server("board.py", "http", TOOLS, python)) as board:
        entry = our_entry(Downstream("board.py", "http", board.port), messages.MODERN, python)
        config = our_config({f"server-{number}": entry for number in range(count)})
        with _started(our_gateway(config, python)) as gateway:
            wait_until_listed(gateway, count * TOOLS)
            add = {"name": "bench__server-0__add", "arguments": {"a": 2, "b": 3}}
            yield gateway, messages.modern_posts(gateway.port, "tools/call", add)


@contextlib.contextmanager
def _started(server: Listening) -> Iterator[Listening]:
    with server:
        server.wait()
        yield server


GROWTHS = (
    Growth("tools", "tools on the board", (10, 100, 1_000, 10_000), _tools),
    Growth("sessions", "sessions of 2025-11-25, all calling", (1, 10, 100, 1_000), _sessions),
    Growth("streams", "open streams", (1, 10, 100, 1_000), _streams),
    Growth("events", "events in a call, µs each", (10, 100, 1_000), _events, for_each=True),
    Growth("hooks", "hooks, µs each", (4, 16, 64), lambda count, python: _growing("hooks", count, python), True),
    Growth("rules", "rules", (1, 10, 100, 1_000), lambda count, python: _growing("rules", count, python)),
    Growth("servers", "servers behind a gateway", (1, 10, 100), _servers),
)


def measure_all(
    rounds: int, seconds: float, python: str, on_round: Callable[[], None] = lambda: None
) -> dict[str, dict[str, float]]:
    """CPU µs of a call by size, for each growth."""
    taken: dict[str, dict[int, list[float]]] = {growth.name: defaultdict(list) for growth in GROWTHS}
    for number in range(rounds):
        for growth in GROWTHS:
            on_round()
            print(f"growth, {growth.name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for size in growth.sizes if number % 2 else reversed(growth.sizes):
                with growth.serve(size, python) as (server, requests):
                    taken[growth.name][size].append(_load(server, requests, seconds).cpu_us)
    return {
        growth.name: {
            str(size): median(taken[growth.name][size]) / (size if growth.for_each else 1) for size in growth.sizes
        }
        for growth in GROWTHS
    }


def _load(server: Listening, requests: list[bytes], seconds: float) -> Measured:
    server.ask(requests[0])
    warm_up(server, requests, min(seconds, 0.4))
    return measure(server, requests, seconds)


def report(figures: dict[str, dict[str, float]]) -> str:
    """A line for each growth."""
    lines = ["CPU µs of a call by size"]
    for growth in GROWTHS:
        points = "   ".join(f"{int(size):,}: {cost:.1f}" for size, cost in figures[growth.name].items())
        lines.append(f"  {growth.title:36} {points}")
    return "\n".join(lines)


def write_picture(figures: dict[str, dict[str, float]]) -> None:
    """Draw all growths into docs/images/."""
    panels = [
        Panel(growth.title, [(int(size), cost) for size, cost in figures[growth.name].items()]) for growth in GROWTHS
    ]
    PICTURE.write_text(draw("CPU time of one call, in µs", panels))


if __name__ == "__main__":
    found = measure_all(
        int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0, sys.executable
    )
    print(report(found))
