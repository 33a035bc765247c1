"""Official clients of the older revisions go on in their session when the server was restarted under them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.judges import DEADLINE, HERE, MCP1_PYTHON, NODE, PYTHON
from tests.server_processes import ROOT, HttpChild

pytestmark = pytest.mark.peer

EVERYTHING = ROOT / "examples" / "everything.py"
TYPESCRIPT_1 = (NODE, HERE / "node" / "restart1.mjs")
CLIENTS = {
    "python-1": (MCP1_PYTHON, HERE / "mcp1_restart.py"),
    "python-2-legacy": (PYTHON, HERE / "mcp2_restart.py"),
    "typescript-1": TYPESCRIPT_1,
}


@contextmanager
def started(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # Whatever it waits for, it does not wait longer.
        late = threading.Timer(DEADLINE, process.kill)
        late.start()
        try:
            yield process
        finally:
            late.cancel()
            process.kill()


def live_through(
    program: tuple[Path, Path], board: Path, store: Path, number: int, status: int, *tools: str
) -> dict[str, Any]:
    """Has a client call, ends the server by this signal, starts it again at the same place; what the client tells."""
    flags = ("--store", f"sqlite:{store}")
    with HttpChild(*flags, target=board) as first:
        port = first.port
        with started(*program, f"http://127.0.0.1:{port}/mcp", *tools) as client:
            assert client.stdout is not None
            if client.stdout.readline() != "called\n":
                pytest.fail(f"no call came through: {client.communicate()[1]}")
            first.signal(number)
            assert first.wait() == status
            with HttpChild(*flags, "--port", str(port), target=board):
                out, err = client.communicate("again\n")
            assert client.returncode == 0, err
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def went_on_in_its_session(told: dict[str, Any]) -> bool:
    """One handshake, and every other message under the session that it gave."""
    first, *others = told["posted"]
    methods, sessions = zip(*others, strict=True)
    same = sessions[0] is not None and len(set(sessions)) == 1
    return first == ["initialize", None] and "initialize" not in methods and same


@pytest.mark.parametrize("program", CLIENTS.values(), ids=CLIENTS)
def test_a_client_goes_on_in_its_session_after_a_restart(program: tuple[Path, Path], tmp_path: Path) -> None:
    told = live_through(program, EVERYTHING, tmp_path / "kept.db", signal.SIGTERM, 0, "test_tool_with_progress")

    assert told["texts"] == ["Tool with progress executed successfully"] * 2
    assert went_on_in_its_session(told), told["posted"]


def test_a_call_whose_server_was_killed_ends_with_an_error_when_its_client_comes_back(tmp_path: Path) -> None:
    board = tmp_path / "board.py"
    board.write_text(
        "import asyncio\n"
        "from pegboard import Board, Context\n"
        "board = Board('killed')\n"
        "@board.tool\n"
        "def hello() -> str:\n"
        "    return 'hello'\n"
        "@board.tool\n"
        "async def linger(ctx: Context) -> None:\n"
        "    await ctx.progress(1, 2)\n"
        "    await asyncio.Event().wait()\n"
    )
    told = live_through(TYPESCRIPT_1, board, tmp_path / "kept.db", signal.SIGKILL, -9, "hello", "linger")

    assert told["texts"] == ["hello"] * 2
    assert told["ended"] == -32603
    assert went_on_in_its_session(told), told["posted"]
