"""A confined program has what its entry allows and nothing else; where that is impossible, it is not started."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Client, Gateway
from pegboard.client.transports import confinement
from pegboard.client.transports.confined_program import SYSCALLS
from pegboard.client.transports.confinement import find_confinement_problem, limited_command
from pegboard.config.confinement_keys import Confinement
from pegboard.config.gateway_config import read_config
from pegboard.errors import PegboardError, SetupError, Unreachable
from pegboard.gateway.servers.confinement_report import check_confinement

pytestmark = pytest.mark.process

SERVER = Path(__file__).with_name("confined_server.py")
ROOT = SERVER.parents[3]
PYTHON = [sys.prefix, sys.base_prefix, str(ROOT / "src"), str(SERVER.parent)]


def entry(confine: Any = None, **more: Any) -> dict[str, Any]:
    """The server, with what a program in Python needs to read."""
    if isinstance(confine, dict):
        confine = {**confine, "read": [*PYTHON, *confine.get("read", ())]}
    limits = {} if confine is None else {"confine": confine}
    return {
        "command": sys.executable,
        "args": [str(SERVER)],
        "env": {"PYTHONPATH": str(ROOT / "src")},
        **limits,
        **more,
    }


async def system_problem(*, network: bool = False) -> str:
    """Why this machine cannot confine a program; empty if it can."""
    return await find_confinement_problem((), None, Confinement(network=network), None, os.environ)


class Attempts:
    """A started server that tries what it is told to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, what: str, where: object = "") -> str:
        return (await self._client.call("attempt", {"what": what, "where": str(where)})).text


@asynccontextmanager
async def started(server: dict[str, Any], *, network: bool = False) -> AsyncIterator[Attempts | None]:
    """The server; None if this machine cannot confine it, which its client must report instead of starting it."""
    problem = await system_problem(network=network) if "confine" in server else ""
    if problem:
        with pytest.raises(PegboardError, match="cannot be confined"):
            async with Client(server, connect_timeout=30):
                pass
        yield None
        return
    async with Client(server, connect_timeout=60, timeout=60) as client:
        yield Attempts(client)


async def test_a_confined_program_has_none_of_the_keys_in_the_keyring_of_its_user() -> None:
    """A process with a key in its session keyring becomes the launcher, and that the program which looks for the key."""
    keyctl = SYSCALLS[os.uname().machine][1]
    libc = "import ctypes, os, sys\nsyscall = ctypes.CDLL(None).syscall\n"
    look = f"{libc}print('found' if syscall({keyctl - 1}, b'user', b'ticket', None, 0) > 0 else 'none')"
    add = f"syscall({keyctl}, 1, None); syscall({keyctl - 2}, b'user', b'ticket', b'secret', 6, -3)"
    program = [sys.executable, "-I", "-c", look]
    found = []
    for command in (program, limited_command(program, None, Confinement(read=tuple(PYTHON)), None)):
        begun = f"{libc}{add}; os.execv(sys.argv[1], sys.argv[1:])"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", begun, *command, stdout=PIPE, stderr=PIPE)
        said, problem = await process.communicate()
        found.append(said.decode().strip() or problem.decode())
    assert found[1] == "none" or "cannot be confined" in found[1]
    assert found[0] in ("found", "none")


async def test_a_confined_program_reads_and_writes_only_what_its_entry_allows(tmp_path: Path) -> None:
    for name in ("readable", "writable", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    allowed = {"read": [str(tmp_path / "readable")], "write": [str(tmp_path / "writable")]}
    async with started(entry(allowed)) as attempt:
        if attempt is None:
            return
        assert await attempt("read", tmp_path / "readable" / "file") == "readable"
        assert await attempt("write", tmp_path / "readable" / "file") == "OSError", "a read-only file system"
        assert await attempt("write", tmp_path / "writable" / "file") == "written"
        assert await attempt("read", tmp_path / "other" / "file") == "FileNotFoundError"
        assert await attempt("write", "/etc/pegboard-test") == "OSError"
        assert await attempt("write", "/usr/pegboard-test") == "OSError"
        assert await attempt("list", "/run") == ""
        home = str(Path.home())
        assert (await attempt("where")).endswith(home)
        seen = (await attempt("list", home)).split()
        assert all(name in "".join(PYTHON) for name in seen), "the home folder has only what leads to readable folders"
        assert await attempt("write", f"{home}/cache") == "written"
        assert await attempt("write", "/tmp/cache") == "written"
    assert (tmp_path / "writable" / "file").read_text() == "written"
    assert (tmp_path / "readable" / "file").read_text() == "readable"
    assert not (Path.home() / "cache").exists()


async def test_a_confined_program_reaches_no_process_socket_or_network_of_others(tmp_path: Path) -> None:
    tcp = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda _, writer: writer.close(), tmp_path / "socket")
    port = tcp.sockets[0].getsockname()[1]
    try:
        async with started(entry({})) as attempt:
            if attempt is not None:
                assert await attempt("connect", port) == "ConnectionRefusedError", "its loopback is its own"
                assert await attempt("unix", tmp_path / "socket") == "FileNotFoundError"
                assert await attempt("read", f"/proc/{os.getpid()}/environ") == "PermissionError"
                assert await attempt("list", f"/proc/{os.getpid()}/root") == "PermissionError"
        async with started(entry({"network": True}), network=True) as attempt:
            if attempt is not None:
                assert await attempt("connect", port) == "connected"
        async with started(entry()) as attempt:
            assert attempt is not None
            assert await attempt("connect", port) == "connected"
    finally:
        tcp.close()
        unix.close()
        await tcp.wait_closed()
        await unix.wait_closed()


@pytest.mark.parametrize("confine", [{}, None], ids=["confined", "not confined"])
async def test_the_resources_of_a_program_are_limited(confine: dict[str, Any] | None) -> None:
    resources = {"memory": "400MiB", "processes": 3000, "cpuSeconds": 500, "openFiles": 200}
    async with started(entry(confine, resources=resources)) as attempt:
        if attempt is None:
            return
        assert await attempt("limits") == f"{400 * 1024**2} 3000 500 200"
        assert await attempt("memory", 10**9) == "MemoryError"


async def test_a_program_that_it_may_not_read_is_not_started() -> None:
    if await system_problem():
        return
    hidden = {**entry(), "confine": {"network": False}}
    with pytest.raises(PegboardError, match=r"cannot be confined: .*add the folder .*confine\.read"):
        async with Client(hidden, connect_timeout=30):
            pass


async def test_what_cannot_be_taken_away_ends_the_launcher_before_the_program(tmp_path: Path) -> None:
    wanted = Confinement(write=(str(tmp_path / "missing"),))
    process = await asyncio.create_subprocess_exec(
        *limited_command(["/bin/sh", "-c", "echo started"], None, wanted, None), stdout=PIPE, stderr=PIPE
    )
    said, error = await process.communicate()
    assert (process.returncode, said) == (126, b"")
    assert b"not started, because it cannot be confined: " in error


async def test_where_the_system_has_no_confinement_the_program_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement.sys, "platform", "darwin")
    with pytest.raises(Unreachable, match="confinement needs Linux; remove `confine`"):
        async with Client(entry({}), connect_timeout=30):
            pass


async def test_the_report_tells_what_each_server_gets_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    servers = {
        "free": {"command": sys.executable},
        "confined": {
            "command": "/bin/sh",
            "confine": {"write": [str(tmp_path / "data")]},
            "resources": {"memory": "1GiB"},
        },
        "hidden": {"command": sys.executable, "confine": True},
        "far": {"url": "https://example.com/mcp"},
    }
    config = read_config({"toolboxes": {"box": {"description": "d", "mcpServers": servers}}})
    system, free, confined, hidden = await check_confinement(config)
    assert (free.server, free.state) == ("box/free", "open")
    assert "confine" in free.fix
    if system.state == "failed":
        assert confined.state == hidden.state == "failed"
        assert system.fix
        return
    assert system.text == "servers can be confined on this system"
    assert confined.state == "ok"
    assert confined.text == (f"reads the system, writes {tmp_path}/data, has no network; limits: 1,073,741,824 memory")
    if not sys.prefix.startswith("/usr"):
        assert (hidden.state, "confine.read" in hidden.fix) == ("failed", True)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"confine": {"write": ["./missing"]}}, r"confine\.write\[0\].*not found"),
        ({"confine": {"writes": []}}, "has no key 'writes'"),
        ({"confine": 7}, "confine"),
        ({"resources": {"memory": "much"}}, "512MiB"),
        ({"resources": {"memory": 5}}, "at least 16 MiB"),
        ({"resources": {"openFiles": -1}}, "openFiles"),
    ],
)
def test_a_mistake_in_the_entry_names_the_key(keys: dict[str, Any], problem: str) -> None:
    server = {"command": "/bin/sh", **keys}
    with pytest.raises(SetupError, match=problem):
        Gateway({"toolboxes": {"box": {"description": "d", "mcpServers": {"one": server}}}})


def test_a_remote_server_cannot_be_confined() -> None:
    server = {"url": "https://example.com/mcp", "confine": True}
    config = read_config({"toolboxes": {"box": {"description": "d", "mcpServers": {"one": server}}}})
    assert any("is not used by a server over http" in warning for warning in config.warnings)


def test_the_entries_in_the_document_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    python = (".venv", ".pyenv/versions/3.13.0", "notes-server")
    for folder in ("notes", ".local/bin", ".local/share/uv", ".cache/uv", *python):
        (tmp_path / folder).mkdir(parents=True)
    found = re.findall(
        r"^```json\n(.*?)^```$", (ROOT / "docs" / "confinement.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(found) == 4
    for text in found:
        entry = json.loads(text)
        servers = entry.get("mcpServers", {"one": entry})
        config = read_config({"toolboxes": {"box": {"description": "d", "mcpServers": servers}}})
        assert not config.warnings
