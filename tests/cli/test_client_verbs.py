"""`read`, `prompt` and `inspect`, and the targets they share with `list` and `call`: a file, URLs of both kinds, a command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import run_here
from tests.server_processes import PEGBOARD, HttpChild
from tests.waiting import SOON

pytestmark = pytest.mark.process

BATTERY = Path(__file__).parent.parent / "client" / "battery_board.py"
COMMAND = ["--", *PEGBOARD, "run", str(BATTERY), "--stdio"]


@pytest.fixture(scope="module", params=["file", "url", "websocket", "command"])
def target(request: pytest.FixtureRequest) -> Iterator[tuple[list[str], list[str]]]:
    """The words before and after the rest of a command line."""
    match request.param:
        case "file":
            yield [str(BATTERY)], []
        case "command":
            yield [], COMMAND
        case _:
            with HttpChild(target=BATTERY) as child:
                scheme = "http" if request.param == "url" else "ws"
                yield [f"{scheme}://127.0.0.1:{child.port}"], []


Target = tuple[list[str], list[str]]


def test_tools_are_listed_and_called(target: Target) -> None:
    before, after = target
    code, out, _ = run_here("list", *before, *after)
    assert code == 0
    assert any(line.startswith("add(a, b)") for line in out.splitlines())
    assert run_here("call", *before, "add", "a=2", "b=3", *after)[:2] == (0, "5\n")
    code, out, err = run_here("call", *before, "ad", *after)
    assert (code, out) == (2, "")
    assert "did you mean 'add'?" in err


def test_a_resource_is_read(target: Target) -> None:
    before, after = target
    assert run_here("read", *before, "memo://today", *after)[:2] == (0, "sunny\n")
    code, out, _ = run_here("read", *before, "memo://today", "--json", *after)
    assert code == 0
    assert json.loads(out)[0]["uri"] == "memo://today"
    code, out, err = run_here("read", *before, "memo://nowhere", *after)
    assert (code, out) == (2, "")
    assert "memo://nowhere" in err


def test_a_prompt_is_filled_in(target: Target) -> None:
    before, after = target
    assert run_here("prompt", *before, "review", "code=x = 1", *after)[:2] == (0, "user:\nReview x = 1\n")
    code, _, err = run_here("prompt", *before, "reviw", *after)
    assert code == 2
    assert "did you mean review?" in err


def test_a_server_is_inspected(target: Target) -> None:
    before, after = target
    code, out, _ = run_here("inspect", *before, *after)
    assert code == 0
    assert out.startswith("battery 1.2.3\nprotocol 2026-07-28\n")
    assert "Try everything." in out
    assert "  add(a, b)" in out
    assert "  memo://days/{day}" in out
    code, out, _ = run_here("inspect", *before, "--json", *after)
    told = json.loads(out)
    assert code == 0
    assert told["server"]["name"] == "battery"
    assert [prompt["name"] for prompt in told["prompts"]] == ["review"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2024-11-05"])
def test_a_revision_can_be_asked_for(target: Target, revision: str) -> None:
    before, after = target
    code, out, _ = run_here("inspect", *before, "--protocol", revision, *after)
    assert code == 0
    assert f"protocol {revision}" in out


def test_bytes_go_to_stdout_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "blob.py"
    file.write_text(
        "from pegboard import Board\nboard = Board('blob')\n"
        "@board.resource('memo://raw')\ndef raw() -> bytes:\n    return bytes(range(256))\n"
    )
    done = subprocess.run([*PEGBOARD, "read", file, "memo://raw"], capture_output=True, timeout=SOON, check=False)
    assert (done.returncode, done.stdout) == (0, bytes(range(256)))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["list", "--", "nowhere-at-all"], 3, "no program 'nowhere-at-all'"),
        (["list", "--", sys.executable, "-c", "raise SystemExit('no config')"], 3, "saying: no config"),
        (["list", "--"], 2, "add the command"),
        (["list"], 2, "There is no board in this folder"),
        (["list", "localhost:7332/mcp"], 2, "starts with http://"),
        (["call", "http://127.0.0.1:1/", "x", "--header", "a: b\nc: d"], 2, "line break"),
        (["list", "http://127.0.0.1:1/", "--protocol", "1999"], 2, "--protocol"),
    ],
)
def test_what_goes_wrong_is_said_on_stderr_with_its_exit_code(words: list[str], code: int, told: str) -> None:
    got, out, err = run_here(*words)
    assert (got, out) == (code, ""), err
    assert told in err
    assert "Traceback" not in err


def test_a_header_without_a_colon_is_not_repeated() -> None:
    code, out, err = run_here("list", "http://127.0.0.1:1/", "--header", "a: b", "--header", "pb_secret")
    assert (code, out) == (2, "")
    assert "--header number 2 has no colon: write it as NAME:VALUE" in err
    assert "secret" not in err


def test_the_timeout_covers_the_handshake() -> None:
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()")
    code, out, err = run_here("list", "--timeout", "0.2", "--", *silent)
    assert (code, out) == (3, "")
    assert "not connected within 0.2 s" in err


def test_the_board_of_a_folder_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("board.py").write_text(
        "from pegboard import Board\nboard = Board('b')\n@board.tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )
    assert run_here("list")[:2] == (0, "add(a, b)\n")
    assert run_here("call", ".", "add", "a=2", "b=3")[:2] == (0, "5\n")
    assert run_here("lint")[:2] == (0, ".: 0 problems, 1 item checked\n")
    assert run_here("check")[:2] == (0, ".: 0 mistakes, 1 warning\n")
    Path("pegboard.json").write_text('{"mcpServers": {"b": {"board": "board.py"}}}')
    code, _, err = run_here("lock")
    assert (code, err) == (0, "1 definition pinned in pegboard.lock.json\n")
