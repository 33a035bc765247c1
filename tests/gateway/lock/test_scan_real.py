"""Real servers, and our own examples, are read without a finding: a rule that cries wolf is switched off."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client
from pegboard.demo import clock, desk, notes
from pegboard.gateway.lock.definition_scan import Finding, find_shadows, scan_definition, scan_text
from pegboard.loading import load_board
from pegboard.tools.qualified_names import ToolName
from tests.peers.judges import HERE, MCP1_PYTHON, NODE, PYTHON, ROOT, NoVerdict

PACKAGES = HERE / "node" / "node_modules" / "@modelcontextprotocol"

SERVERS: dict[str, Sequence[str | Path]] = {
    "everything": (NODE, PACKAGES / "server-everything" / "dist" / "index.js", "stdio"),
    "memory": (NODE, PACKAGES / "server-memory" / "dist" / "index.js"),
    "filesystem": (NODE, PACKAGES / "server-filesystem" / "dist" / "index.js", HERE),
    "time": (MCP1_PYTHON, "-m", "mcp_server_time"),
    "git": (MCP1_PYTHON, "-m", "mcp_server_git"),
    "fastmcp": (PYTHON, HERE / "fastmcp_server.py", "stdio"),
    "mcp1": (MCP1_PYTHON, HERE / "mcp1_server.py", "stdio"),
    "mcp2": (PYTHON, HERE / "mcp2_server.py", "stdio"),
}
LEAST = {"everything": 10, "memory": 9, "filesystem": 10, "time": 2, "git": 10}


async def definitions(client: Client) -> tuple[list[Any], list[Any], str]:
    """The tools of a server, all else that it lists, and what it says of itself."""
    async with client:
        about = await client.discover()
        offered = about.get("capabilities", {})
        tools: list[Any] = await client.list_tools() if "tools" in offered else []
        others: list[Any] = await client.list_prompts() if "prompts" in offered else []
        others = [*others, *(await client.list_resources() if "resources" in offered else [])]
        return tools, others, str(about.get("instructions") or "")


def findings(listed: tuple[list[dict[str, Any]], list[dict[str, Any]], str]) -> list[str]:
    tools, others, instructions = listed
    found: list[Finding] = [finding for one in (*tools, *others) for finding in scan_definition(one)]
    return [str(finding) for finding in (*found, *scan_text(instructions, "instructions"))]


@pytest.mark.peer
async def test_real_servers_are_read_without_a_finding_alone_and_side_by_side() -> None:
    if missing := [
        str(part) for command in SERVERS.values() for part in command if isinstance(part, Path) and not part.exists()
    ]:
        raise NoVerdict(f"{', '.join(missing)}: not installed, run `make setup`")
    # Two at a time: each takes a second of a core to start.
    turns = asyncio.Semaphore(2)

    async def ask(command: Sequence[str | Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
        async with turns:
            return await definitions(Client([str(word) for word in command], connect_timeout=30))

    listed = dict(zip(SERVERS, await asyncio.gather(*map(ask, SERVERS.values())), strict=True))
    for name, least in LEAST.items():
        assert len(listed[name][0]) >= least, name
    assert {name: findings(one) for name, one in listed.items() if findings(one)} == {}
    side_by_side = {
        ToolName("main", server, tool["name"]): tool for server, (tools, _, _) in listed.items() for tool in tools
    }
    assert find_shadows(side_by_side) == {}


EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if re.search(r"^\w+ = Board\(", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_our_examples_are_read_without_a_finding(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert findings(await definitions(Client(load_board(str(example))))) == []


@pytest.mark.parametrize("demo", [desk, clock, notes], ids=lambda demo: demo.board.name)
async def test_the_demo_is_read_without_a_finding(demo: Any) -> None:
    assert findings(await definitions(Client(demo.board))) == []
