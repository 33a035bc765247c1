"""Servers that are installed when they start: they are not stopped halfway, and not started all at once."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client, Gateway
from pegboard.cli.commands.serving.up_command import Announcement
from pegboard.config.gateway_config import ServerConfig
from tests.client.process_leftovers import nothing_left
from tests.gateway.one_server import BAD
from tests.gateway.test_gateway import configured
from tests.waiting import until

pytestmark = pytest.mark.process


def npx(folder: Path, name: str, **options: Any) -> ServerConfig:
    """A server that says when it begins to be installed, and is installed once there is a file."""
    program = folder / "npx"
    program.write_text(
        f"#!{sys.executable} -S\nimport os, sys, time\nopen(sys.argv[1] + '.begun', 'w').close()\n"
        f"while not os.path.exists({str(folder / 'installed')!r}): time.sleep(0.02)\n"
        f"os.execv(sys.executable, [sys.executable, '-S', {str(BAD)!r}])\n"
    )
    program.chmod(0o755)
    return ServerConfig(name=name, kind="stdio", command=(str(program), str(folder / name)), **options)


async def test_a_command_that_still_installs_is_not_stopped_at_its_first_deadline(tmp_path: Path) -> None:
    made = Gateway(configured(npx(tmp_path, "slow", connect_timeout=0.2), list_wait=0.01))
    async with nothing_left(), Client(made) as client:
        starting = await client.call("dev__slow__echo", {"text": "x"})
        assert starting.text == "[dev/slow/echo] Error: The server 'slow' is still starting; try again in a moment."
        assert "it is still starting and may be installing" in made.downstreams[0].problem
        (tmp_path / "installed").touch()
        await until(lambda: made.downstreams[0].state == "ready")
        assert (await client.call("dev__slow__echo", {"text": "x"})).text == "x"
        assert made.downstreams[0].spawns == 1


async def test_the_table_is_printed_again_when_the_last_server_has_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Gateway(configured(npx(tmp_path, "slow", connect_timeout=60.0), list_wait=0.01))
    async with nothing_left(), Client(made):
        Announcement(made, "http://127.0.0.1:1/mcp", time.monotonic(), wait=0.01).start()
        said = ""

        def says(text: str) -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return text in said

        await until(lambda: says("add to"))
        assert re.search(r"^  0 of 1 server ready in \d+\.\d s, 1 still starting: 0 tools$", said, re.MULTILINE)
        (tmp_path / "installed").touch()
        await until(lambda: says("1 of 1 server ready"))


async def test_few_servers_are_installed_at_once(tmp_path: Path) -> None:
    made = Gateway(configured(*(npx(tmp_path, f"s{n}", connect_timeout=60.0) for n in range(6)), list_wait=0.01))
    async with nothing_left(), Client(made):
        # A process may begin before the gateway, which started it, has counted it. A fifth one would end the wait, too.
        await until(lambda: len(list(tmp_path.glob("*.begun"))) >= 4 <= sum(one.spawns for one in made.downstreams))
        assert sum(one.spawns for one in made.downstreams) == 4
        (tmp_path / "installed").touch()
        await until(lambda: all(one.state == "ready" for one in made.downstreams))
