"""Reports what confines the child processes of a gateway."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from pegboard.client.transports.child_process import child_environment
from pegboard.client.transports.confinement import find_confinement_problem
from pegboard.config.confinement_keys import ChildResources, Confinement
from pegboard.config.gateway_config import GatewayConfig, ServerConfig

CheckState: TypeAlias = Literal["ok", "open", "failed"]
"""Confined as configured; not confined, as configured; not started, because it cannot be confined."""


class ConfinementCheck(Struct, frozen=True):
    """What one server gets; an empty `server` is the system itself. `fix` is what the operator can do."""

    server: str
    state: CheckState
    text: str
    fix: str = ""


async def check_confinement(config: GatewayConfig, environ: Mapping[str, str] | None = None) -> list[ConfinementCheck]:
    """What the system offers, and what each child process of a gateway gets."""
    environ = os.environ if environ is None else environ
    children = [
        (f"{toolbox.name}/{server.name}", server)
        for toolbox in config.toolboxes.values()
        for server in toolbox.servers.values()
        if server.enabled and server.kind == "stdio"
    ]
    return [await _check_system(), *[await _check_server(name, server, environ) for name, server in children]]


async def _check_system() -> ConfinementCheck:
    problem = await find_confinement_problem((), None, Confinement(), None, os.environ)
    if problem:
        reason, _, fix = problem.partition("; ")
        return ConfinementCheck("", "failed", f"servers cannot be confined on this system: {reason}", fix)
    return ConfinementCheck("", "ok", "servers can be confined on this system")


async def _check_server(name: str, server: ServerConfig, environ: Mapping[str, str]) -> ConfinementCheck:
    if server.confine is None and server.resources is None:
        fix = 'add "confine": {"write": […]} to the server, or run it in a container (docs/confinement.md)'
        return ConfinementCheck(name, "open", "runs with all rights of the user who starts the gateway", fix)
    env = child_environment(server.child_env(environ))
    program = shutil.which(server.command[0], path=env.get("PATH")) or server.command[0]
    problem = await find_confinement_problem((program,), server.cwd, server.confine, server.resources, env)
    if problem:
        reason, _, fix = problem.partition("; ")
        return ConfinementCheck(name, "failed", f"is not started, because it cannot be confined: {reason}", fix)
    return ConfinementCheck(name, "ok" if server.confine is not None else "open", _describe(server))


def _describe(server: ServerConfig) -> str:
    parts = [] if server.confine is None else [_describe_confinement(server.confine)]
    if server.resources is not None:
        parts.append(_describe_resources(server.resources))
    return "; ".join(parts)


def _describe_confinement(confinement: Confinement) -> str:
    read = f"reads {', '.join(confinement.read)} and the system" if confinement.read else "reads the system"
    write = f"writes {', '.join(confinement.write)}" if confinement.write else "writes nothing that stays"
    return f"{read}, {write}, {'uses' if confinement.network else 'has no'} network"


def _describe_resources(resources: ChildResources) -> str:
    amounts = {
        "memory": resources.memory,
        "processes": resources.processes,
        "CPU seconds": resources.cpu_seconds,
        "open files": resources.open_files,
    }
    return "limits: " + ", ".join(f"{amount:,} {name}" for name, amount in amounts.items() if amount is not None)
