"""`pegboard call` and `pegboard list`: a file or a server, answers on stdout, exit codes that mean something."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.server_processes import PEGBOARD, ROOT, ROUGH, HttpChild
from tests.waiting import SOON

pytestmark = pytest.mark.process

HELLO = str(ROOT / "examples" / "hello.py")


def run(*words: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PEGBOARD, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module", params=["file", "server"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same board in a file and behind HTTP."""
    if request.param == "file":
        yield str(ROUGH)
        return
    with HttpChild() as child:
        yield f"http://127.0.0.1:{child.port}/mcp"


def test_a_call_prints_the_answer_and_nothing_else_on_stdout(target: str) -> None:
    code, out, err = run("call", target, "add", "a=2", "b=3")
    assert (code, out) == (0, "5\n")
    assert " ms" in err


def test_arguments_may_be_one_object_and_the_result_json(target: str) -> None:
    code, out, _ = run("call", target, "add", '{"a": 2, "b": "3"}', "--json")
    assert code == 0
    assert json.loads(out)["structured"] == 5


def test_the_error_of_a_tool_is_exit_1(target: str) -> None:
    code, out, _ = run("call", target, "fail", "text=no such user", "told=true")
    assert (code, out) == (1, "no such user\n")


def test_a_tool_that_is_not_there_is_exit_2_with_the_one_meant(target: str) -> None:
    code, out, err = run("call", target, "ad", "a=1")
    assert (code, out) == (2, "")
    assert "did you mean 'add'?" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [["a"], ['{"a": 1'], ["{a: 1}"]])
def test_arguments_that_cannot_be_read_are_exit_2(words: list[str]) -> None:
    code, out, err = run("call", HELLO, "add", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_the_tools_are_listed_with_their_arguments(target: str) -> None:
    code, out, _ = run("list", target)
    assert code == 0
    assert any(line.startswith("add(a, b)") and line.endswith("Adds two numbers.") for line in out.splitlines())
    code, out, _ = run("list", target, "--json")
    assert "add" in {tool["name"] for tool in json.loads(out)}


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999/mcp", "http://[::1/mcp"])
def test_what_is_not_an_address_is_exit_2(url: str) -> None:
    code, out, err = run("list", url)
    assert (code, out) == (2, "")
    assert "is not a valid URL" in err


@pytest.mark.parametrize("verb", [("list",), ("call", "add")])
def test_a_server_that_is_not_there_is_exit_3(verb: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    code, out, err = run(verb[0], f"http://127.0.0.1:{port}/mcp", *verb[1:])
    assert (code, out) == (3, "")
    assert "Is the server running?" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<h1>hello</h1>"),
        ("application/json", b"[]"),
        ("application/json", b'{"answer":42}'),
        ("application/json", b'{"error":"no"}'),
        ("application/json", b'{"jsonrpc":"2.0","id":%d,"result":[]}'),
        ("text/event-stream", b""),
        ("text/event-stream", b": nothing\n\n"),
    ],
)
def test_something_else_at_the_address_is_exit_3(kind: str, body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = body.replace(b"%d", str(request["id"]).encode())
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, out, err = run("list", f"http://127.0.0.1:{server.server_port}/mcp")
        server.shutdown()
    assert (code, out) == (3, ""), err
    assert re.search("MCP (message|response)", err)
    assert "Traceback" not in err


def test_progress_is_told_while_the_call_runs(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(
        "from pegboard import Board, Context\n"
        "board = Board('steps')\n"
        "@board.tool\n"
        "async def climb(ctx: Context) -> str:\n"
        "    await ctx.progress(1, 2, 'half way')\n"
        "    print('noise')\n"
        "    await ctx.progress(2, 2)\n"
        "    return 'up'\n"
    )
    code, said, told = run("call", file, "climb")
    assert (code, said) == (0, "up\n")
    assert "progress  1/2  half way\n" in told
    assert "progress  2/2\n" in told
    assert "noise" in told
