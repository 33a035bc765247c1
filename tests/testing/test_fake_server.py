"""Fake servers, alone, behind a gateway, and with recorded answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, ToolError
from pegboard.errors import SetupError
from pegboard.testing import FakeCall, FakeServer, Recording, expect, fake_gateway


async def test_a_fake_answers_with_values_exceptions_and_functions() -> None:
    async def later(arguments: Mapping[str, Any]) -> str:
        return f"later {arguments['a']}"

    fake = FakeServer("weather", {"fixed": {"degrees": 21}, "fail": ToolError("no"), "later": later})
    async with Client(fake) as client:
        expect(await client.call("fixed")).ok().contains("21")
        expect(await client.call("fail", {"x": [1]})).error("no")
        expect(await client.call("later", {"a": 5})).text("later 5")
        fake.answer("fixed", "changed")
        expect(await client.call("fixed")).text("changed")
    assert fake.calls == [
        FakeCall("fixed", {}),
        FakeCall("fail", {"x": [1]}),
        FakeCall("later", {"a": 5}),
        FakeCall("fixed", {}),
    ]


async def test_a_fake_with_a_definition_checks_and_repairs_arguments() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fake = FakeServer()
    fake.answer("double", lambda arguments: arguments["n"] * 2, {"inputSchema": schema, "description": "Doubles."})
    async with Client(fake) as client:
        expect(await client.call("double", {"n": "4"})).text("8").repaired("n")
        expect(await client.call("double")).error().invalid("n")
        assert [tool["description"] for tool in await client.list_tools()] == ["Doubles."]


def write(folder: Path, tree: Mapping[str, object]) -> Path:
    file = folder / "pegboard.json"
    file.write_text(json.dumps(tree))
    return file


CONFIG: Mapping[str, object] = {
    "toolboxes": {
        "dev": {
            "description": "x",
            "mcpServers": {
                "github": {"command": "does-not-exist", "env": {"TOKEN": "${TOKEN}"}, "toolFilters": ["*", "!hidden"]},
                "other": {"url": "https://other.example/mcp"},
            },
        },
        "ops": {"description": "x", "mcpServers": {"github": {"command": "does-not-exist"}}},
    }
}


async def test_a_gateway_file_is_tested_without_its_servers(tmp_path: Path) -> None:
    dev, ops = FakeServer("dev", {"issue": "from dev", "hidden": "no"}), FakeServer("ops", {"issue": "from ops"})
    gateway = fake_gateway(write(tmp_path, CONFIG), {"dev/github": dev, "ops/github": ops}, {"TOKEN": "x"})
    async with Client(gateway) as client:
        names = sorted(tool["name"] for tool in await client.list_tools())
        assert names == ["dev__github__issue", "ops__github__issue"]
        expect(await client.call("dev__github__issue")).text("from dev")
        expect(await client.call("ops__github__issue")).text("from ops")
        dev.down = True
        expect(await client.call("dev__github__issue")).error("was lost")


def test_a_fake_for_a_server_that_the_file_does_not_have_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no server 'gitlab'; it has dev/github, dev/other, ops/github"):
        fake_gateway(write(tmp_path, CONFIG), {"gitlab": FakeServer()}, {"TOKEN": "x"})


def test_an_entry_that_misses_a_variable_needs_it_for_its_fake_too(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^dev/github: .*TOKEN.*; set it in environ=$"):
        fake_gateway(write(tmp_path, CONFIG), {"github": FakeServer()}, {})


async def test_recorded_calls_are_replayed_by_their_arguments_in_their_order(tmp_path: Path) -> None:
    board, recording = Board("counter"), Recording(tmp_path / "counter.json")
    counted = iter(range(10))

    @board.tool
    async def count(by: int = 1) -> int:
        """Counts."""
        return next(counted) * by

    @board.tool
    async def fail() -> str:
        raise ToolError("It broke.", code="BROKEN")

    board.use(recording)
    async with Client(board) as client:
        shown = await client.list_tools()
        for arguments in ({"by": 1}, {"by": 10}, {"by": 1}):
            await client.call("count", arguments)
        await client.call("fail")
    assert len(recording.calls) == 4
    async with Client(FakeServer.replay(tmp_path / "counter.json")) as client:
        assert await client.list_tools() == shown
        replayed = [(await client.call("count", {"by": by})).structured for by in (1, 1, 1, 10)]
        assert replayed == [0, 2, 2, 10]
        expect(await client.call("fail")).error("It broke.", code="BROKEN")
        expect(await client.call("count", {"by": 5})).error(
            r'No call .* \{"by": 5\}; recorded: \{"by": 1\}, \{"by": 10\}'
        )


def test_a_file_that_is_not_a_recording_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"a\.json is not a recording: .*No such file"):
        FakeServer.replay(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(SetupError, match=r"b\.json is not a recording: "):
        FakeServer.replay(tmp_path / "b.json")
