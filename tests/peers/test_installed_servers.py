"""Servers that the real npx and uvx install first: with an empty cache, behind a company's proxy and certificate."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard import Client, Gateway
from tests.client.process_leftovers import nothing_left
from tests.peers.company_proxy import PACKAGE, CompanyProxy
from tests.peers.serving import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.peer]

INSTALL_SECONDS = 120.0
SERVERS = {"js": ("npx", ["-y", PACKAGE]), "python": ("uvx", [PACKAGE])}


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompanyProxy]:
    """A company's proxy; no program has a cache of packages or settings of its own."""
    folders = [os.environ["PATH"], str(Path(sys.executable).parent), str(ROOT / ".uv" / "bin")]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert shutil.which("npx")
    assert shutil.which("uvx")
    for name in list(os.environ):
        if name.upper().startswith(("NPM_CONFIG_", "UV_", "PIP_", "SSL_CERT_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    settings = {
        "HOME": str(tmp_path / "home"),
        "NPM_CONFIG_GLOBALCONFIG": str(tmp_path / "npmrc"),
        "NPM_CONFIG_CACHE": str(tmp_path / "npm"),
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
        "NPM_CONFIG_FETCH_RETRIES": "0",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_RETRIES": "0",
    }
    made = CompanyProxy(tmp_path)
    with made.serve() as network:
        for name, value in {**settings, **network}.items():
            monkeypatch.setenv(name, value)
        yield made


def gateway(folder: Path, **options: object) -> Gateway:
    servers = {name: {"command": command, "args": args, **options} for name, (command, args) in SERVERS.items()}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"listWait": 0.01, "mcpServers": servers}))
    return Gateway(file)


async def test_an_install_outlasts_the_deadline_and_goes_through_the_proxy(proxy: CompanyProxy, tmp_path: Path) -> None:
    made = gateway(tmp_path, connectTimeout=0.5)
    async with nothing_left(), Client(made) as client:
        # Both have been told the time that they have, and neither was stopped.
        await until(lambda: all("still starting" in one.problem for one in made.downstreams), INSTALL_SECONDS)
        await until(proxy.asked.is_set, INSTALL_SECONDS)
        proxy.delivers.set()
        await until(lambda: all(one.state == "ready" for one in made.downstreams), INSTALL_SECONDS)
        assert [one.spawns for one in made.downstreams] == [1, 1]
        assert (await client.call("main__js__hello")).text == "from npm"
        assert (await client.call("main__python__hello")).text == "from PyPI"


async def test_an_install_that_fails_is_reported_with_the_words_of_its_installer(
    proxy: CompanyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS")
    monkeypatch.delenv("SSL_CERT_FILE")
    made = gateway(tmp_path)
    async with nothing_left(), Client(made):
        await until(lambda: all(one.state == "failed" for one in made.downstreams), INSTALL_SECONDS)
    npx, uvx = (one.problem for one in made.downstreams)
    assert "certificate" in npx
    assert f"the log of npm is in {tmp_path / 'npm'}/_logs" in npx
    assert "certificate" in uvx.lower()
    assert "add --verbose to its arguments to see more" in uvx
