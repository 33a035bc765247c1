"""`pegboard call` and `pegboard list`: a file or a server, answers on stdout, exit codes that mean something."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.in_process import run_here
from tests.server_processes import PEGBOARD, ROOT, ROUGH, HttpChild
from tests.waiting import HANGS, SOON

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
    code, out, _ = run_here("call", target, "add", '{"a": 2, "b": "3"}', "--json")
    assert code == 0
    assert json.loads(out)["structured"] == 5


def test_the_error_of_a_tool_is_exit_1(target: str) -> None:
    code, out, _ = run("call", target, "fail", "text=no such user", "told=true")
    assert (code, out) == (1, "no such user\n")


def test_a_tool_that_is_not_there_is_exit_2_with_the_one_meant(target: str) -> None:
    code, out, err = run_here("call", target, "ad", "a=1")
    assert (code, out) == (2, "")
    assert "did you mean 'add'?" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("b", "'b' is not KEY=VALUE; write b=… or"),
        ("2", "'2' is not KEY=VALUE; write a=2 or"),
        ('{"a": 1', "The arguments are not valid JSON"),
        ("{a: 1}", "The arguments are not valid JSON"),
    ],
)
def test_arguments_that_cannot_be_read_are_exit_2(word: str, told: str) -> None:
    code, out, err = run_here("call", HELLO, "add", word)
    assert (code, out) == (2, "")
    assert told in err


def test_the_tools_are_listed_with_their_arguments(target: str) -> None:
    code, out, _ = run_here("list", target)
    assert code == 0
    assert any(line.startswith("add(a, b)") and line.endswith("Adds two numbers.") for line in out.splitlines())
    code, out, _ = run_here("list", target, "--json")
    assert "add" in {tool["name"] for tool in json.loads(out)}


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999/mcp", "http://[::1/mcp"])
def test_what_is_not_an_address_is_exit_2(url: str) -> None:
    code, out, err = run_here("list", url)
    assert (code, out) == (2, "")
    assert "is not a valid URL" in err


@pytest.mark.parametrize("verb", [("list",), ("call", "add")])
def test_a_server_that_is_not_there_is_exit_3(verb: tuple[str, ...]) -> None:
    with socket.socket() as silent:
        # Bound, so that no other process gets the port, and not listening.
        silent.bind(("127.0.0.1", 0))
        code, out, err = run(verb[0], f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", *verb[1:])
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
        code, out, err = run_here("list", f"http://127.0.0.1:{server.server_port}/mcp")
        server.shutdown()
    assert (code, out) == (3, ""), err
    assert re.search("MCP (message|response)", err)
    assert "Traceback" not in err


def test_progress_is_reported_while_the_call_runs(tmp_path: Path) -> None:
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


ASKING = """
import asyncio
from dataclasses import dataclass
from typing import Literal
from pegboard import Accepted, Board, Context, Image

board = Board("asking")


@dataclass
class Trip:
    city: str
    days: int = 3
    seat: Literal["aisle", "window"] = "aisle"
    vegan: bool = False


@board.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("Where to?", Trip, key="trip")
    return str(answer.content) if isinstance(answer, Accepted) else "declined"


@board.tool(task="required")
async def index(ctx: Context) -> str:
    await ctx.progress(1, 2, "half way")
    answer = await ctx.elicit("Go on?", bool, key="go")
    return f"indexed {answer.content}"


@board.tool
async def climb(ctx: Context) -> str:
    await ctx.progress(1, 2, "half way")
    return "up"


@board.tool
def divide(a: int, b: int) -> float:
    return a / b


@board.tool
def pictures(count: int) -> list[Image]:
    return [Image(b"png", "image/png")] * count
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("asking") / "asking.py"
    file.write_text(ASKING)
    return file


def on_terminal(*words: str | Path, typed: Sequence[tuple[str, str]] = ()) -> str:
    """What a command shows on a terminal, where a person types each line after its prompt."""
    screen, side = pty.openpty()
    process = subprocess.Popen([*PEGBOARD, *map(str, words)], stdin=side, stdout=side, stderr=side)
    os.close(side)
    shown, answers = b"", list(typed)
    try:
        while select.select([screen], [], [], HANGS)[0]:
            try:
                shown += os.read(screen, 65536)
            except OSError:
                break
            if answers and shown.endswith(answers[0][0].encode()):
                os.write(screen, answers.pop(0)[1].encode())
        process.wait(HANGS)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert not answers, shown
    return shown.decode().replace("\r\n", "\n")


def test_a_person_at_a_terminal_answers_the_questions_of_a_tool(asking: Path) -> None:
    shown = on_terminal(
        "call",
        asking,
        "book",
        typed=[
            ("city [string]: ", "\n"),
            ("city: enter string\r\n  city [string]: ", "Oslo\n"),
            ("days [integer, default 3]: ", "four\n"),
            ("days [integer, default 3]: ", "4\n"),
            ("seat [aisle/window, default aisle]: ", "\n"),
            ("vegan [y/n, default False]: ", "y\n"),
        ],
    )
    assert "Where to?" in shown
    assert "Trip(city='Oslo', days=4, seat='aisle', vegan=True)" in shown


def test_an_unexpected_failure_says_how_to_see_its_reason(asking: Path) -> None:
    code, said, told = run_here("call", asking, "divide", "a=1", "b=0")
    assert (code, "failed, error id" in said) == (1, True)
    assert "served with --debug shows it here" in told


def test_the_end_of_input_declines(asking: Path) -> None:
    assert "declined" in on_terminal("call", asking, "book", typed=[("city [string]: ", "\x04")])


def test_a_task_is_run_with_its_progress_and_questions(asking: Path) -> None:
    shown = on_terminal("call", asking, "index", typed=[("value [y/n]: ", "yes\n")])
    assert "indexed True" in shown


def test_progress_is_a_bar_on_a_terminal(asking: Path) -> None:
    shown = on_terminal("call", asking, "climb")
    assert "\r\x1b[2K[##########          ] 1/2  half way\r\x1b[2Kup\n" in shown


def test_images_are_saved_to_the_file_that_was_named(asking: Path, tmp_path: Path) -> None:
    for count, output, files in (
        (1, "one.png", {"one.png"}),
        (2, "two.png", {"two-1.png", "two-2.png"}),
        (1, ".", {"content-1.png"}),
        (0, "none.png", set()),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        code, said, told = run_here("call", asking, "pictures", f"count={count}", "--output", folder / output)
        assert code == 0, told
        assert {file.name for file in folder.iterdir()} == files
        assert all(file.read_bytes() == b"png" for file in folder.iterdir())
        assert ("nothing to save" in told) is (count == 0)
    code, said, told = run_here("call", asking, "pictures", "count=1", "--output", tmp_path / "missing" / "one.png")
    assert (code, "cannot be written: No such file" in told) == (2, True)
    # A note for the model about a repair is no content of the tool.
    code, said, told = run_here("call", asking, "pictures", 'count="0"')
    assert (code, "--output" in told, "repaired  count" in told) == (0, False, True)
    code, said, told = run_here("call", asking, "pictures", "count=1")
    assert (code, said) == (0, "[image image/png]\n")
    assert "--output FILE" in told
