"""Installs the pinned packages of each agent into an environment of its own."""

from __future__ import annotations

import sys

from agent_bench.job import ROOT
from agent_bench.roster import Agent

sys.path.insert(0, str(ROOT / "scripts"))

import environments
import interpreters
import node


def install(agent: Agent) -> None:
    """Install what the agent needs, unless it is up to date."""
    if agent.is_npm:
        folder = agent.home
        stamp = environments.digest(folder / "package.json", folder / "package-lock.json")
        if not environments.is_current(folder / "node_modules", stamp):
            node.install_packages(folder)
            environments.mark_current(folder / "node_modules", stamp)
        return
    pins = agent.home / "pins.txt"
    stamp = environments.recipe(pins)
    if not environments.is_current(agent.environment, stamp):
        newest, _ = interpreters.newest_and_oldest()
        environments.build(agent.environment, newest, stamp, ["--requirements", pins])
