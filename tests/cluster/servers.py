"""Servers in processes of their own that share a store, and clients that go from one to the other."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.server.http_clients import Peer, Response
from tests.server_processes import MODERN, PEGBOARD, ROOT, HttpChild, UvicornChild

BOARD = ROOT / "tests" / "cluster_board.py"
LEASE = 1.5
TASKS = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


def serve(store: str, *more: str, command: tuple[str, ...] = PEGBOARD, **env: str) -> HttpChild:
    return HttpChild("--store", store, *more, target=BOARD, command=command, **env)


class Pair:
    """Two servers and their store."""

    def __init__(self, store: str, one: HttpChild, two: HttpChild) -> None:
        self.store = store
        self.one = one
        self.two = two


@contextmanager
def pair(store: str) -> Iterator[Pair]:
    with serve(store) as one, serve(store) as two:
        yield Pair(store, one, two)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crew-") as place:
        yield Path(place)


class Guest(Peer):
    """A client of the older revisions that may go elsewhere with its session."""

    def __init__(self, port: int, version: str = "2025-11-25") -> None:
        super().__init__(port, version)
        self._also: list[Guest] = []
        self._ids = itertools.count(1000)

    def at(self, server: HttpChild | UvicornChild) -> Guest:
        """The same client, at another server."""
        other = Guest(server.port, self.version)
        other.session = self.session
        self._also.append(other)
        return other

    async def text(self, tool: str, **arguments: Any) -> str:
        """What a tool answers."""
        params = {"name": tool, "arguments": arguments}
        answer = await self.ask("tools/call", params, next(self._ids))
        assert answer.status == 200, answer.body
        found: str = answer.json["result"]["content"][0]["text"]
        return found

    async def end(self) -> int:
        """End the session."""
        response = await self.send("DELETE")
        await response.rest()
        return response.status

    def close(self) -> None:
        super().close()
        for other in self._also:
            other.close()


@asynccontextmanager
async def guest(server: HttpChild | UvicornChild, capabilities: dict[str, Any] | None = None) -> AsyncIterator[Guest]:
    found = Guest(server.port)
    try:
        await found.initialize(capabilities)
        yield found
    finally:
        found.close()


def steps_of(response: Response) -> list[int]:
    return [
        int(message["params"]["progress"])
        for message in response.messages
        if message.get("method") == "notifications/progress"
    ]


async def modern(server: HttpChild, method: str, params: dict[str, Any], name: str) -> Any:
    """What a client of this revision that can wait for tasks is answered."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": TASKS,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    peer = Peer(server.port)
    try:
        answer = await peer.send(
            "POST", json.dumps(body).encode(), mcp_protocol_version=MODERN, mcp_method=method, mcp_name=name
        )
        await answer.rest()
        return answer.json
    finally:
        peer.close()
