"""The official clients use a gateway as it is meant to be: through the meta-tools, and by opening what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.judges import DEADLINE, HERE, JUDGES, MCP1_PYTHON, NODE, Judge, Question, ask
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
def test_an_official_client_calls_through_a_meta_tool_over_http_and_by_name_over_stdio(
    judge: Judge, config: Path, proxy: str
) -> None:
    command = [PEGBOARD, "up", config, "--mode", "all", "--stdio"]
    through, by_name = ask(
        Question(judge, proxy, USE, SUM), Question(judge, command, "office__hello__greet", {"name": "Ann"})
    )

    assert through["tools"] == TALK
    assert (through["result"], through["is_error"]) == ("5", False)
    assert through["protocol"] == judge.protocol
    assert by_name["tools"] == [*HELLOS, "bench__hello__add", "bench__hello__greet"]
    assert (by_name["result"], by_name["is_error"]) == ("Hello, Ann!", False)


@pytest.mark.parametrize("program", VISITORS)
def test_an_official_client_opens_a_toolbox_and_is_shown_its_tools(
    program: tuple[Path, Path], config: Path, dynamic: str
) -> None:
    targets = [[dynamic], [str(PEGBOARD), "up", str(config), "--mode", "dynamic", "--stdio"]]
    command = [*map(str, program), json.dumps(targets)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr

    over_http, over_stdio = map(json.loads, done.stdout.splitlines()[-2:])
    assert over_http == over_stdio == {
        "before": SESSION, "opened": [*SESSION, *HELLOS], "result": "5", "closed": SESSION,
    }  # fmt: skip
