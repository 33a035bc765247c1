"""Serving until told to stop: signals, the order of the end, addresses, TLS, sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pegboard import Client
from tests.server_processes import PEGBOARD, PLAIN_PEGBOARD, ROOT, ROUGH, Child, HttpChild, finish
from tests.waiting import SOON, wait_until

pytestmark = pytest.mark.process

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(scope="module", params=[PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def shared(request: pytest.FixtureRequest) -> Iterator[HttpChild]:
    """One server for all tests that leave it as they found it."""
    with HttpChild(command=request.param) as child:
        yield child


# -- what a tool may do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["leave", "leave_async", "leave_behind"])
@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_a_tool_cannot_end_the_server(shared: HttpChild, tool: str, how: str) -> None:
    shared.text(tool, how=how)
    assert shared.text("add", a=1, b=1) == "2"
    assert shared.process.poll() is None


def test_a_stray_exit_does_not_disturb_the_calls_of_others(shared: HttpChild) -> None:
    held = shared.start_call("hold", key="stray")
    shared.text("begun", key="stray")
    for how in ("exit", "interrupt"):
        shared.text("leave_behind", how=how)
    shared.text("release", key="stray")
    assert finish(held)[1]["result"]["content"][0]["text"] == "held stray"


def test_a_tool_that_blocks_its_thread_does_not_delay_other_calls(shared: HttpChild) -> None:
    held = shared.start_call("hold_thread", key="block")
    shared.text("begun", key="block")
    for number in range(20):
        assert shared.text("add", a=number, b=1) == str(number + 1)
    shared.text("release", key="block")
    assert finish(held)[0] == 200


def test_a_server_is_healthy_and_ready(shared: HttpChild) -> None:
    assert shared.get("/health")[0] == 200
    assert shared.get("/ready")[0] == 200


def _page_faults(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="only glibc is tuned")
def test_large_results_reuse_the_memory_of_the_ones_before(shared: HttpChild) -> None:
    for _ in range(10):
        shared.text("big", size=2**20)
    before = _page_faults(shared.process.pid)
    for _ in range(20):
        shared.text("big", size=2**20)
    # A megabyte has 256 pages, and there are several copies of it.
    assert _page_faults(shared.process.pid) - before < 20 * 64


# -- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_running_calls_finish_and_refuses_new_ones(number: int, command: tuple[str, ...]) -> None:
    with HttpChild(command=command) as child:
        held = [child.start_call("hold", key="drain"), child.start_call("hold_thread", key="drain")]
        child.text("begun", key="drain")
        # A thread tells when it begins, so both are under way.
        child.text("begun", key="drain")
        child.signal(number)
        wait_until(lambda: child.get("/ready")[0] == 503)
        status, answer = child.call("add", a=1, b=1)
        assert status == 503
        assert "shutting down" in answer["error"]["message"]
        assert child.get("/health")[0] == 200
        # Nobody can release them by a call any more: they are ended by the second signal, with an answer each.
        child.signal(number)
        for one in held:
            status, answer = finish(one)
            assert status == 503
            assert "shutting down" in answer["error"]["message"]
        assert child.wait() == 0


def test_a_call_that_ends_in_time_is_answered_during_the_drain() -> None:
    with HttpChild() as child:
        held = child.start_call("pause", key="late", seconds=0.7)
        child.text("begun", key="late")
        child.signal()
        status, answer = finish(held)
        assert (status, answer["result"]["content"][0]["text"]) == (200, "paused")
        assert child.wait() == 0


def test_an_idle_server_ends_at_once() -> None:
    with HttpChild(ROUGH_DRAIN="600") as child:
        idle = child.connect()
        idle.request("GET", "/health")
        idle.getresponse().read()
        child.signal()
        assert child.wait() == 0
        idle.close()


def test_a_call_that_outlives_the_drain_is_answered_with_an_error() -> None:
    with HttpChild(ROUGH_DRAIN="0.2") as child:
        held = [child.start_call("hold", key="never"), child.start_call("hold_thread", key="never")]
        child.text("begun", key="never")
        child.signal()
        for one in held:
            status, answer = finish(one)
            assert status == 503
            assert "shutting down" in answer["error"]["message"]
        assert child.wait() == 0


@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
def test_a_hundred_calls_in_flight_are_all_answered_or_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    file, go = tmp_path / "many.py", tmp_path / "go"
    file.write_text(
        "import asyncio, time\n"
        "from pathlib import Path\n"
        "from pegboard import Board, Limits\n"
        "board = Board('many', limits=Limits(drain_seconds=600))\n"
        f"go = Path({str(go)!r})\n"
        "begun = []\n"
        "@board.tool\n"
        "async def finish() -> str:\n"
        "    begun.append(1)\n"
        "    while not go.exists():\n"
        "        await asyncio.sleep(0.02)\n"
        "    return 'finished'\n"
        "@board.tool\n"
        "def finish_in_thread() -> str:\n"
        "    begun.append(1)\n"
        "    while not go.exists():\n"
        "        time.sleep(0.02)\n"
        "    return 'finished'\n"
        "@board.tool\n"
        "async def never() -> None:\n"
        "    begun.append(1)\n"
        "    await asyncio.Event().wait()\n"
        "@board.tool\n"
        "async def count() -> int:\n"
        "    return len(begun)\n"
    )
    with HttpChild(target=file, command=command) as child:
        answered = [child.start_call(tool) for tool in ["finish"] * 45 + ["finish_in_thread"] * 5]
        refused = [child.start_call("never") for _ in range(50)]
        wait_until(lambda: child.text("count") == "100")
        child.signal()
        wait_until(lambda: child.get("/ready")[0] == 503)
        go.touch()
        for one in answered:
            status, answer = finish(one)
            assert (status, answer["result"]["content"][0]["text"]) == (200, "finished")
        # A second signal ends the drain.
        child.signal()
        for one in refused:
            status, answer = finish(one)
            assert status == 503
            assert "shutting down" in answer["error"]["message"]
        assert child.wait() == 0


@pytest.mark.parametrize("command", [PEGBOARD, PLAIN_PEGBOARD], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("tool", ["block_the_loop", "start_thread"])
def test_nothing_an_author_blocks_keeps_the_process(tool: str, command: tuple[str, ...]) -> None:
    with HttpChild(command=command, ROUGH_DRAIN="0.2") as child:
        held = child.start_call(tool)
        if tool == "start_thread":
            assert finish(held)[0] == 200
        else:
            wait_until(lambda: "blocking" in child.said())
        child.signal()
        assert child.wait() == 0
        held.close()


def test_services_of_the_application_are_cleaned_up_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "served.py"
    file.write_text(
        "from pegboard import Board\n"
        "board = Board('s')\n"
        "class Pool: ...\n"
        "async def open_pool():\n"
        "    yield Pool()\n"
        "    print('pool closed', flush=True)\n"
        "    raise RuntimeError('late')\n"
        "board.services.factory(Pool, open_pool, lifetime='app')\n"
        "@board.tool\n"
        "def use(pool: Pool) -> str:\n"
        "    return 'used'\n"
    )
    with HttpChild(target=file) as child:
        assert child.text("use") == "used"
        child.signal()
        assert child.wait() == 0
        assert "cleaning up failed" in child.said()


async def test_a_question_that_was_asked_before_a_restart_is_answered_after_it(tmp_path: Path) -> None:
    file, flags = tmp_path / "asks.py", ("--store", f"sqlite:{tmp_path / 'kept.db'}")
    file.write_text(
        "from pegboard import Board, Context\n"
        "board = Board('asks')\n"
        "@board.tool\n"
        "async def delete(ctx: Context, file: str) -> str:\n"
        "    sure = await ctx.elicit(f'Delete {file}?', bool)\n"
        "    return f'deleted {file}' if sure.content else 'kept'\n"
    )
    with ExitStack() as servers:
        first = servers.enter_context(HttpChild(*flags, target=file))

        def restart() -> None:
            first.signal()
            assert first.wait() == 0
            servers.enter_context(HttpChild(*flags, "--port", str(first.port), target=file))

        async def answer(_: object) -> dict[str, bool]:
            await asyncio.to_thread(restart)
            return {"value": True}

        async with Client(f"http://127.0.0.1:{first.port}/mcp", elicit=answer) as client:
            assert (await client.call("delete", {"file": "a"})).text == "deleted a"


# -- where -----------------------------------------------------------------------------------------------------------


def one_line(child: Child) -> str:
    assert child.wait() == 2
    (line,) = child.said().strip().splitlines()
    return line


def test_a_port_in_use_is_one_line_and_exit_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with Child(*PEGBOARD, "run", ROUGH, "--http", "--port", port, stdin=subprocess.DEVNULL) as child:
            line = one_line(child)
        assert port in line
        assert "choose another port" in line
        with Child(sys.executable, ROUGH, stdin=subprocess.DEVNULL, ROUGH_PORT=port) as child:
            assert port in one_line(child)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_an_address_that_others_can_reach_needs_a_flag(host: str) -> None:
    with Child(*PEGBOARD, "run", ROUGH, "--http", "--host", host, stdin=subprocess.DEVNULL) as child:
        line = one_line(child)
    assert host in line
    assert "--public" in line


def test_an_address_that_others_can_reach_needs_authentication_or_a_second_flag() -> None:
    with Child(*PEGBOARD, "run", ROUGH, "--http", "--host", "0.0.0.0", "--public", stdin=subprocess.DEVNULL) as child:
        line = one_line(child)
    assert "--no-auth" in line


def test_public_binds_every_address() -> None:
    with HttpChild("--host", "0.0.0.0", "--public", "--no-auth", shown="0.0.0.0") as child:
        assert child.text("add", a=1, b=1) == "2"


def test_public_tells_the_address_of_the_machine_and_that_nothing_is_authenticated() -> None:
    with HttpChild("--host", "0.0.0.0", "--public", "--no-auth", shown="0.0.0.0") as child:
        wait_until(lambda: "Clients must use an IP address" in child.said())
        assert "WARNING pegboard  There is no authentication" in child.said()
        found = re.search(r"Other machines reach it at http://([0-9.]+):(\d+)/mcp$", child.said(), re.MULTILINE)
        # A machine without any network has no such address.
        assert found is not None or not default_address()
        if found is not None:
            assert (found[1], int(found[2])) == (default_address(), child.port)
    with HttpChild() as child:
        assert "There is no authentication" not in child.said()


def default_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(("more", "said"), [((), True), (("--allow-host", "board.example"), False)])
def test_public_says_how_to_allow_host_names(more: tuple[str, ...], said: bool) -> None:
    with HttpChild("--host", "0.0.0.0", "--public", "--no-auth", *more, shown="0.0.0.0") as child:
        child.process.terminate()
        assert child.wait() == 0
        assert ("--allow-host NAME" in child.said()) is said


def test_a_path_prefix_moves_everything() -> None:
    with HttpChild("--path-prefix", "/tools/") as child:
        assert child.path == "/tools/mcp"
        assert child.text("add", a=1, b=1) == "2"
        assert child.get("/tools/health")[0] == 200
        assert child.get("/health")[0] == 404
        child.path = "/tools/mcp/"
        assert child.text("add", a=1, b=1) == "2"
        child.path = "/mcp"
        assert child.call("add", a=1, b=1)[0] == 404


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--path-prefix", "tools"], "/tools"),
        (["--tls-cert", "cert.pem"], "--tls-key"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"], "nowhere.pem"),
        (["--cors", "example.com"], "https://"),
        (["--uds", "/nowhere/at/all.sock"], "/nowhere/at/all.sock"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_fix(flags: list[str], hint: str) -> None:
    with Child(*PEGBOARD, "run", ROUGH, "--http", "--port", "0", *flags, stdin=subprocess.DEVNULL) as child:
        assert hint in one_line(child)


def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "board.sock"
    with Child(*PEGBOARD, "run", ROUGH, "--http", "--uds", path, stdin=subprocess.DEVNULL, stdout=None) as child:
        # The file is there before anybody listens on it.
        wait_until(lambda: f"unix:{path}" in child.said())
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(SOON)
            peer.connect(str(path))
            peer.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert peer.recv(1000).startswith(b"HTTP/1.1 200")
        child.signal()
        assert child.wait() == 0
        assert not path.exists()


def test_tls_is_served(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
            f"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {cert}"
        ).split(),
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    with HttpChild("--tls-cert", str(cert), "--tls-key", str(key)) as child:
        assert f"https://127.0.0.1:{child.port}/mcp" in child.said()
        trust = ssl.create_default_context(cafile=str(cert))
        connection = http.client.HTTPSConnection("127.0.0.1", child.port, timeout=SOON, context=trust)
        connection.request("GET", "/ready")
        assert connection.getresponse().read() == b'{"status":"ready"}'
        connection.close()
        child.signal()
        assert child.wait() == 0


# -- which transport -------------------------------------------------------------------------------------------------


def test_a_board_that_runs_itself_serves_http_without_stdin_and_says_where() -> None:
    with Child(sys.executable, ROUGH, stdin=subprocess.DEVNULL, ROUGH_PORT="0") as child:
        wait_until(lambda: "rough: serving HTTP at http://127.0.0.1:" in child.said())
        child.signal()
        assert child.wait() == 0


def test_a_board_that_runs_itself_serves_http_on_a_terminal() -> None:
    controller, terminal = pty.openpty()
    try:
        with Child(sys.executable, ROUGH, stdin=terminal, stdout=terminal, ROUGH_PORT="0") as child:
            wait_until(lambda: "rough: serving HTTP at http://127.0.0.1:" in child.said())
            child.signal(signal.SIGINT)
            assert child.wait() == 0
    finally:
        os.close(controller)
        os.close(terminal)


def test_what_follows_run_in_the_authors_program_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import signal, sys, time\n"
        "from pegboard import Board, Limits\n"
        "Board('s', limits=Limits(drain_seconds=0)).run(port=0, transport='http')\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "time.sleep(2.5)\n"
        "print('after', file=sys.stderr)\n"
        "sys.exit(7)\n"
    )
    with Child(sys.executable, file, stdin=subprocess.DEVNULL) as child:
        wait_until(lambda: "serving HTTP" in child.said())
        child.signal()
        assert child.wait() == 7
        assert "after" in child.said()


def test_the_first_lines_tell_a_newcomer_what_to_do() -> None:
    with HttpChild(target=ROOT / "examples" / "hello.py") as child:
        said = child.said()
        assert "hello: 2 tools" in said
        assert f"http://127.0.0.1:{child.port}/mcp" in said
        assert "pegboard call" in said
        assert json.loads(child.get("/health")[1])["status"] == "ok"
