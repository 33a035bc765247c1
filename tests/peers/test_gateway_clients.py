"""The official clients use a gateway as it is meant to be: through the meta-tools, and by opening what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.judges import HERE, JUDGES, MCP1_PYTHON, NODE, Judge, run_judge
from tests.peers.serving import PEGBOARD, ROOT, serve

pytestmark = pytest.mark.peer

HELLO = ROOT / "examples" / "hello.py"
TALK = ["workbench_list_toolboxes", "workbench_open_toolbox", "search_tools", "workbench_use_tool"]
SESSION = [*TALK[:2], "workbench_close_toolbox", *TALK[2:]]
HELLOS = ["office__hello__add", "office__hello__greet"]
USE = "workbench_use_tool"
SUM = {"tool_name": "office__hello__add", "arguments": {"a": 2, "b": 3}}

OFFICIAL = [
    judge for judge in JUDGES if judge.name in {"python-2-auto", "python-1", "typescript-2-auto", "typescript-1"}
]
VISITORS = [
    pytest.param((MCP1_PYTHON, HERE / "mcp1_toolboxes.py"), id="python-1"),
    pytest.param((NODE, HERE / "node" / "toolboxes1.mjs"), id="typescript-1"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server that the gateway starts, and one in its own process."""
    started = {"command": sys.executable, "args": ["-m", "pegboard", "run", str(HELLO), "--stdio"]}
    path = tmp_path_factory.mktemp("gateway") / "pegboard.json"
    toolboxes = {
        "office": {"description": "Sums and greetings", "mcpServers": {"hello": started}},
        "bench": {"description": "The same once more", "mcpServers": {"hello": {"board": str(HELLO)}}},
    }
    path.write_text(json.dumps({"toolboxes": toolboxes, "listWait": 60}))
    return path


@pytest.fixture(scope="module")
def proxy(config: Path) -> Iterator[str]:
    with serve("up", config, "--mode", "proxy") as address:
        yield f"{address}/mcp"


@pytest.fixture(scope="module")
def dynamic(config: Path) -> Iterator[str]:
    with serve("up", config, "--mode", "dynamic") as address:
        yield f"{address}/mcp"


@pytest.mark.parametrize("judge", OFFICIAL, ids=str)
def test_an_official_client_uses_a_tool_through_a_meta_tool_over_http(judge: Judge, proxy: str) -> None:
    verdict = run_judge(judge, proxy, USE, SUM)

    assert verdict["tools"] == TALK
    assert (verdict["result"], verdict["is_error"]) == ("5", False)
    assert verdict["protocol"] == judge.protocol


@pytest.mark.parametrize("judge", OFFICIAL, ids=str)
def test_an_official_client_calls_a_tool_by_its_name_over_stdio(judge: Judge, config: Path) -> None:
    command = [PEGBOARD, "up", config, "--mode", "all", "--stdio"]
    verdict = run_judge(judge, command, "office__hello__greet", {"name": "Ann"})

    assert verdict["tools"] == [*HELLOS, "bench__hello__add", "bench__hello__greet"]
    assert (verdict["result"], verdict["is_error"]) == ("Hello, Ann!", False)


@pytest.mark.parametrize("program", VISITORS)
@pytest.mark.parametrize("road", ["http", "stdio"])
def test_an_official_client_opens_a_toolbox_and_is_shown_its_tools(
    program: tuple[Path, Path], road: str, config: Path, dynamic: str
) -> None:
    target = [dynamic] if road == "http" else [str(PEGBOARD), "up", str(config), "--mode", "dynamic", "--stdio"]

    told = visit(program, target)

    assert told["before"] == told["closed"] == SESSION
    assert told["opened"] == [*SESSION, *HELLOS]
    assert told["result"] == "5"


def visit(program: tuple[Path, Path], target: list[str]) -> dict[str, Any]:
    done = subprocess.run([*map(str, program), *target], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
