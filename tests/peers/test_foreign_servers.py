"""Our client against servers that others wrote: over stdio and HTTP, in the era each is of."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client
from pegboard.errors import PegboardError
from tests.client.process_leftovers import nothing_left
from tests.peers.judges import HERE, LEGACY, MCP1_PYTHON, MODERN, NODE, PYTHON, NoVerdict
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.peer

START_WITHIN = 30.0
EVERYTHING = HERE / "node" / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"


@dataclass(frozen=True)
class Server:
    """A foreign server; `modern` says whether it speaks that era, `paths` where it is found over which transport."""

    name: str
    program: tuple[Path, ...]
    modern: bool
    paths: dict[str, str] = field(default_factory=lambda: {"http": "/mcp"})

    def __str__(self) -> str:
        return self.name


SERVERS = (
    Server("python-2", (PYTHON, HERE / "mcp2_server.py"), True),
    Server("python-1", (MCP1_PYTHON, HERE / "mcp1_server.py"), False, {"http": "/mcp", "sse": "/sse"}),
    Server("fastmcp", (PYTHON, HERE / "fastmcp_server.py"), True),
    Server("typescript-2", (NODE, HERE / "node" / "server2.mjs"), True),
    Server("typescript-1", (NODE, HERE / "node" / "server1.mjs"), False),
)
WAYS = [
    pytest.param(server, transport, id=f"{server}-{transport}")
    for server in SERVERS
    for transport in ("stdio", *server.paths)
]


@contextmanager
def started(command: list[str], path: str, **env: str) -> Iterator[str]:
    """Run a server on a free port until the block ends; gives its address."""
    port = free_port()
    with tempfile.TemporaryFile("w+") as log:
        words = [word.replace("PORT", str(port)) for word in command]
        process = subprocess.Popen(
            words,
            env={**os.environ, **{name: value.replace("PORT", str(port)) for name, value in env.items()}},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            with suppress(TimeoutError):
                wait_until(lambda: process.poll() is not None or _listens(port), START_WITHIN)
            if not _listens(port):
                log.seek(0)
                raise NoVerdict(f"{' '.join(words)} does not listen; it said:\n{log.read()}")
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def target(server: Server, transport: str) -> Iterator[str | list[str]]:
    missing = [str(part) for part in server.program if not part.exists()]
    if missing:
        raise NoVerdict(f"this peer is not installed ({', '.join(missing)} is missing): run `make setup`")
    command = [str(part) for part in server.program]
    if transport == "stdio":
        yield [*command, "stdio"]
        return
    with started([*command, transport, "PORT"], server.paths[transport]) as url:
        yield url


@pytest.mark.parametrize(("server", "transport"), WAYS)
async def test_a_foreign_server_is_used_to_the_full_in_each_era(server: Server, transport: str) -> None:
    with target(server, transport) as where:
        await use_to_the_full(server, transport, where, None)
        if server.modern:
            await use_to_the_full(server, transport, where, LEGACY)


async def use_to_the_full(server: Server, transport: str, where: str | list[str], version: str | None) -> None:
    asked: list[str] = []

    def elicit(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {"name": "nuts"}

    async with nothing_left(), Client(where, version=version, elicit=elicit, connect_timeout=40) as client:
        assert client.version == (MODERN if server.modern and version is None else LEGACY)
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert {"add", "steps", "order"} <= set(tools)
        assert await client.call("add", {"a": 2, "b": 3}, result_type=int) == 5
        steps: list[float] = []
        told = await client.call("steps", {"count": 3}, progress=lambda done, *_: steps.append(done))
        assert (told.text, steps) == ("done", [1, 2, 3])
        if not (server.name == "typescript-2" and transport == "http" and version == LEGACY):
            # There it serves each legacy request alone, with nobody to ask.
            assert (await client.call("order")).text == "3 nuts"
            assert asked == ["What?"]
        assert (await client.read("memo://today"))[0]["text"] == "sunny"
        (message,) = await client.prompt("review", {"code": "x"})
        assert message["content"]["text"] == "Review x"
        results = await asyncio.gather(*(client.call("add", {"a": number, "b": 1}) for number in range(64)))
        assert [result.text for result in results] == [str(number + 1) for number in range(64)]
        wrong = await _outcome(client)
        assert "nowhere" in wrong


async def _outcome(client: Client) -> str:
    """What becomes of a tool that is not there: older servers answer with a result, newer ones with an error."""
    try:
        return (await client.call("nowhere")).text
    except PegboardError as error:
        return str(error)


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp", "sse"])
async def test_the_reference_server_is_used_to_the_full(transport: str) -> None:
    if not EVERYTHING.exists():
        raise NoVerdict("server-everything is not installed: run `make setup`")
    if transport == "stdio":
        await use_everything([str(NODE), str(EVERYTHING), "stdio"])
        return
    path = "/mcp" if transport == "streamableHttp" else "/sse"
    with started([str(NODE), str(EVERYTHING), transport], path, PORT="PORT") as url:
        await use_everything(url)


async def use_everything(where: str | list[str]) -> None:
    steps: list[float] = []
    async with (
        nothing_left(),
        Client(
            where,
            elicit=lambda asked: {},
            sample=lambda params: "a sampled answer",
            roots=["file:///work"],
            connect_timeout=40,
        ) as client,
    ):
        assert client.version == LEGACY
        names = {tool["name"] for tool in await client.list_tools()}
        assert {"echo", "get-sum", "trigger-long-running-operation"} <= names
        assert "hello" in (await client.call("echo", {"message": "hello"})).text
        assert "5" in (await client.call("get-sum", {"a": 2, "b": 3})).text
        await client.call(
            "trigger-long-running-operation",
            {"duration": 0.2, "steps": 2},
            progress=lambda done, *_: steps.append(done),
        )
        assert steps == [1, 2]
        assert (
            "a sampled answer" in (await client.call("trigger-sampling-request", {"prompt": "x", "maxTokens": 5})).text
        )
        assert "accept" in (await client.call("trigger-elicitation-request")).text.lower()
        assert "file:///work" in (await client.call("get-roots-list")).text
        resources = await client.list_resources()
        assert (await client.read(resources[0]["uri"]))[0]
        assert await client.list_templates()
        prompts = [prompt["name"] for prompt in await client.list_prompts()]
        assert await client.prompt(prompts[0])
