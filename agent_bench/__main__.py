"""`make agents`: installs the agents, runs every case in every setup, and writes docs/agents.md.

python -m agent_bench [FOLDER …] [--setup "board, stdio"] [--case repaired] [--at-once 2] [--no-page]
"""

from __future__ import annotations

import argparse
import datetime as dt
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from agent_bench.cases import CASES, Case
from agent_bench.installation import install
from agent_bench.isolation import leave_the_network
from agent_bench.job import ROOT
from agent_bench.page import write_page
from agent_bench.roster import AGENTS, Agent
from agent_bench.runs import Run, run_agent
from agent_bench.setups import SETUPS, Setup

RESULTS = ROOT / ".agents" / "results.pickle"


def main() -> None:
    options = _options()
    agents = [agent for agent in AGENTS if not options.agents or agent.folder in options.agents]
    setups = [setup for setup in SETUPS if not options.setup or setup.name in options.setup]
    started = time.monotonic()
    for agent in agents:
        install(agent)
    installed = time.monotonic() - started
    isolated = leave_the_network()
    if not isolated:
        print("No network namespace here: outside requests are rejected by a proxy only.", file=sys.stderr)
    cases = [case for case in CASES if not options.case or case.name in options.case]
    results = _load() if options.agents or options.setup or options.case else {}
    jobs = [(agent, setup) for setup in setups for agent in agents]
    with ThreadPoolExecutor(options.at_once) as pool:
        for (agent, setup), run in zip(jobs, pool.map(lambda job: _timed(job[0], job[1], cases), jobs), strict=True):
            _merge(results.setdefault((agent.folder, setup.name), Run()), run)
    RESULTS.write_bytes(pickle.dumps(results))
    if not options.no_page:
        today = dt.datetime.now(dt.UTC).date()
        (ROOT / "docs" / "agents.md").write_text(write_page(results, today, isolated=isolated))
    ran = time.monotonic() - started - installed
    print(f"{len(jobs)} runs in {ran:.0f} s, installed in {installed:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m agent_bench")
    parser.add_argument(
        "agents", nargs="*", metavar="FOLDER", help="agents, by their folders in drivers/ (default: all)"
    )
    parser.add_argument("--setup", action="append", help="a setup, such as 'board, stdio' (default: all six)")
    parser.add_argument("--case", action="append", help="a case, by its name in cases.py (default: all)")
    parser.add_argument("--at-once", type=int, default=2, help="how many runs at a time")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/agents.md")
    options = parser.parse_args()
    known = {agent.folder for agent in AGENTS}
    if unknown := set(options.agents) - known:
        parser.error(f"no such agent: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return options


def _load() -> dict[tuple[str, str], Run]:
    """The results of an earlier run of ours, so that one agent can be run again."""
    try:
        kept: dict[tuple[str, str], Run] = pickle.loads(RESULTS.read_bytes())
    except FileNotFoundError:
        return {}
    return kept


def _merge(kept: Run, run: Run) -> None:
    kept.seen |= run.seen
    kept.hosts |= run.hosts
    kept.tools = run.tools


def _timed(agent: Agent, setup: Setup, cases: list[Case]) -> Run:
    started = time.monotonic()
    run = run_agent(agent, setup, cases)
    obstacles = sum(seen.obstacle is not None for seen in run.seen.values())
    took = time.monotonic() - started
    print(f"{agent.name:18} {setup.name:22} {took:5.1f} s  {len(run.seen) - obstacles} cases seen, {obstacles} not")
    return run


if __name__ == "__main__":
    main()
