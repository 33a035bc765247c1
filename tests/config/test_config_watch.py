"""Edits of a configuration in use: noticed when they are finished, handed on when they are sound, told when they are not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.accounts.quota import Quota, Quotas
from pegboard.config.config_keys import ToolOverride
from pegboard.config.config_watch import ConfigChanges, ConfigWatch, compare
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig, read_config
from pegboard.errors import SetupError


def tree(**servers: Any) -> dict[str, Any]:
    return {"toolboxes": {"dev": {"description": "x", "mcpServers": servers or {"fs": {"command": "a"}}}}}


class Edited:
    """A file, a watch on it, and what the watch handed on."""

    def __init__(self, folder: Path, first: dict[str, Any]) -> None:
        self.file = folder / "pegboard.json"
        self._age = 0
        self.write(first)
        self.handed: list[tuple[GatewayConfig, GatewayConfig]] = []
        self.watch = ConfigWatch(read_config(self.file, {}), self._take, environ={})

    async def _take(self, old: GatewayConfig, new: GatewayConfig) -> None:
        self.handed.append((old, new))

    def write(self, content: Any) -> None:
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))
        self.touch()

    def replace(self, content: Any) -> None:
        """As editors save: a new file takes the place of the old."""
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(content))
        beside.replace(self.file)
        self.touch()

    def touch(self) -> None:
        self._age += 1
        os.utime(self.file, ns=(self._age, self._age))

    async def check_once(self, times: int = 2) -> None:
        for _ in range(times):
            await self.watch.check_once()


async def test_a_sound_edit_is_handed_on_with_what_was_before(tmp_path: Path) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once(4)
    assert edited.handed == []
    edited.write(tree(fs={"command": "a"}, web={"url": "https://x.example"}))
    await edited.check_once()
    [(old, new)] = edited.handed
    assert compare(old, new) == ConfigChanges(added=(("dev", "web"),))
    assert edited.watch.config is new
    await edited.check_once(4)
    assert len(edited.handed) == 1


async def test_an_edit_by_replacing_the_file_is_seen(tmp_path: Path) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once()
    edited.replace(tree(fs={"command": "b"}))
    await edited.check_once()
    assert [new.toolboxes["dev"].servers["fs"].command for _, new in edited.handed] == [("b",)]


async def test_an_edit_between_reading_and_watching_is_seen(tmp_path: Path) -> None:
    edited = Edited(tmp_path, tree())
    edited.write(tree(fs={"command": "b"}))
    await edited.check_once()
    assert len(edited.handed) == 1


async def test_a_file_that_is_still_being_written_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once()
    for part in ('{"toolbo', '{"toolboxes": {', json.dumps(tree(fs={"command": "b"}))):
        edited.write(part)
        await edited.check_once(1)
    assert edited.handed == []
    await edited.check_once(1)
    assert len(edited.handed) == 1
    assert "not used" not in caplog.text


async def test_a_file_that_is_touched_or_saved_without_changes_is_not_reloaded(tmp_path: Path) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once()
    edited.touch()
    await edited.check_once()
    edited.replace(tree())
    await edited.check_once()
    edited.write(json.dumps(tree(), indent=4))
    await edited.check_once()
    assert edited.handed == []


async def test_a_broken_edit_keeps_the_previous_configuration_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once()
    before = edited.watch.config
    edited.write(tree(fs={"comand": "a", "env": {"TOKEN": ["abcdefgh"]}}))
    await edited.check_once(5)
    edited.touch()
    await edited.check_once(3)
    assert edited.watch.config is before
    assert edited.handed == []
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert told == [
        f"The edited configuration is not used, the previous one stays in use. {edited.file} has 2 mistakes:",
        "  toolboxes.dev.mcpServers.fs.comand (line 1): a server has no key 'comand'; did you mean 'command'?",
        "  toolboxes.dev.mcpServers.fs.env.TOKEN (line 1): got a list, expected a string",
    ]
    edited.write(tree(fs={"command": "b"}))
    await edited.check_once()
    assert len(edited.handed) == 1


async def test_a_deleted_file_is_reported_once_and_may_reappear(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edited = Edited(tmp_path, tree())
    await edited.check_once()
    edited.file.unlink()
    await edited.check_once(5)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{edited.file} has disappeared; the previous configuration stays in use"
    ]
    edited.write(tree(fs={"command": "b"}))
    await edited.check_once()
    assert len(edited.handed) == 1


async def test_an_edit_that_cannot_be_taken_over_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edited = Edited(tmp_path, tree())

    async def fail(old: GatewayConfig, new: GatewayConfig) -> None:
        raise RuntimeError("no room")

    edited.watch = ConfigWatch(edited.watch.config, fail, environ={})
    edited.write(tree(fs={"command": "b"}))
    await edited.check_once()
    assert "could not be applied completely" in caplog.text
    edited.write(tree(fs={"command": "c"}))
    await edited.check_once()
    assert edited.watch.config.toolboxes["dev"].servers["fs"].command == ("c",)


async def test_an_edit_that_shows_its_mistake_when_it_is_built_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edited = Edited(tmp_path, tree())
    before = edited.watch.config

    async def refuse(old: GatewayConfig, new: GatewayConfig) -> None:
        raise SetupError("tools.py has no board")

    edited.watch = ConfigWatch(before, refuse, environ={})
    edited.write(tree(fs={"command": "b"}))
    await edited.check_once(4)
    assert edited.watch.config is before
    told = "The edited configuration is not used, the previous one stays in use. "
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        f"{told}{edited.file}: tools.py has no board"
    ]


async def test_new_warnings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edited = Edited(tmp_path, tree())
    edited.write(tree(fs={"command": "a", "inherit": ["NOT_SET"]}))
    await edited.check_once()
    assert "fs.inherit[0]: NOT_SET is not set in the environment of the gateway" in caplog.text


async def test_the_watch_looks_again_and_again(tmp_path: Path) -> None:
    edited = Edited(tmp_path, tree())
    seen = asyncio.Event()

    async def take(old: GatewayConfig, new: GatewayConfig) -> None:
        seen.set()

    watch = ConfigWatch(edited.watch.config, take, environ={}, seconds=0.001)
    running = asyncio.create_task(watch.run())
    edited.write(tree(fs={"command": "b"}))
    async with asyncio.timeout(20):
        await seen.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


# What changed.


def gateway(*servers: ServerConfig, **keys: Any) -> GatewayConfig:
    box = ToolboxConfig(name="dev", description="x", servers={server.name: server for server in servers})
    return GatewayConfig(path="a", toolboxes={"dev": box}, **keys)


def test_a_server_that_is_only_presented_differently_is_not_reconnected() -> None:
    plain = ServerConfig(name="fs", kind="stdio", command=("a",))
    renamed = ServerConfig(name="fs", kind="stdio", command=("a",), tools={"read": ToolOverride(name="get")})
    moved = ServerConfig(name="fs", kind="stdio", command=("b",), tools={"read": ToolOverride(name="get")})
    assert compare(gateway(plain), gateway(renamed)) == ConfigChanges(updated=(("dev", "fs"),))
    assert compare(gateway(plain), gateway(moved)) == ConfigChanges(changed=(("dev", "fs"),))
    assert compare(gateway(plain), gateway()) == ConfigChanges(removed=(("dev", "fs"),))


def test_settings_and_toolboxes_are_compared_by_their_own_words() -> None:
    server = ServerConfig(name="fs", kind="stdio", command=("a",))
    old = gateway(server)
    assert compare(old, gateway(server, mode="proxy", name_budget=50)).gateway == ("mode", "name_budget")
    limited = gateway(server, quotas=Quotas(everyone=Quota(rate="5/minute")))
    assert str(compare(old, limited)) == "settings changed: quotas"
    described = ToolboxConfig(name="dev", description="y", servers={"fs": server})
    other = ToolboxConfig(name="ops", description="x", servers={"fs": server})
    new = GatewayConfig(path="a", toolboxes={"dev": described, "ops": other})
    assert compare(old, new) == ConfigChanges(added=(("ops", "fs"),), toolboxes_added=("ops",), toolboxes=("dev",))
    assert compare(new, old) == ConfigChanges(removed=(("ops", "fs"),), toolboxes_removed=("ops",), toolboxes=("dev",))
    assert str(compare(old, new)) == "added: ops/fs; toolboxes added: ops; toolboxes changed: dev"
    assert str(compare(old, old)) == "nothing"


SERVERS = st.builds(
    ServerConfig,
    name=st.sampled_from("abc"),
    kind=st.just("stdio"),
    command=st.sampled_from([("x",), ("y",)]),
    tags=st.sampled_from([(), ("t",)]),
)
CONFIGS = st.builds(lambda found: gateway(*found), st.lists(SERVERS, max_size=3))


@given(CONFIGS, CONFIGS)
def test_each_server_is_reported_once_and_only_if_it_differs(old: GatewayConfig, new: GatewayConfig) -> None:
    changes = compare(old, new)
    told = [*changes.added, *changes.removed, *changes.changed, *changes.updated]
    before, after = old.toolboxes["dev"].servers, new.toolboxes["dev"].servers
    assert sorted(told) == sorted(
        ("dev", name) for name in {*before, *after} if before.get(name) != after.get(name)
    )  # fmt: skip
    assert bool(changes) == (old != new)
    assert compare(new, old).added == changes.removed
