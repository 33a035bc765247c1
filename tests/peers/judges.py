"""The foreign clients that judge our servers, as data, and the way to ask them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NODE = ROOT / ".peers" / "bin" / "node"
PYTHON = ROOT / ".venv" / "bin" / "python"
MCP1_PYTHON = ROOT / ".peers" / "mcp1" / "bin" / "python"
DEADLINE = 300.0
"""Only for a judge that hangs: a busy machine may need minutes."""

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


class NoVerdict(AssertionError):
    """A judge is missing, took too long, or could not finish; the message holds all it said."""


@dataclass(frozen=True)
class Judge:
    name: str
    program: tuple[Path, ...]
    mode: str
    # The revision this client and a server of both eras must agree on.
    protocol: str
    transports: frozenset[str] = frozenset({"http", "stdio"})

    def __str__(self) -> str:
        return self.name


SSE = frozenset({"sse"})


def _python(name: str, script: str, mode: str, protocol: str, *, python: Path = PYTHON, **options: Any) -> Judge:
    return Judge(name, (python, HERE / script), mode, protocol, **options)


def _node(name: str, script: str, mode: str, protocol: str, **options: Any) -> Judge:
    return Judge(name, (NODE, HERE / "node" / script), mode, protocol, **options)


JUDGES = (
    _python("python-2-auto", "mcp2_client.py", "auto", MODERN),
    _python("python-2-legacy", "mcp2_client.py", "legacy", LEGACY),
    _python("python-1", "mcp1_client.py", "legacy", LEGACY, python=MCP1_PYTHON),
    _python("python-1-sse", "mcp1_client.py", "sse", LEGACY, python=MCP1_PYTHON, transports=SSE),
    _python("fastmcp-auto", "fastmcp_client.py", "auto", MODERN),
    _python("fastmcp-legacy", "fastmcp_client.py", "legacy", LEGACY),
    _node("typescript-2-auto", "client2.mjs", "auto", MODERN),
    _node("typescript-2-modern", "client2.mjs", "modern", MODERN),
    _node("typescript-2-legacy", "client2.mjs", "legacy", LEGACY),
    _node("typescript-1", "sdk1.mjs", "legacy", LEGACY),
    _node("typescript-1-sse", "sdk1.mjs", "sse", LEGACY, transports=SSE),
    _node("inspector-modern", "inspector.mjs", "modern", MODERN),
    _node("inspector-legacy", "inspector.mjs", "legacy", LEGACY),
)


@dataclass(frozen=True)
class Question:
    """Connect to a target (a URL, or the command of a stdio server), list the tools and call one."""

    judge: Judge
    target: str | Sequence[str | Path]
    tool: str
    arguments: Mapping[str, Any]


def ask(*questions: Question, deadline: float = DEADLINE) -> list[dict[str, Any]]:
    """Ask judges of the same program, in one process; each question may take `deadline` seconds.

    It blocks; a test that serves in its own event loop calls it with `asyncio.to_thread`.
    """
    (program,) = {question.judge.program for question in questions}
    _require(program)
    command = [*map(str, program), json.dumps([_as_json(question) for question in questions])]
    # A home of its own: a person's settings must neither decide a verdict nor be written to.
    with tempfile.TemporaryDirectory(prefix="judge-") as home:
        status, out, err = _run(command, {**os.environ, "HOME": home}, deadline * len(questions))
    if status != 0:
        ended = f"did not finish within {deadline:g} s each" if status is None else f"ended with status {status}"
        names = ", ".join(dict.fromkeys(str(question.judge) for question in questions))
        raise NoVerdict(f"{names} {ended}\n$ {' '.join(command)}\n--- stdout\n{out}\n--- stderr\n{err}")
    verdicts = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(verdicts) == len(questions), out
    return verdicts


def _as_json(question: Question) -> dict[str, Any]:
    target = question.target
    where = {"url": target} if isinstance(target, str) else {"command": list(map(str, target))}
    return {"mode": question.judge.mode, "tool": question.tool, "arguments": question.arguments, **where}


def _require(paths: Iterable[Path]) -> None:
    missing = [path for path in paths if not path.exists()]
    # npm's packages are installed as a whole, so the folder stands for all of them.
    if any(path.suffix == ".mjs" for path in paths) and not (HERE / "node" / "node_modules").is_dir():
        missing.append(HERE / "node" / "node_modules")
    if missing:
        names = ", ".join(str(path.relative_to(ROOT) if ROOT in path.parents else path) for path in missing)
        raise NoVerdict(f"this peer is not installed ({names} is missing): run `make setup`")


def _run(command: Sequence[str], env: Mapping[str, str], deadline: float) -> tuple[int | None, str, str]:
    # A group of its own, so that a judge that hangs takes the stdio server it started along.
    with subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return None, out, err
    return process.returncode, out, err
