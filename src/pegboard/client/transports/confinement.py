"""Commands that start a program confined, or within resource limits; `confined_program` does the work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pegboard.config.confinement_keys import ChildResources, Confinement
from pegboard.errors import SetupError

_LAUNCHER: Final = str(Path(__file__).with_name("confined_program.py"))
_PROBE_SECONDS: Final = 15.0
_NOT_LINUX: Final = "confinement needs Linux; remove `confine`, or run the server in a container (docs/confinement.md)"


def limited_command(
    command: Sequence[str],
    cwd: str | Path | None,
    confinement: Confinement | None,
    resources: ChildResources | None,
    *,
    probe: bool = False,
) -> list[str]:
    """The command that starts a program with these limits, or only tries them; SetupError where that is impossible."""
    if confinement is not None and sys.platform != "linux":
        raise SetupError(_NOT_LINUX)
    spec: dict[str, Any] = {
        "resources": msgspec.to_builtins(resources) if resources is not None else {},
        "probe": probe,
    }
    if confinement is not None:
        folder = None if cwd is None else os.path.realpath(cwd)
        visible = () if folder is None else (folder,)
        spec["cwd"] = folder
        spec["confine"] = {
            "read": sorted({os.path.realpath(path) for path in (*confinement.read, *visible)}),
            "write": sorted({os.path.realpath(path) for path in confinement.write}),
            "network": confinement.network,
        }
    # Isolated, and without site-packages: nothing that the program is given can change what happens before it starts.
    return [sys.executable, "-I", "-S", _LAUNCHER, msgspec.json.encode(spec).decode(), *command]


async def find_confinement_problem(
    command: Sequence[str],
    cwd: str | Path | None,
    confinement: Confinement | None,
    resources: ChildResources | None,
    env: Mapping[str, str],
) -> str:
    """Why a program cannot be started with these limits, and what to do; empty if it can."""
    try:
        words = limited_command(command, cwd, confinement, resources, probe=True)
    except SetupError as problem:
        return str(problem)
    process = await asyncio.create_subprocess_exec(
        *words, env=dict(env), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return f"the attempt took longer than {_PROBE_SECONDS:g} s"
    text = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return "" if process.returncode == 0 else text.partition("confined: ")[2] or text or "it failed without a reason"
