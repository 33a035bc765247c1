"""`pegboard up` as a process: what it says, what it serves, what it does with edits, signals and restarts."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from pegboard import Client
from tests.server_processes import PEGBOARD, HttpChild, StdioChild
from tests.waiting import HANGS, SOON, until, wait_until

pytestmark = pytest.mark.process

BOARD = """
import os

from pegboard import Board

board = Board("{name}")


@board.tool
def add(a: int, b: int) -> int:
    \"\"\"Adds two numbers.\"\"\"
    return a + b


@board.tool
def pid() -> int:
    return os.getpid()
"""


DEAF = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "d", "version": "1"}},
            "tools/list": {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
        }.get(asked["method"])
        outcome = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}), flush=True)
while True:
    time.sleep(60)
"""


class Folder:
    """A configuration with its boards, and the command run on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "gateway.json"
        for name in ("sums", "more"):
            (path / f"{name}.py").write_text(BOARD.replace("{name}", name))
        self.servers: dict[str, Any] = {"sums": self.child("sums"), "more": {"board": "more.py"}}
        self.write()

    @staticmethod
    def child(name: str) -> dict[str, Any]:
        """A server on stdio."""
        return {"command": sys.executable, "args": ["-m", "pegboard", "run", f"{name}.py", "--stdio"]}

    def write(self, text: str | None = None, **more: Any) -> None:
        toolbox = {"description": "For work", "mcpServers": self.servers}
        self.config.write_text(text or json.dumps({"toolboxes": {"dev": toolbox}, "listWait": SOON, **more}))

    @property
    def env(self) -> dict[str, str]:
        return {"PEGBOARD_STATE": str(self.path / "state")}

    def up(self, *words: str, **env: str) -> HttpChild:
        return HttpChild(*words, verb="up", target=self.config, **self.env, **env)

    def run(self, *words: str, **env: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*PEGBOARD, *words],
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=self.path,
            env={**os.environ, **self.env, **env},
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class Collector:
    """Takes what is exported to it."""

    def __enter__(self) -> Self:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def settled(child: HttpChild) -> str:
    """All that it says once its servers have answered."""
    wait_until(lambda: "add to" in child.said() or child.process.poll() is not None)
    return child.said()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- what it says and serves -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Folder, HttpChild]]:
    folder = Folder(tmp_path_factory.mktemp("served"))
    folder.servers["gone"] = {"command": "no-such-program", "env": {"TOKEN": "${SECRET_TOKEN}"}}
    folder.servers["away"] = {"url": "http://127.0.0.1:9/${SECRET_TOKEN}/mcp"}
    folder.servers["later"] = {**folder.child("more"), "lazy": True}
    folder.write()
    with folder.up(SECRET_TOKEN="hunter2hunter2") as child:
        settled(child)
        yield folder, child


def test_it_tells_what_is_there_what_is_not_and_what_to_do_next(served: tuple[Folder, HttpChild]) -> None:
    _, child = served
    # Printed once more when the last server has started, should that take long.
    ready = re.compile(r"^  2 of 5 servers ready in \d+\.\d s, 1 starts when it is needed: 4 tools$", re.MULTILINE)
    wait_until(lambda: ready.search(child.said()) is not None)
    said = child.said()
    address = f"http://127.0.0.1:{child.port}"
    assert re.search(rf"^pegboard \S+   pegboard: {address}/mcp$", said, re.MULTILINE)
    for row in (
        r"    dev  sums   ready   stdio  2 tools",
        r"         more   ready   board  2 tools",
        r"         gone   failed  stdio",
        r"         away   failed  http",
        r"         later  idle    stdio  not started",
    ):
        assert re.search(rf"^{row}$", said, re.MULTILINE), said
    assert "there is no program 'no-such-program' on the PATH" in said
    assert f"{address}/toolboxes/dev/mcp" in said
    assert re.search(rf"^  try      \S+ list {address}/mcp$", said, re.MULTILINE)
    assert f"claude mcp add --transport http pegboard {address}/mcp" in said
    assert "tokens   all: 4 tools, about" in said
    assert "hunter2" not in said
    assert "Traceback" not in said


def test_every_line_is_json_where_the_log_is_and_names_the_server_it_is_about(folder: Folder) -> None:
    folder.servers["gone"] = {"command": "no-such-program", "env": {"TOKEN": "${SECRET_TOKEN}"}}
    folder.write()
    with folder.up("--log-format", "json", SECRET_TOKEN="hunter2hunter2") as child:
        wait_until(lambda: "2 of 3 servers ready in" in child.said() or child.process.poll() is not None)
        lines = [json.loads(line) for line in child.said().splitlines()]
    by_server: dict[str, list[str]] = {}
    for line in lines:
        by_server.setdefault(line.get("server", ""), []).append(line["message"])
    about = f"pegboard: http://127.0.0.1:{child.port}/mcp"
    assert [text for text in by_server.pop("") if text.endswith(about) or text.startswith("2 of 3")] != []
    assert all(text.startswith(name) for name, texts in by_server.items() for text in texts)
    assert any("was started" in text for text in by_server["dev/sums"])
    assert "dev/sums: is ready" in by_server["dev/sums"]
    assert "dev/more: is ready" in by_server["dev/more"]
    assert by_server["dev/gone"] == ["dev/gone: no-such-program: there is no program 'no-such-program' on the PATH"]


def test_an_error_at_the_start_is_json_where_the_log_is(folder: Folder) -> None:
    folder.write("{")
    code, _, err = folder.run("up", "gateway.json", "--log-format", "json")
    assert code == 2
    assert json.loads(err)["message"].startswith(f"pegboard up: {folder.config}:1: Invalid JSON")


@pytest.mark.parametrize("state", ["file/state", "/proc/no-folder-can-be-made-here"])
def test_a_state_folder_that_cannot_be_made_matters_only_to_what_is_stored(folder: Folder, state: str) -> None:
    (folder.path / "file").write_text("not a folder")
    there = str(folder.path / state)
    code, out, err = folder.run("list", "gateway.json", PEGBOARD_STATE=there)
    assert (code, err) == (0, "")
    assert "dev__sums__add" in out
    code, _, err = folder.run("up", "gateway.json", PEGBOARD_STATE=there)
    assert code == 2
    assert re.fullmatch(
        r"pegboard up: .+ cannot be created: .+; set PEGBOARD_STATE to .+, or use --store memory\n", err
    )
    with HttpChild("--store", "memory", verb="up", target=folder.config, PEGBOARD_STATE=there) as child:
        assert "2 of 2 servers ready" in settled(child)


async def test_sighup_reloads_the_file(folder: Folder) -> None:
    with folder.up("--no-watch") as child:
        settled(child)
        folder.servers["again"] = {"board": "sums.py"}
        folder.write()
        child.signal(signal.SIGHUP)
        wait_until(lambda: "was edited: added: dev/again" in child.said() or child.process.poll() is not None)
        async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
            assert (await client.call("dev__again__add", {"a": 2, "b": 3})).text == "5"
        folder.write("{")
        child.signal(signal.SIGHUP)
        wait_until(lambda: "The edited configuration is not used" in child.said())
        assert child.process.poll() is None


async def test_metrics_of_the_file_are_scraped_and_its_spans_are_exported(folder: Folder) -> None:
    # A server measured twice is counted once.
    folder.servers["sums"]["middleware"] = ["Metrics"]
    folder.write(middleware=["Metrics", "Tracing"])
    with Collector() as collector:
        with folder.up(OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, OTEL_SERVICE_NAME="gate") as child:
            settled(child)
            async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
                await client.call("dev__sums__add", {"a": 2, "b": 3})
            status, body = child.get("/metrics")
            assert status == 200
            count = 'mcp_server_operation_duration_seconds_count{mcp_method_name="tools/call",gen_ai_tool_name="dev__sums__add"} 1'
            assert count in body.decode().splitlines()
            child.signal()
            assert child.wait() == 0
        assert any(b"tools/call dev__sums__add" in sent and b"gate" in sent for sent in collector.bodies)


def test_tracing_without_a_place_to_export_to_says_so(folder: Folder) -> None:
    folder.write(middleware=["Tracing"])
    with folder.up() as child:
        assert "Tracing: spans are not exported; set OTEL_EXPORTER_OTLP_ENDPOINT" in settled(child)
        assert child.get("/metrics")[0] == 404


def test_it_is_ready_once_all_required_servers_are_up(folder: Folder) -> None:
    folder.servers["gone"] = {"command": "no-such-program"}
    folder.servers["sums"]["required"] = True
    folder.write()
    states = {
        "dev/sums": {"state": "ready", "required": True},
        "dev/more": {"state": "ready"},
        "dev/gone": {"state": "failed"},
    }
    with folder.up() as child:
        settled(child)
        status, body = child.get("/ready")
        assert (status, json.loads(body)) == (200, {"status": "ready", "store": "ready", "servers": states})
        folder.servers["gone"]["required"] = True
        folder.write()
        wait_until(lambda: child.get("/ready")[0] == 503)
        states["dev/gone"]["required"] = True
        assert json.loads(child.get("/ready")[1]) == {"status": "unready", "store": "ready", "servers": states}


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="only Linux with util-linux signals the death of a parent")
async def test_a_server_that_ignores_the_end_of_its_stdin_does_not_outlive_a_killed_gateway(folder: Folder) -> None:
    (folder.path / "deaf.py").write_text(DEAF)
    folder.servers["deaf"] = {"command": sys.executable, "args": ["-S", "deaf.py"]}
    folder.write()
    with folder.up() as child:
        settled(child)
        async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
            pid = int((await client.call("dev__deaf__pid")).text)
        child.signal(signal.SIGKILL)
        child.wait()
        await until(lambda: not is_running(pid))


def initialize(child: HttpChild) -> tuple[int, str | None]:
    """The status of the response to a new client, and the id of its session."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}).encode()
    connection = child.connect()
    try:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("mcp-session-id")
    finally:
        connection.close()


def test_a_full_disk_is_logged_once_and_opens_no_session(folder: Folder) -> None:
    folder.servers = {"more": {"board": "more.py"}}
    folder.write()
    # No file of this process may become larger, as on a full disk.
    limited = ("sh", "-c", 'ulimit -f 300; exec "$@"', "sh", *PEGBOARD)
    with HttpChild(verb="up", target=folder.config, command=limited, **folder.env) as child:
        settled(child)
        for _ in range(1000):
            status, session = initialize(child)
            if status != 200:
                break
        assert (status, session) == (503, None), child.said()
        wait_until(lambda: child.get("/ready")[0] == 503)
        assert json.loads(child.get("/ready")[1])["store"] == "unavailable"
        for _ in range(5):
            assert initialize(child) == (503, None)
        wait_until(lambda: "is considered dead by others" in child.said())
        for line in ("the store could not be written", "the heartbeat of this process", "is considered dead by others"):
            assert child.said().count(line) == 1, child.said()


async def test_the_process_of_a_session_ends_with_it(folder: Folder) -> None:
    folder.servers["sums"]["share"] = "session"
    folder.write()
    with folder.up() as child:
        settled(child)
        pids = []
        for _ in range(2):
            async with Client(f"http://127.0.0.1:{child.port}/mcp", version="2025-11-25") as client:
                pids.append(int((await client.call("dev__sums__pid")).text))
        assert pids[0] != pids[1]
        await until(lambda: not any(map(is_running, pids)))


def test_a_second_initialize_on_stdio_ends_the_process_of_the_first_session(folder: Folder) -> None:
    folder.servers["sums"]["share"] = "session"
    folder.write()
    with StdioChild(*PEGBOARD, "up", folder.config, "--stdio", **folder.env) as child:
        pids = []
        for _ in range(2):
            child.initialize()
            answer = child.request("tools/call", {"name": "dev__sums__pid", "arguments": {}})
            pids.append(int(answer["result"]["content"][0]["text"]))
        wait_until(lambda: not is_running(pids[0]))
        assert is_running(pids[1])


async def test_a_missing_variable_fails_its_server_alone(folder: Folder) -> None:
    folder.servers["keyed"] = {**folder.child("more"), "env": {"TOKEN": "${NOT_SET_ANYWHERE}"}}
    folder.write()
    with folder.up() as child:
        said = settled(child)
        assert re.search(r"^         keyed  failed  stdio$", said, re.MULTILINE), said
        reason = (
            "toolboxes.dev.mcpServers.keyed.env.TOKEN: Variable is not set: set NOT_SET_ANYWHERE in the environment"
        )
        assert reason in " ".join(said.split())
        async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
            assert (await client.call("dev__sums__add", {"a": 2, "b": 3})).text == "5"
            failed = await client.call("dev__keyed__add", {"a": 2, "b": 3})
            assert failed.text == (
                "[dev/keyed/add] Error: The server 'keyed' cannot be used until the operator of this gateway completes "
                "its configuration."
            )
            assert "NOT_SET" not in str(await client.request("tools/list"))


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("path", ["/mcp", "/toolboxes/dev/mcp"])
async def test_it_serves_clients_of_both_eras_at_both_places(
    served: tuple[Folder, HttpChild], path: str, version: str
) -> None:
    async with Client(f"http://127.0.0.1:{served[1].port}{path}", version=version) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names[:4] == ["dev__sums__add", "dev__sums__pid", "dev__more__add", "dev__more__pid"]
        assert (await client.call("dev__sums__add", {"a": "2", "b": 3})).text == "5"
        assert (await client.call("dev__later__add", {"a": 1, "b": 1})).text == "2"
        listed = await client.request("tools/list")
        assert listed["_meta"]["dev.pegboard/servers"] == {
            "dev/gone": {"state": "failed", "problem": "cannot be reached now; the gateway keeps trying"},
            "dev/away": {"state": "failed", "problem": "cannot be reached now; the gateway keeps trying"},
        }
        assert "hunter2" not in str(listed)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/toolboxes/dve/mcp", "Unknown toolbox 'dve'; all toolboxes are served at /mcp"),
        ("/toolboxes/dev/sse", "Not found; the toolbox is served at /toolboxes/dev/mcp"),
        ("/elsewhere", "Not found; the MCP endpoint is /mcp"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_to_go(served: tuple[Folder, HttpChild], path: str, told: str) -> None:
    status, body = served[1].get(path)
    assert (status, json.loads(body)["error"]["message"]) == (404, told)


def test_a_configuration_is_a_target_of_the_other_verbs(folder: Folder) -> None:
    folder.write('{"mcpServers": {"more": {"board": "more.py"}}}')
    code, out, err = folder.run("list", "gateway.json")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split("  ")[0] == "main__more__add(a, b)"
    assert folder.run("call", "gateway.json", "main__more__add", "a=2", "b=3")[:2] == (0, "5\n")
    code, out, err = folder.run("call", "gateway.json", "main__more__ad", "a=2")
    assert (code, out) == (2, "")
    assert re.search("[Dd]id you mean '?main__more__add'?", err)
    code, out, err = folder.run("inspect", "gateway.json")
    assert code == 0
    assert "main (1 server)" in out


# -- over stdio ----------------------------------------------------------------------------------------------------------


async def test_it_is_one_server_to_a_client_that_starts_it(folder: Folder) -> None:
    command = [*PEGBOARD, "up", str(folder.config), "--stdio"]
    pids = []
    for version in ("2026-07-28", "2025-11-25"):
        async with Client(command, version=version, env={**os.environ, **folder.env}) as client:
            assert len(await client.list_tools()) == 4
            pids += [int((await client.call(name)).text) for name in ("dev__sums__pid", "dev__more__pid")]
    await until(lambda: not any(map(is_running, pids)))
    # A client of stdio is one connection: nothing of it is kept.
    assert not list(folder.path.glob("state/*.sqlite"))


def test_nothing_but_messages_is_written_to_stdout_and_it_ends_with_its_client(folder: Folder) -> None:
    (folder.path / "more.py").write_text("print('loading')\n" + BOARD.replace("{name}", "more"))
    with StdioChild(*PEGBOARD, "up", folder.config, "--stdio", **folder.env) as child:
        assert child.initialize()["result"]["serverInfo"]["name"] == "pegboard"
        names = [tool["name"] for tool in child.request("tools/list")["result"]["tools"]]
        assert "dev__more__add" in names
        pid = int(child.request("tools/call", {"name": "dev__sums__pid"})["result"]["content"][0]["text"])
        child.hang_up()
        assert child.wait() == 0
        # What came besides was read as JSON, or the reader would have failed.
        assert [message for message in child.rest() if "method" not in message] == []
    wait_until(lambda: not is_running(pid))


# -- mistakes ------------------------------------------------------------------------------------------------------------


def test_all_mistakes_of_a_configuration_are_reported_together(folder: Folder) -> None:
    folder.write(
        '{"toolboxes": {"dev": {"mcpServers": {"a": {"comand": "x"},\n"b__c": {"command": "y", "timeout": "soon"}}}},\n'
        '"toolMod": "all"}'
    )
    code, out, err = folder.run("up", "gateway.json")
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == "pegboard up: gateway.json has 5 mistakes:"
    for told in (
        "toolboxes.dev.mcpServers.a.comand (line 1): a server has no key 'comand'; did you mean 'command'?",
        'toolboxes.dev.mcpServers.b__c.timeout (line 2): got "soon", expected a number of seconds greater than 0',
        "toolMod (line 3): a configuration has no key 'toolMod'; did you mean 'toolMode'?",
        "Toolbox 'dev' must have a description",
        "the server name 'b__c' contains '__'",
    ):
        assert told in err, err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gatway.json",), r"File not found: .*gatway\.json, did you mean .*gateway\.json\?"),
        (("nothing.toml",), r"File not found: .*nothing\.toml$"),
        (("gateway.json", "--workers", "2"), "--workers 2: a gateway runs in one process"),
        (("gateway.json", "--port", "many"), "invalid int value: 'many'"),
        ((), r"No configuration found: pass a file, set PEGBOARD_CONFIG, or create pegboard\.json here$"),
    ],
)
def test_mistakes_are_reported_and_nothing_is_started(folder: Folder, words: tuple[str, ...], told: str) -> None:
    code, out, err = folder.run("up", *words)
    assert (code, out) == (2, "")
    assert re.search(told, err, re.MULTILINE), err
    assert "Traceback" not in err


def test_a_port_that_is_already_in_use_is_reported(folder: Folder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = folder.run("up", "gateway.json", "--http", "--port", str(port))
    assert code == 2
    assert err.splitlines()[-1].startswith(f"pegboard up: Cannot listen on 127.0.0.1:{port}: Address already in use")


@pytest.mark.parametrize("variable", ["PEGBOARD_CONFIG", "WORKBENCH_CONFIG", None])
def test_without_a_file_it_takes_the_one_there_is(folder: Folder, variable: str | None) -> None:
    wanted = folder.path / ("pegboard.json" if variable is None else "other.json")
    wanted.write_text('{"mcpServers": {"here": {"comand": "x"}}}')
    told = {} if variable is None else {variable: str(wanted)}
    code, _, err = folder.run("up", **told)
    assert code == 2
    assert wanted.name in err.splitlines()[0]


# -- edits, signals, restarts ---------------------------------------------------------------------------------------------


async def test_an_edit_is_taken_over_and_a_broken_one_is_not(folder: Folder) -> None:
    with folder.up() as child:
        settled(child)
        async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
            before = (await client.call("dev__sums__pid")).text
            folder.servers["fresh"] = {"board": "more.py"}
            folder.write()
            await listed(client, "dev__fresh__add", there=True)
            assert (await client.call("dev__sums__pid")).text == before
            folder.write('{"toolboxes": {')
            wait_until(lambda: "Invalid JSON in config file" in child.said())
            assert (await client.call("dev__fresh__add", {"a": 1, "b": 2})).text == "3"
            del folder.servers["fresh"]
            folder.write()
            await listed(client, "dev__fresh__add", there=False)
            assert (await client.call("dev__sums__pid")).text == before


async def listed(client: Client, name: str, *, there: bool) -> None:
    """Wait until a tool is listed, or is not any more."""
    changes = client.listen(tools=True)
    try:
        while (name in [tool["name"] for tool in await client.list_tools()]) is not there:
            await anext(changes)
    finally:
        await changes.aclose()


def test_in_a_terminal_it_serves_http_and_ends_by_control_c(folder: Folder) -> None:
    mine, its = os.openpty()
    said = b""
    process = subprocess.Popen(
        [*PEGBOARD, "up", str(folder.config), "--port", "0"],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**os.environ, **folder.env},
        # A session of its own, whose terminal this is: so Control-C gets to it.
        start_new_session=True,
        preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 — one system call
    )
    os.close(its)
    try:
        while b"add to" not in said:
            said += os.read(mine, 65536)
        assert re.search(rb"pegboard: http://127\.0\.0\.1:\d+/mcp", said)
        os.write(mine, b"\x03")
        assert process.wait(HANGS) == 0
        assert b"Traceback" not in said
    finally:
        process.kill()
        process.wait()
        os.close(mine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_it(folder: Folder, number: int) -> None:
    with folder.up() as child:
        settled(child)
        pid = int(child.text("dev__sums__pid"))
        assert is_running(pid)
        child.signal(number)
        assert child.wait() == (-number if number == signal.SIGKILL else 0)
        wait_until(lambda: not is_running(pid))
        assert "Traceback" not in child.said()


def test_a_session_goes_on_after_a_restart(folder: Folder) -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    with folder.up() as child:
        settled(child)
        session, answer = post(child, "initialize", hello)
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        child.signal()
        assert child.wait() == 0
    (store,) = folder.path.glob("state/gateway-*.sqlite")
    assert store.stat().st_mode & 0o077 == 0
    with folder.up() as child:
        settled(child)
        again, answer = post(child, "tools/call", {"name": "dev__sums__add", "arguments": {"a": 1, "b": 2}}, session)
        assert answer["result"]["content"][0]["text"] == "3"
        assert again == session
    with folder.up("--store", "memory") as child:
        settled(child)
        assert post(child, "tools/list", {}, session)[1]["error"]["code"] == -32001


def post(child: HttpChild, method: str, params: dict[str, Any], session: str = "") -> tuple[str, dict[str, Any]]:
    """The session that a legacy request is answered in, and the answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers |= {"MCP-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    connection = child.connect()
    try:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request("POST", child.path, body, headers)
        response = connection.getresponse()
        found = response.headers.get("Mcp-Session-Id", "")
        text = response.read().decode()
    finally:
        connection.close()
    if text.startswith(("event:", "id:", "data:", ":", "retry:")):
        text = re.findall(r"^data: (.+)$", text, re.MULTILINE)[-1]
    return found, json.loads(text)


async def test_calls_and_their_audit_records_are_there_after_the_gateway_was_killed(folder: Folder) -> None:
    folder.servers = {"more": {"board": "more.py"}}
    folder.write(middleware=[{"use": "Audit", "options": {"path": "records"}}])
    secret, config = {"PEGBOARD_SECRET": "a secret of the tests"}, str(folder.config)
    for count in (1, 2):
        with folder.up(**secret) as child:
            async with Client(f"http://127.0.0.1:{child.port}/mcp") as client:
                assert (await client.call("dev__more__add", {"a": count, "b": "1"})).structured == count + 1
            wait_until(lambda: len(folder.run("history", "--config", config)[1].splitlines()) == count)  # noqa: B023 — waited for here
            child.process.kill()
    code, out, _ = folder.run("history", "--config", config, "--json")
    calls = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(call["name"], call["lane"], call["repairs"]) for call in calls] == [("dev__more__add", "dev/more", 1)] * 2
    code, out, err = folder.run("audit", "verify", config, **secret)
    assert (code, err) == (0, "intact\n")
    code, out, _ = folder.run("audit", "show", "records", "--tool", "dev_*", "--json")
    assert [json.loads(line)["arguments"] for line in out.splitlines()] == [{"a": 1, "b": "1"}, {"a": 2, "b": "1"}]


async def test_one_url_is_served_over_stdio_with_its_tools_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(BOARD.format(name="sums"))
    with HttpChild(target=tmp_path / "sums.py") as child:
        url = f"http://127.0.0.1:{child.port}{child.path}"
        async with Client([*PEGBOARD, "up", url, "--header", "X-Team: ${TEAM:-red}", "--stdio"]) as client:
            assert [tool["name"] for tool in await client.list_tools()] == ["add", "pid"]
            assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
