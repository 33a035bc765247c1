"""Two gateways that share a store, each a process of its own: a parked call is come back to at the other one."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.minimal_gateway import ASKABLE, LEGACY, MODERN
from tests.peers.serving import ROOT, serve
from tests.server_processes import META

pytestmark = pytest.mark.process

EVERYTHING = str(ROOT / "examples" / "everything.py")
ASKS_TWICE = "test_input_required_result_multi_round"


@contextmanager
def gateways(folder: Path) -> Iterator[list[str]]:
    words = ["-m", "pegboard", "run", EVERYTHING, "--stdio"]
    server = {"command": sys.executable, "args": words, "version": LEGACY}
    toolbox = {"description": "all", "names": "plain", "mcpServers": {"everything": server}}
    config = folder / "gateway.json"
    config.write_text(json.dumps({"toolboxes": {"main": toolbox}}))
    with ExitStack() as stack:
        store = f"sqlite:{folder / 'store.db'}"
        yield [stack.enter_context(serve("up", config, "--store", store)) for _ in range(2)]


def call(address: str, name: str, **params: Any) -> dict[str, Any]:
    """A modern call of a caller that can be asked for everything; its result."""
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": ASKABLE}
    body = {"name": name, "arguments": {}, **params, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    request = urllib.request.Request(f"{address}/mcp", json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        # A call that takes long is answered by the last event of a stream.
        last = answer.read().decode().strip().rpartition("data: ")[2]
        result: dict[str, Any] = json.loads(last)["result"]
        return result


def answers(result: dict[str, Any], **content: str) -> dict[str, Any]:
    """What the next leg brings."""
    (key,) = result["inputRequests"]
    said = {"action": "accept", "content": content}
    return {"inputResponses": {key: said}, "requestState": result["requestState"]}


def test_each_leg_of_a_call_may_go_to_another_gateway(tmp_path: Path) -> None:
    with gateways(tmp_path) as (one, other):
        first = call(one, ASKS_TWICE)
        second = call(other, ASKS_TWICE, **answers(first, name="Ann"))
        done = call(one, ASKS_TWICE, **answers(second, color="red"))
    assert done["content"][0]["text"] == "Ann likes red"
