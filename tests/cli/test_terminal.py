"""No text of a server controls the terminal of the person who reads it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import msgspec
import pytest

from pegboard import Limits
from pegboard.approvals.approval_request import ApprovalRequest, write_arguments
from pegboard.approvals.approval_store import Approvals
from pegboard.cli.terminal.output import CLEAR_LINE
from pegboard.cli.verbs import GROUPS, VERBS
from pegboard.rules.rule import Approval
from pegboard.stores.store_url import open_store
from tests.cli.hostile_server import ATTACK, LINE

pytestmark = pytest.mark.process

SERVER = str(Path(__file__).with_name("hostile_server.py"))
COMMAND = ("--", sys.executable, SERVER)
SECONDS = 120.0
# What a terminal or its reader obeys: controls, format characters, line separators, surrogates, private use.
OBEYED = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")


def pegboard(*words: str) -> list[str]:
    return [sys.executable, "-m", "pegboard", *words]


def on_terminal(*words: str, until: str = "", answer: str = "") -> str:
    """What the command writes to a terminal, stdout and stderr together.

    It is interrupted once `until` was written, and gets the answer once it has asked for yes or no.
    """
    screen, side = pty.openpty()
    process = subprocess.Popen(pegboard(*words), stdin=side if answer else subprocess.DEVNULL, stdout=side, stderr=side)
    os.close(side)
    written = b""
    try:
        while select.select([screen], [], [], SECONDS)[0]:
            try:
                written += os.read(screen, 65536)
            except OSError:
                # Nothing has the other side open any more.
                break
            if until and until.encode() in written:
                until = ""
                process.send_signal(signal.SIGINT)
            if answer and b"[y/n]: " in written:
                os.write(screen, f"{answer}\n".encode())
                answer = ""
        process.wait(SECONDS)
    finally:
        os.close(screen)
        process.kill()
        process.wait()
    # The terminal itself writes each line end as CR LF.
    # Our own progress bar replaces its line; text of a server is escaped, and cannot do so.
    return written.decode("utf-8").replace("\r\n", "\n").replace(CLEAR_LINE, "\n")


def assert_harmless(screen: str) -> None:
    """There is nothing in it but text, lines and tabs."""
    obeyed = {f"U+{ord(one):04X}" for one in screen if unicodedata.category(one) in OBEYED and one not in "\n\t"}
    assert not obeyed, screen


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("inspect",),
        ("call", "picture"),
        ("call", "refuse"),
        ("call", "nothing"),
        ("prompt", "nothing"),
        ("list", "--json"),
        ("inspect", "--json"),
        ("call", "--json", "speak"),
        ("read", "--json", "x://a"),
        ("prompt", "--json", "ask"),
    ],
    ids=" ".join,
)
def test_a_server_cannot_control_a_terminal_nor_forge_a_line(words: tuple[str, ...]) -> None:
    screen = on_terminal(*words, *COMMAND)
    assert "mark" in screen
    assert_harmless(screen)
    assert not [line for line in screen.split("\n") if line.startswith("forged")], screen


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("call", "speak"), "result"),
        (("call", "fail"), "result"),
        (("read", "x://a"), "contents"),
        (("prompt", "ask"), "message"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_text_keeps_its_lines_and_tabs_on_a_terminal_and_nothing_else(words: tuple[str, ...], shown: str) -> None:
    screen = on_terminal(*words, *COMMAND)
    assert_harmless(screen)
    assert f"{shown} mark" in screen
    assert "\nforged line" in screen


def test_a_text_is_written_as_it_came_where_no_terminal_shows_it() -> None:
    for words, shown in ((("call", "speak"), "result"), (("read", "x://a"), "contents")):
        done = subprocess.run(pegboard(*words, *COMMAND), capture_output=True, timeout=SECONDS, check=True)
        assert done.stdout.decode() == f"{shown} {LINE}\tend\n"
        assert_harmless(done.stderr.decode())


def test_json_is_the_same_value_with_what_a_terminal_obeys_escaped() -> None:
    words = pegboard("call", "--json", "speak", *COMMAND)
    done = subprocess.run(words, capture_output=True, timeout=SECONDS, check=True)
    assert json.loads(done.stdout)["content"][0]["text"] == f"result {LINE}\tend"
    assert_harmless(done.stdout.decode())


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_server_behind_a_gateway_cannot_either(style: str, tmp_path: Path) -> None:
    config = tmp_path / "pegboard.json"
    bad = {"command": sys.executable, "args": ["-c", f"import sys; sys.exit({ATTACK!r} + ' mark')"]}
    servers = {"hostile": {"command": sys.executable, "args": [SERVER]}, "broken": bad}
    config.write_text(json.dumps({"mcpServers": servers}))
    flags = ("--http", "--port", "0", "--store", "memory", "--log-level", "debug", "--log-format", style)
    screen = on_terminal("up", str(config), *flags, until="servers ready")
    assert "mark" in screen
    assert_harmless(screen)
    for verb in (["list"], ["lock"], ["lint", "--as", "ann"]):
        screen = on_terminal(verb[0], str(config), *verb[1:])
        assert "mark" in screen
        assert_harmless(screen)


def test_a_call_that_waits_for_an_approval_cannot_either(tmp_path: Path) -> None:
    config, store = tmp_path / "pegboard.json", tmp_path / "store.db"
    config.write_text(json.dumps({"name": "office", "mcpServers": {"hostile": {"command": "none"}}}))
    now = time.time()
    request = ApprovalRequest(
        id="4f",
        digest="d",
        requester=f"caller {LINE}",
        client=f"client {LINE}",
        tool=f"tool {LINE}",
        arguments=write_arguments(msgspec.json.encode({f"name {LINE}": f"value {LINE}"}), None),
        approval=Approval(by="others"),
        since=now,
        expires=now + 600,
        seconds=600,
    )

    async def add() -> None:
        opened = open_store(f"sqlite:{store}", Limits())
        await opened.start()
        approvals = Approvals("office", Limits())
        approvals.use_store(opened)
        await approvals.ask(request)
        await opened.close()

    asyncio.run(add())
    for words in ((), ("--json",), ("refuse", "4f", "--reason", f"reason {LINE}".replace("\x00", ""))):
        screen = on_terminal("approvals", str(config), "--store", f"sqlite:{store}", *words)
        assert "mark" in screen
        assert_harmless(screen)
        assert not [line for line in screen.split("\n") if line.startswith("forged")], screen


def test_each_verb_was_considered() -> None:
    """`run`, `dev` and `demo` show text of our own process, `keys`, `new` and `completion` what the operator typed or what is
    ours, `login` only what `tests/client/login` covers, and `bench` only figures. `audit`, `connections`, `history`, `check`,
    `doctor` and those of `clients` print by `show` and `note` alone; `status` is tested with its own hostile server."""
    considered = {"list", "inspect", "call", "read", "prompt", "up", "lock", "lint", "run", "demo", "login", "keys"}
    considered |= {"approvals", "audit", "connections", "history", "dev", "new", "check", "doctor", "completion"}
    assert set(VERBS) == considered | {"bench", "status", *GROUPS["clients"]}
