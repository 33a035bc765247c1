"""Foreign clients and calls that need an approval: a form for the caller, a page for others."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pegboard import Limits
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.local_user import local_user
from pegboard.stores.store_url import open_store
from tests.peers.judges import HERE, MCP1_PYTHON
from tests.server_processes import ROOT, HttpChild
from tests.waiting import SOON

pytestmark = pytest.mark.peer

BOARD = ROOT / "tests" / "approvals" / "approved_board.py"
CLIENTS = [
    pytest.param(sys.executable, "approving_mcp2.py", "auto", id="python-2-modern"),
    pytest.param(sys.executable, "approving_mcp2.py", "legacy", id="python-2-legacy"),
    pytest.param(str(MCP1_PYTHON), "approving_mcp1.py", "legacy", id="python-1"),
]


async def call(server: HttpChild, python: str, script: str, mode: str, tool: str) -> Any:
    """What a client was asked, and the text of the result."""
    url = f"http://127.0.0.1:{server.port}/mcp"
    process = await asyncio.create_subprocess_exec(
        python, str(HERE / script), url, mode, tool, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    return json.loads(said)


@pytest.mark.parametrize(("python", "script", "mode"), CLIENTS)
async def test_an_official_client_approves_its_own_call_and_waits_for_others(
    tmp_path: Path, python: str, script: str, mode: str
) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    with HttpChild("--store", store, target=BOARD, RAN=str(tmp_path / "ran"), ANYONE="1") as server:
        found = await call(server, python, script, mode, "write_note")
        assert found == {"asked": ["form"], "text": f"wrote old by {server.process.pid}"}
        calling = asyncio.create_task(call(server, python, script, mode, "delete_note"))
        opened = open_store(store, Limits())
        await opened.start()
        try:
            approvals = Approvals("approved", Limits())
            approvals.use_store(opened)
            changed = asyncio.Event()
            end = approvals.watch(changed.set)
            async with asyncio.timeout(SOON):
                while not (waiting := await approvals.open_for(local_user())):
                    await changed.wait()
                    changed.clear()
            end()
            await approvals.decide(waiting[0].id, local_user(), approve=True)
            assert await calling == {"asked": ["url"], "text": f"deleted old by {server.process.pid}"}
        finally:
            await opened.close()
