"""Runs an agent through all cases in one setup, and starts it again after a case that it did not survive."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_bench.cases import CASES, Case
from agent_bench.isolation import RejectingProxy, private_variables
from agent_bench.job import ROOT, Job
from agent_bench.listing import describe_listing
from agent_bench.model_server.conversation import ListedTool
from agent_bench.model_server.scripted_server import ScriptedServer
from agent_bench.play import Play, Seen
from agent_bench.roster import Agent
from agent_bench.setups import Setup

PROMPT = "Use the tools of the bench."
RUN_WITHIN = 300.0
# An agent that ends with a case is started again for the others.
STARTS = 10


@dataclass
class Run:
    """What the model saw in one setup, by the name of the case, and the hosts that the agent tried to reach."""

    seen: dict[str, Seen] = field(default_factory=dict)
    tools: str = ""
    hosts: set[str] = field(default_factory=set)


def run_agent(agent: Agent, setup: Setup, cases: Sequence[Case] = CASES) -> Run:
    run = Run()
    listed: tuple[ListedTool, ...] = ()
    for _ in range(STARTS):
        left = [case for case in cases if case.name not in run.seen and setup.can_show(case)]
        if not left:
            break
        play = Play(left)
        words = _start(agent, setup, play, run)
        listed = listed or play.tools
        run.seen |= play.seen
        if play.waiting is not None:
            run.seen[play.waiting.name] = Seen(obstacle=f"the agent ended: {words}")
        elif len(play.seen) < len(left):
            # It never asked the model, or not with our tools.
            run.seen |= {case.name: Seen(obstacle=f"no call: {words}") for case in left if case.name not in play.seen}
    run.tools = describe_listing(listed)
    return run


def _start(agent: Agent, setup: Setup, play: Play, run: Run) -> str:
    """Run the agent once; the words that it ended with."""
    with tempfile.TemporaryDirectory(prefix="agent-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "work").mkdir()
        proxy, model = RejectingProxy(), ScriptedServer(play)
        with proxy.running(), model.running(), setup.serving_to(home) as (command, url):
            job = Job(model.url, command, url, folder, PROMPT)
            variables = private_variables(home, proxy.url)
            if agent.own == "command":
                variables["PYTHONPATH"] = str(ROOT)
            output = home / "output.txt"
            code = _run(_program(agent), job, variables, output)
        run.hosts |= proxy.hosts
        return _last_words(output.read_text(errors="replace"), code, home)


def _program(agent: Agent) -> list[str]:
    match agent.own:
        case "command":
            return [sys.executable, str(agent.home / "driver.py")]
        case "python":
            return [str(agent.environment / "bin" / "python"), str(agent.home / "driver.py")]
        case _:
            return [str(ROOT / ".peers" / "bin" / "node"), str(agent.home / "driver.mjs")]


def _run(program: list[str], job: Job, variables: dict[str, str], output: Path) -> int | None:
    with output.open("w") as log:
        process = subprocess.Popen(
            [*program, str(job.save())],
            cwd=Path(job.home) / "work",
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(RUN_WITHIN)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also what the agent left running, such as a server that it started.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def _last_words(output: str, code: int | None, home: Path) -> str:
    if code is None:
        return f"no end within {RUN_WITHIN:g} s"
    lines = [line.strip(" |+-") for line in output.splitlines()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    word = (errors or [line for line in lines if line] or [""])[-1]
    return f"exit code {code}. {word}".strip()
