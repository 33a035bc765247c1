"""Programs that tools need: started, checked, restarted and stopped with the board."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Gateway
from pegboard.errors import DeclarationError
from pegboard.middleware import HelperProcess
from pegboard.testing import expect, make_call, run_alone
from tests.middleware.test_examples import load
from tests.waiting import until

pytestmark = pytest.mark.process

# Serves /health on a port; while the file "sick" exists, it answers 503.
PROGRAM = """
import http.server, pathlib, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if pathlib.Path("sick").exists() else 200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *about): pass
print("started", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


@pytest.fixture
def port() -> int:
    """A free port below those that the system gives to connections, so that nothing takes it meanwhile."""
    for number in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as candidate, suppress(OSError):
            candidate.bind(("127.0.0.1", number))
            return number
    raise AssertionError("no port is free")


def helper(folder: Path, port: int, **options: Any) -> HelperProcess:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-S", "program.py", str(port)]
    health = f"http://127.0.0.1:{port}/health"
    return HelperProcess(command, **{"health": health, "cwd": str(folder), "interval": 0.05, "wait": 20.0, **options})


def make_board(*helpers: HelperProcess) -> Board:
    board = Board("helped")

    @board.tool
    async def search() -> str:
        return "found"

    @board.tool
    async def other() -> str:
        return "here"

    board.use(*helpers, tool="search")
    return board


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_a_helper_runs_while_its_board_does_and_calls_wait_for_it(tmp_path: Path, port: int) -> None:
    one = helper(tmp_path, port)
    assert one.state == "stopped"
    async with Client(make_board(one)) as client:
        expect(await client.call("search")).text("found")
        assert (one.state, one.starts, one.problem) == ("healthy", 1, "")
        pid = one.pid
        assert pid is not None
        assert is_alive(pid)
    assert (one.state, one.pid) == ("stopped", None)
    assert not is_alive(pid)


async def test_a_helper_that_dies_is_started_again(tmp_path: Path, port: int) -> None:
    one = helper(tmp_path, port)
    async with Client(make_board(one)) as client:
        await client.call("search")
        first = one.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: one.state != "healthy")
        expect(await client.call("search")).text("found")
        assert one.starts == 2
        assert one.pid not in (None, first)


async def test_a_helper_that_fails_its_checks_is_started_again(tmp_path: Path, port: int) -> None:
    one = helper(tmp_path, port, wait=0.0)
    async with Client(make_board(one)) as client:
        await until(lambda: one.state == "healthy")
        (tmp_path / "sick").touch()
        await until(lambda: one.state == "unhealthy")
        refused = await client.call("search")
        expect(refused).refused("helper_unavailable").contains("search was not run")
        assert str(tmp_path) not in refused.text
        expect(await client.call("other")).text("here")
        (tmp_path / "sick").unlink()
        await until(lambda: one.state == "healthy")
        expect(await client.call("search")).text("found")


async def test_a_helper_that_runs_already_is_used_and_left_running(tmp_path: Path, port: int) -> None:
    first, second = helper(tmp_path, port), helper(tmp_path, port)
    async with Client(make_board(first)) as owner:
        await owner.call("search")
        async with Client(make_board(second)) as client:
            expect(await client.call("search")).text("found")
            assert (second.state, second.starts, second.pid) == ("healthy", 0, None)
        assert first.pid is not None
        assert is_alive(first.pid)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["no-such-program-of-test"], "there is no program 'no-such-program-of-test' on the PATH"),
        (
            [sys.executable, "-c", "import sys; sys.exit('no configuration')"],
            "ended with exit code 1, saying: no configuration",
        ),
    ],
)
async def test_a_helper_that_cannot_run_fails_and_the_board_serves_on(command: list[str], problem: str) -> None:
    one = HelperProcess(command, health=lambda: False, restarts=1)
    async with Client(make_board(one)) as client:
        await until(lambda: one.state == "failed")
        assert one.problem == problem
        expect(await client.call("search")).refused("helper_unavailable")
        expect(await client.call("other")).text("here")


async def test_a_helper_that_never_becomes_healthy_fails(caplog: pytest.LogCaptureFixture) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    one = HelperProcess(command, health="tcp://127.0.0.1:1", startup_seconds=0.3, restarts=0, name="sleeper")
    async with Client(make_board(one)):
        await until(lambda: one.state == "failed")
        assert one.problem == "not healthy after 0.3 s"
    assert "sleeper: failed 1 times in a row and is not started again" in caplog.text


async def test_a_port_or_a_function_can_say_that_it_is_healthy(tmp_path: Path, port: int) -> None:
    checks: list[int] = []

    async def check() -> bool:
        checks.append(1)
        if len(checks) == 1:
            raise ValueError("not yet")
        return len(checks) > 2

    for health in (f"tcp://127.0.0.1:{port}", check):
        async with Client(make_board(helper(tmp_path, port, health=health))) as client:
            expect(await client.call("search")).text("found")


async def test_a_stopped_helper_rejects_calls_without_waiting() -> None:
    run = await run_alone(HelperProcess(["a"], wait=0.0), call=make_call("search"))
    assert (run.ran, getattr(run.exception, "reason", "")) == (0, "helper_unavailable")


async def test_the_example_runs(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_PORT", str(port))
    example = load("helpers")
    async with Client(example.board) as client:
        await until(lambda: example.files.state == "healthy")
        expect(await client.call("file_server")).text("healthy")
        expect(await client.call("read_example", {"name": "hello"})).ok().contains('board = Board("hello"')


async def test_a_gateway_file_starts_a_helper(tmp_path: Path, port: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "tools.py").write_text(
        "from pegboard import Board\nboard = Board('b')\n@board.tool\nasync def search() -> str:\n    return 'found'\n"
    )
    options = {
        "command": [sys.executable, "-S", "program.py", str(port)],
        "cwd": str(tmp_path),
        "health": f"http://127.0.0.1:{port}/",
        "wait": 20,
    }
    toolbox = {
        "description": "x",
        "mcpServers": {"tools": {"board": "tools.py"}},
        "middleware": [{"use": "HelperProcess", "options": options}],
    }
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps({"toolboxes": {"main": toolbox}}))
    async with asyncio.timeout(30), Client(Gateway(file)) as client:
        expect(await client.call("main__tools__search")).text("found")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"command": "redis-server"}, "command='redis-server': use a list of words"),
        ({"command": []}, "command=[]: use a list"),
        ({"command": ["a"], "health": "localhost:80"}, "health='localhost:80': use an http:// URL"),
        ({"command": ["a"], "health": "tcp://localhost:none"}, "health='tcp://localhost:none': use an http:// URL"),
        ({"command": ["a"], "interval": 0}, "startup_seconds and interval must be greater than 0"),
    ],
)
def test_options_that_make_no_sense_are_rejected(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        HelperProcess(**options)
    assert str(caught.value).startswith(problem)
