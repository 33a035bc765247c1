"""Servers that others wrote behind one `pegboard up`, used to the full by clients of both eras."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Accepted, Client
from pegboard.client.client_channel import Elicitation
from tests.peers.judges import HERE, LEGACY, MCP1_PYTHON, MODERN, NODE, PYTHON, NoVerdict
from tests.server_processes import HttpChild
from tests.waiting import until, wait_until

pytestmark = pytest.mark.peer

PACKAGES = HERE / "node" / "node_modules" / "@modelcontextprotocol"
START_WITHIN = 60.0
ERAS = pytest.mark.parametrize("version", [MODERN, LEGACY], ids=["modern", "legacy"])
EVERYTHING = "npm__everything__"


def commands(files: Path) -> dict[str, dict[str, tuple[str | Path, ...]]]:
    return {
        "npm": {
            "everything": (NODE, PACKAGES / "server-everything" / "dist" / "index.js", "stdio"),
            "memory": (NODE, PACKAGES / "server-memory" / "dist" / "index.js"),
            "filesystem": (NODE, PACKAGES / "server-filesystem" / "dist" / "index.js", files),
        },
        "pypi": {
            "time": (MCP1_PYTHON, "-m", "mcp_server_time", "--local-timezone", "UTC"),
            "git": (MCP1_PYTHON, "-m", "mcp_server_git"),
            "fastmcp": (PYTHON, HERE / "fastmcp_server.py", "stdio"),
            "python-1": (MCP1_PYTHON, HERE / "mcp1_server.py", "stdio"),
            "python-2": (PYTHON, HERE / "mcp2_server.py", "stdio"),
        },
    }


class Room:
    """A gateway over all of them, and the folder that they work in."""

    def __init__(self, child: HttpChild, files: Path) -> None:
        self.child = child
        self.files = files
        self.sampled: list[Any] = []
        self.heard: list[Any] = []

    @asynccontextmanager
    async def client(self, version: str, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
        told: dict[str, Any] = {"elicit": answer, "sample": self._sample, "roots": ["file:///work"], "log": self._hear}
        url = f"http://127.0.0.1:{self.child.port}{path}"
        async with Client(url, version=version, **{**told, **options}) as client:
            yield client

    def _sample(self, asked: Any) -> str:
        self.sampled.append(asked)
        return "a sampled answer"

    def _hear(self, *about: Any) -> None:
        self.heard.append(about)


def answer(asked: Elicitation) -> dict[str, Any]:
    """What a person would fill in."""
    return {"name": "nuts"} if asked.message == "What?" else {}


async def unavailable(child: HttpChild) -> dict[str, Any]:
    """The servers that are not ready when the first list has waited for them."""
    async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
        listed = await client.request("tools/list")
    return listed.get("_meta", {}).get("dev.pegboard/servers", {})  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("room")
    files = folder / "files"
    files.mkdir()
    (files / "hello.txt").write_text("Hello, file.\n")
    subprocess.run(["git", "init", "-q", "-b", "main", files], check=True)
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    subprocess.run(["git", "-C", files, "add", "."], check=True)
    subprocess.run(["git", "-C", files, *identity, "commit", "-q", "-m", "Say hello"], check=True)
    toolboxes = {}
    for toolbox, servers in commands(files).items():
        missing = [
            str(part) for words in servers.values() for part in words if isinstance(part, Path) and not part.exists()
        ]
        if missing:
            raise NoVerdict(f"{', '.join(missing)}: not installed, run `make setup`")
        entries: dict[str, dict[str, Any]] = {
            name: {"command": str(words[0]), "args": [str(word) for word in words[1:]], "connectTimeout": 45}
            for name, words in servers.items()
        }
        if toolbox == "npm":
            entries["everything"]["roots"] = [str(files)]
            entries["memory"]["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
        toolboxes[toolbox] = {"description": f"From {toolbox}", "mcpServers": entries}
    config = folder / "gateway.json"
    config.write_text(json.dumps({"toolboxes": toolboxes, "listWait": 60}))
    with HttpChild(verb="up", target=config, PEGBOARD_STATE=str(folder / "state")) as child:
        wait_until(lambda: "servers ready" in child.said(), START_WITHIN)
        assert asyncio.run(unavailable(child)) == {}, child.said()
        yield Room(child, files)
        child.signal()
        assert child.wait() == 0, child.said()


async def text(client: Client, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    result = await client.call(name, arguments or {}, **options)
    assert not result.is_error, result.text
    return result.text


@ERAS
async def test_all_that_they_have_is_listed_in_the_order_of_the_configuration(room: Room, version: str) -> None:
    async with room.client(version) as client:
        assert client.version == version
        names = [tool["name"] for tool in await client.list_tools()]
        counted: dict[str, int] = {}
        for name in names:
            toolbox, server, _ = name.split("__", 2)
            counted[f"{toolbox}/{server}"] = counted.get(f"{toolbox}/{server}", 0) + 1
        assert list(counted) == [f"{box}/{one}" for box, servers in commands(room.files).items() for one in servers]
        assert min(counted.values()) >= 2
        assert {"npm/everything", "npm/memory", "npm/filesystem", "pypi/git"} <= {
            one for one in counted if counted[one] > 8
        }
        assert {f"{EVERYTHING}simple-prompt", "pypi__fastmcp__review", "pypi__python-1__review"} <= {
            prompt["name"] for prompt in await client.list_prompts()
        }
        assert {f"memo://{one}.pypi.pegboard/~today" for one in ("fastmcp", "python-1", "python-2")} <= {
            resource["uri"] for resource in await client.list_resources()
        }
        assert "demo://everything.npm.pegboard/~resource/dynamic/text/{resourceId}" in {
            template["uriTemplate"] for template in await client.list_templates()
        }


async def test_a_toolbox_has_a_place_of_its_own(room: Room) -> None:
    async with room.client(MODERN, "/toolboxes/pypi/mcp") as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert {name.split("__")[0] for name in names} == {"pypi"}
        assert await text(client, "pypi__python-2__add", {"a": 2, "b": 3}) == "5"


@ERAS
@pytest.mark.parametrize("server", ["fastmcp", "python-1", "python-2"])
async def test_a_server_on_another_kit_is_used_to_the_full(room: Room, server: str, version: str) -> None:
    async with room.client(version) as client:
        assert await client.call(f"pypi__{server}__add", {"a": 2, "b": 3}, result_type=int) == 5
        # Both eras' questions reach the person, whichever era asks and whichever answers.
        assert await text(client, f"pypi__{server}__order") == "3 nuts"
        steps: list[float] = []
        told = await text(client, f"pypi__{server}__steps", {"count": 3}, progress=lambda done, *_: steps.append(done))
        assert (told, steps) == ("done", [1, 2, 3])
        (content,) = await client.read(f"memo://{server}.pypi.pegboard/~today")
        assert (content["uri"], content["text"]) == (f"memo://{server}.pypi.pegboard/~today", "sunny")
        (message,) = await client.prompt(f"pypi__{server}__review", {"code": "x"})
        assert message["content"]["text"] == "Review x"
        results = await asyncio.gather(*(client.call(f"pypi__{server}__add", {"a": n, "b": 1}) for n in range(32)))
        assert [result.text for result in results] == [str(n + 1) for n in range(32)]


@ERAS
async def test_arguments_are_repaired_by_the_schemas_of_others(room: Room, version: str) -> None:
    async with room.client(version) as client:
        result = await client.call(f"{EVERYTHING}get-sum", {"a": "2", "b": 3})
        assert "5" in result.text
        assert [warning["path"] for warning in result.meta["dev.pegboard/parseWarnings"]] == ["a"]
        wrong = await client.call(f"{EVERYTHING}get-sum", {"a": "two"})
        assert wrong.is_error
        assert {problem["path"] for problem in wrong.meta["dev.pegboard/parseErrors"]} == {"a", "b"}


async def test_the_filesystem_is_read_and_written(room: Room) -> None:
    async with room.client(MODERN) as client:
        hello = {"path": str(room.files / "hello.txt")}
        result = await client.call("npm__filesystem__read_text_file", hello)
        assert (result.text, result.structured) == ("Hello, file.\n", {"content": "Hello, file.\n"})
        await text(client, "npm__filesystem__write_file", {"path": str(room.files / "new.txt"), "content": "näw"})
        assert (room.files / "new.txt").read_text() == "näw"
        outside = await client.call("npm__filesystem__read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
        assert "Access denied" in outside.text


async def test_the_graph_of_memory_is_kept_and_found(room: Room) -> None:
    async with room.client(LEGACY) as client:
        ann = {"name": "Ann", "entityType": "person", "observations": ["likes pegs"]}
        await text(client, "npm__memory__create_entities", {"entities": [ann]})
        found = await client.call("npm__memory__search_nodes", {"query": "pegs"})
        assert found.structured == {"entities": [ann], "relations": []}
        (content,) = await client.read("memory://memory.npm.pegboard/~knowledge-graph")
        assert "likes pegs" in content["text"]


async def test_the_time_server_converts_times_and_the_git_server_reads_the_repository(room: Room) -> None:
    async with room.client(MODERN) as client:
        arguments = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert (
            json.loads(await text(client, "pypi__time__convert_time", arguments))["target"]["timezone"] == "Asia/Tokyo"
        )
        assert "Say hello" in await text(client, "pypi__git__git_log", {"repo_path": str(room.files)})
        # What its own pipeline refuses is a result of the tool's, not a failure of ours.
        wrong = await client.call("pypi__time__get_current_time", {"timezone": "Mars/Olympus"})
        assert wrong.is_error
        assert "Mars/Olympus" in wrong.text


@ERAS
async def test_the_reference_server_asks_and_tells_through_the_gateway(room: Room, version: str) -> None:
    room.sampled.clear()
    async with room.client(version) as client:
        assert "hello" in await text(client, f"{EVERYTHING}echo", {"message": "hello"})
        steps: list[float] = []
        await text(
            client,
            f"{EVERYTHING}trigger-long-running-operation",
            {"duration": 0.2, "steps": 2},
            progress=lambda done, *_: steps.append(done),
        )
        assert steps == [1, 2]
        said = await text(client, f"{EVERYTHING}trigger-sampling-request", {"prompt": "Why?", "maxTokens": 5})
        assert "a sampled answer" in said
        assert "Why?" in json.dumps(room.sampled)
        assert "accept" in (await text(client, f"{EVERYTHING}trigger-elicitation-request")).lower()
        image = await client.call(f"{EVERYTHING}get-tiny-image")
        assert [block["type"] for block in image.content] == ["text", "image", "text"]
        structured = await client.call(f"{EVERYTHING}get-structured-content", {"location": "Chicago"})
        assert set(structured.structured) == {"temperature", "conditions", "humidity"}


@ERAS
async def test_links_of_results_lead_back_to_their_server(room: Room, version: str) -> None:
    async with room.client(version) as client:
        links = await client.call(f"{EVERYTHING}get-resource-links", {"count": 2})
        uris = [block["uri"] for block in links.content if block["type"] == "resource_link"]
        assert len(uris) == 2
        for uri in uris:
            (content,) = await client.read(uri)
            assert content["uri"] == uri
        assert await client.prompt(f"{EVERYTHING}args-prompt", {"city": "Oslo"})
        prompt = {"type": "ref/prompt", "name": f"{EVERYTHING}completable-prompt"}
        assert await client.complete(prompt, "department", "E") == ["Engineering"]
        template = {
            "type": "ref/resource",
            "uri": "demo://everything.npm.pegboard/~resource/dynamic/text/{resourceId}",
        }
        assert await client.complete(template, "resourceId", "7") == ["7"]


@ERAS
async def test_updates_of_resources_that_are_followed_come_through(room: Room, version: str) -> None:
    uri = "demo://everything.npm.pegboard/~resource/static/document/features.md"
    async with room.client(version) as client:
        changes = client.listen(uris=[uri])
        hearing = asyncio.ensure_future(anext(changes))
        # It tells of every resource that is followed, every five seconds, and once at first.
        try:
            async with asyncio.timeout(30):
                while not hearing.done():
                    await text(client, f"{EVERYTHING}toggle-subscriber-updates")
                    await asyncio.wait([hearing], timeout=6)
                    await text(client, f"{EVERYTHING}toggle-subscriber-updates")
            assert (await hearing).uri == uri
        finally:
            hearing.cancel()
            await changes.aclose()


@ERAS
async def test_log_messages_of_a_server_reach_its_caller(room: Room, version: str) -> None:
    room.heard.clear()
    async with room.client(version, log_level="debug") as client:
        for _ in range(50):
            # One word of a random level at once; what is below the level of the gateway's own link is not sent.
            await text(client, f"{EVERYTHING}toggle-simulated-logging")
            await text(client, f"{EVERYTHING}toggle-simulated-logging")
            # The server may also log what an earlier test has asked it.
            if any("level" in str(message) for _, message, *_ in room.heard):
                return
    pytest.fail(f"nothing was heard but {room.heard}")


@ERAS
async def test_a_task_of_a_legacy_server_is_run_to_its_end_with_what_it_asks(room: Room, version: str) -> None:
    asked: list[Elicitation] = []

    def choose(question: Elicitation) -> dict[str, Any]:
        asked.append(question)
        return {"interpretation": "historical"}

    async with room.client(version, elicit=choose) as client:
        said = await text(client, f"{EVERYTHING}simulate-research-query", {"topic": "pegs", "ambiguous": True})
    assert "Research Report: pegs (historical)" in said
    assert [list(question.schema["properties"]) for question in asked] == [["interpretation"]]


@ERAS
async def test_a_link_is_opened_by_the_person_and_roots_are_the_operators(room: Room, version: str) -> None:
    opened: list[str | None] = []

    def visit(question: Elicitation) -> Accepted[Any]:
        opened.append(question.url)
        return Accepted(None)

    async with room.client(version, elicit=visit) as client:
        wanted = {"url": "https://example.com/x", "message": "Please"}
        assert "completed" in await text(client, f"{EVERYTHING}trigger-url-elicitation", wanted)
        assert opened == ["https://example.com/x"]
        assert f"file://{room.files}" in await text(client, f"{EVERYTHING}get-roots-list")


@ERAS
async def test_a_call_that_is_given_up_leaves_its_server_to_others(room: Room, version: str) -> None:
    async with room.client(version) as client:
        begun = asyncio.Event()
        slow = asyncio.ensure_future(
            client.call(
                f"{EVERYTHING}trigger-long-running-operation",
                {"duration": 30, "steps": 300},
                progress=lambda *_: begun.set(),
            )
        )
        await begun.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert "still here" in await text(client, f"{EVERYTHING}echo", {"message": "still here"})


async def test_a_killed_server_restarts_without_affecting_other_servers(room: Room) -> None:
    def running() -> list[int]:
        told = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(room.child.process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(line.split()[0]) for line in told.stdout.splitlines() if "mcp_server_time" in line]

    (before,) = running()
    async with room.client(MODERN) as client:
        os.kill(before, signal.SIGKILL)
        assert await text(client, "pypi__python-2__add", {"a": 1, "b": 1}) == "2"
        await until(lambda: running() not in ([], [before]))
        assert "UTC" in await text(client, "pypi__time__get_current_time", {"timezone": "UTC"})
