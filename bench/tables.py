"""Writes the tables and pictures of README and docs from `figures.json`; `--check` only compares them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import growth
import kept_figures
from kept_figures import Run

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

CALLS = {
    "`tools/call`, 2025-11-25": "call 2025-11-25",
    "`tools/call`, 2026-07-28": "call 2026-07-28",
    "`tools/list` of 100 tools": "list of 100",
    "a call with 10 progress events": "10 progress events",
}
KINDS = {"http": "HTTP", "stdio": "stdio"}
STARTS = {
    "an interpreter that imports asyncio": "a bare interpreter with asyncio",
    "`import pegboard`": "import pegboard",
    "`from pegboard import Board`": "from pegboard import Board",
    "`pegboard --help`": "pegboard --help",
    "a server on stdio, until its first response": "stdio child: ours",
}
PEERS = ("ours", "official SDK", "FastMCP", "raw uvicorn")


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = [page for page in PAGES if not _write(page, check=check)]
    for page in stale:
        print(f"{page.relative_to(ROOT)} does not show bench/figures.json: run bench/tables.py", file=sys.stderr)
    return 1 if stale else 0


def _write(page: Path, *, check: bool) -> bool:
    """Whether the page is up to date, after it was written unless it is only checked."""
    text = page.read_text()
    runs = kept_figures.read()
    new = _BLOCK.sub(lambda found: found[1] + MAKERS[found[2]](runs) + found[3], text)
    if not check:
        page.write_text(new)
    return new == text or not check


def _requests(runs: dict[str, Run]) -> str:
    """The table of README: requests per second."""
    run = runs["http"]
    python = run.versions["python"].split(" built")[0]
    heading = f"| {python} | Pegboard | official SDK {_minor(run, 'mcp')} | FastMCP {_minor(run, 'fastmcp')} | uvicorn with no framework |"
    rows = [
        f"| {label} | " + " | ".join(_count(run, f"{workload}: {peer}", "rate") for peer in PEERS) + " |"
        for label, workload in CALLS.items()
    ]
    return "\n".join([heading, "|---|---|---|---|---|", *rows, ""])


def _processor(runs: dict[str, Run]) -> str:
    """The table of docs: CPU µs of a request, with the range of the rounds."""
    run = runs["http"]
    rows = [
        f"| {label} | " + " | ".join(_range(run, f"{workload}: {peer}") for peer in PEERS) + " |"
        for label, workload in CALLS.items()
    ]
    heading = "| CPU µs per request | Pegboard | official SDK | FastMCP | uvicorn with no framework |"
    return "\n".join([heading, "|---|---|---|---|---|", *rows, ""])


def _gateway(runs: dict[str, Run]) -> str:
    """What a hop takes, by the server behind the gateway."""
    figures = runs["gateway"].figures
    rows = []
    for owner, kind, era in product(("our board", "official SDK"), ("http", "stdio"), ("2025-11-25", "2026-07-28")):
        hop = f"hop {kind} {era}, {owner}"
        direct, ours = figures[f"{hop}: direct"], figures[f"{hop}: ours"]
        row = [f"{owner}, {KINDS[kind]}, {era}", f"{direct['p50']:.3f}", f"{ours['p50']:.3f}", f"{ours['ratio']:.1f} ×"]
        if floor := figures.get(f"{hop}: a copy of bytes"):
            cost = figures[f"16 connections, {kind} {era}: ours"]["cpu"]
            row += [f"{floor['ratio']:.1f} ×", f"{cost:.0f}"]
        else:
            row += ["", ""]
        rows.append(f"| {' | '.join(row)} |")
    heading = "| server | direct, p50 ms | through a gateway | against direct | a copy of bytes | CPU µs of a hop |"
    return "\n".join([heading, "|---|---|---|---|---|---|", *rows, ""])


def _megabyte(runs: dict[str, Run]) -> str:
    """What a result of a megabyte takes, in front of our own board."""
    figures = runs["gateway"].figures
    rows = []
    for kind, label in KINDS.items():
        ours, floor = figures[f"a megabyte, {kind}: ours"], figures[f"a megabyte, {kind}: a copy of bytes"]
        rows.append(f"| {label} | {ours['p50']:.2f} | {floor['p50']:.2f} | {ours['ratio']:.1f} × |")
    direct = figures["a megabyte, http: direct"]["p50"]
    heading = f"| a result of 1 MB, {direct:.2f} ms from our own board | through a gateway, p50 ms | through a copy of bytes | ratio |"
    return "\n".join([heading, "|---|---|---|---|", *rows, ""])


def _starts(runs: dict[str, Run]) -> str:
    """How long it takes to start."""
    start, gateway = runs["start"].figures, runs["gateway"].figures
    rows = [
        f"| {label} | {start[f'start {name}']['wall']:.0f} | {start[f'start {name}']['cpu']:.0f} |"
        for label, name in STARTS.items()
    ]
    for count in ("four", "ten"):
        figure = gateway[f"gateway of {count}"]
        listens, listed = figure["listens"] * 1e3, figure["seconds"] * 1e3
        rows.append(f"| `pegboard up` with {count} servers on stdio, until it listens | {listens:.0f} | |")
        rows.append(f"| the same, until all tools are listed | {listed:.0f} | {figure['cpu'] * 1e3:.0f} of its own |")
    return "\n".join(["| start | ms | CPU ms |", "|---|---|---|", *rows, ""])


def _growth(runs: dict[str, Run]) -> str:
    """The table below the plots."""
    figures = runs["growth"].figures
    rows = []
    for each in growth.GROWTHS:
        points = ", ".join(
            f"{size:,}: {cost:.1f}"
            for size, cost in sorted((int(size), cost) for size, cost in figures[each.name].items())
        )
        rows.append(f"| {each.title} | {points} |")
    return "\n".join(["| number of | CPU µs per call |", "|---|---|", *rows, ""])


def _source(runs: dict[str, Run]) -> str:
    """Where and when the figures were taken: a line for the parts that were taken together."""
    together: dict[str, list[str]] = {}
    for part, run in sorted(runs.items()):
        packages = ", ".join(f"{name} {number}" for name, number in sorted(run.versions.items()) if name != "python")
        where = f"{run.date}, {run.machine}, {run.versions['python']}; {packages}"
        together.setdefault(where, []).append(f"{part} {run.noise['lost']:.1%} and {run.noise['spread']:.1%}")
    lines = [
        f"- {where}. What other programs took of a core, and by how much its speed differed: {'; '.join(parts)}."
        for where, parts in together.items()
    ]
    return "\n".join([*lines, ""])


MAKERS: dict[str, Callable[[dict[str, Run]], str]] = {
    "requests": _requests,
    "processor": _processor,
    "gateway": _gateway,
    "megabyte": _megabyte,
    "starts": _starts,
    "growth": _growth,
    "source": _source,
}


def _minor(run: Run, package: str) -> str:
    return ".".join(run.versions[package].split(".")[:2])


def _count(run: Run, name: str, kind: str) -> str:
    value = run.figures[name][kind]
    return f"{float(f'{value:.3g}'):,.0f}"


def _range(run: Run, name: str) -> str:
    figure = run.figures[name]
    return _spread([figure["cpu"], figure["cpu low"], figure["cpu high"]])


def _spread(values: Sequence[float]) -> str:
    middle, low, high = (f"{float(f'{value:.3g}'):,.6g}" for value in values)
    return f"{middle} ({low}–{high})"


if __name__ == "__main__":
    sys.exit(main())
