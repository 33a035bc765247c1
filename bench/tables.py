"""Writes the tables and pictures of README and docs from `figures.json`; `--check` only compares them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
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
