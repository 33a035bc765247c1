"""The link to a command: the child is owned, its era is found out, and whatever it does is a clear error in time."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from msgspec import Raw

from pegboard import Client
from pegboard.client.links import era_cache
from pegboard.client.transports import stderr_log
from pegboard.client.transports.child_process import ChildProcess, child_environment
from pegboard.client.transports.stderr_log import LOGGED_LINES
from pegboard.client.transports.stdio_link import StdioLink
from pegboard.errors import (
    ConnectionLost,
    MalformedMessage,
    MessageTooLong,
    Refusal,
    ResponseTimeout,
    ServerFault,
    SetupError,
    Unreachable,
)
from tests.client.fakes import script
from tests.client.process_leftovers import children, nothing_left
from tests.stalls import no_stalls, sending  # noqa: F401 — it is on for every test here
from tests.waiting import until

pytestmark = pytest.mark.process

MODERN, LEGACY = "2026-07-28", "2025-11-25"

SERVE_MODERN = "discovered(read())\n"
SERVE_LEGACY = "shake_hands()\n"
ECHO = "while True:\n    asked = read()\n    if 'id' in asked: text(asked, 'hi')\n"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (SERVE_MODERN, MODERN),
        (SERVE_LEGACY, LEGACY),
        ("refuse(read(), -32602)\ninitialized(read())\nread()\n", LEGACY),
        ("result(read(), {})\ninitialized(read())\nread()\n", LEGACY),
        # It says nothing to what it does not know.
        ("read()\ninitialized(read())\nread()\n", LEGACY),
        # It takes its time.
        ("asked = read()\ntime.sleep(0.7)\ndiscovered(asked)\n", MODERN),
    ],
)
async def test_the_era_of_a_command_is_found_out(body: str, version: str) -> None:
    async with (
        nothing_left(),
        Client(script(body + ECHO), connect_timeout=4 if "read()\ninit" in body else 10) as client,
    ):
        assert client.version == version
        assert (await client.call("any")).text == "hi"


async def test_a_slow_server_that_accepted_probe_and_handshake_is_started_again_in_one_era(tmp_path: Path) -> None:
    # Once it has accepted a handshake, this server knows only legacy methods.
    body = (
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        "asked = read()\n"
        "if asked['method'] == 'server/discover':\n"
        "    handshake = read()\n"
        "    discovered(asked); initialized(handshake)\n"
        "    while True:\n"
        "        asked = read()\n"
        "        if 'id' in asked: refuse(asked)\n"
        "text(asked, 'hi')\n" + ECHO
    )
    async with nothing_left(), Client(script(body), connect_timeout=2) as client:
        assert client.version == MODERN
        assert (await client.call("any")).text == "hi"
        assert (await client.call("any")).text == "hi"
    assert (tmp_path / "starts").read_text() == "xx"


async def test_a_slow_modern_server_that_rejects_the_handshake_keeps_its_process(tmp_path: Path) -> None:
    body = (
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        "asked, handshake = read(), read()\n"
        "discovered(asked); refuse(handshake)\n" + ECHO
    )
    async with nothing_left(), Client(script(body), connect_timeout=2) as client:
        assert client.version == MODERN
        assert (await client.call("any")).text == "hi"
    assert (tmp_path / "starts").read_text() == "x"


async def test_a_slow_legacy_server_that_rejects_the_probe_late_gets_one_handshake() -> None:
    body = "asked, handshake = read(), read()\nrefuse(asked); initialized(handshake); read()\n" + ECHO
    async with nothing_left(), Client(script(body), connect_timeout=2) as client:
        assert client.version == LEGACY
        assert (await client.call("any")).text == "hi"


async def test_a_server_that_ends_at_a_request_before_the_handshake_is_started_again(tmp_path: Path) -> None:
    body = (
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        "asked = read()\n"
        "if asked['method'] != 'initialize': sys.exit('expected initialize')\n"
        "initialized(asked)\nread()\n" + ECHO
    )
    async with nothing_left():
        for starts in ("xx", "xxx"):
            async with Client(script(body)) as client:
                assert client.version == LEGACY
                assert (await client.call("any")).text == "hi"
            # The second time it is known.
            assert (tmp_path / "starts").read_text() == starts


async def test_a_modern_command_is_remembered_and_found_out_again_when_that_is_wrong(tmp_path: Path) -> None:
    flag = tmp_path / "old"
    command = script(f"if os.path.exists({str(flag)!r}):\n    {SERVE_LEGACY}else:\n    {SERVE_MODERN}" + ECHO)
    async with Client(command) as client:
        assert client.version == MODERN
    flag.touch()
    async with Client(command) as client:
        assert client.version == LEGACY
    flag.unlink()
    assert era_cache.recall(tuple(command)) == LEGACY


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("sys.exit(3)\n", "ended with exit code 3"),
        ("print('no such file', file=sys.stderr)\nsys.exit(2)\n", "exit code 2, saying: no such file"),
        (
            "print('Kein Schlüssel', '─' * 80, sep='\\n', end='', file=sys.stderr)\nsys.exit(2)\n",
            "exit code 2, saying: Kein Schlüssel",
        ),
        ("print('half a line', end='', file=sys.stderr)\nsys.exit(2)\n", "exit code 2, saying: half a line"),
        ("os.kill(os.getpid(), signal.SIGKILL)\n", "was ended by SIGKILL"),
        ("os.close(1)\ntime.sleep(60)\n", "closed its stdout"),
    ],
)
async def test_a_command_that_does_not_serve_is_said_with_its_last_words(body: str, told: str) -> None:
    async with nothing_left():
        with pytest.raises(Unreachable, match=told):
            async with Client(script(body)):
                pass


async def test_a_program_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    async with nothing_left():
        with pytest.raises(Unreachable, match="no program 'nowhere-at-all' on the PATH"):
            async with Client(["nowhere-at-all"]):
                pass
        with pytest.raises(Unreachable, match="cannot be started"):
            async with Client([str(tmp_path)]):
                pass
        with pytest.raises(Unreachable, match="cannot be started in"):
            async with Client([sys.executable], cwd=tmp_path / "nowhere"):
                pass
    with pytest.raises(SetupError, match="list of words"):
        Client([])


@pytest.mark.parametrize("begin", [SERVE_MODERN, SERVE_LEGACY], ids=["modern", "legacy"])
async def test_a_server_killed_in_a_call_fails_it_at_once_and_serves_the_next(begin: str) -> None:
    body = begin + (
        "while True:\n    asked = read()\n    if 'id' not in asked: continue\n"
        "    if asked['params'].get('name') == 'die': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    text(asked, str(os.getpid()))\n"
    )
    async with nothing_left(), Client(script(body)) as client:
        first = (await client.call("any")).text
        with pytest.raises(ConnectionLost, match="was ended by SIGKILL"):
            await client.call("die")
        second = (await client.call("any")).text
        assert second != first


async def test_all_that_wait_hear_of_the_end() -> None:
    body = SERVE_MODERN + "for _ in range(20): read()\nsys.exit(1)\n"
    async with nothing_left(), Client(script(body)) as client:
        told = await asyncio.gather(*(client.call("any") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(one, ConnectionLost) for one in told)


async def test_a_server_that_keeps_dying_is_left_alone() -> None:
    body = SERVE_MODERN + "read()\nsys.exit(1)\n"
    async with nothing_left(), Client(script(body)) as client:
        for _ in range(5):
            with pytest.raises(ConnectionLost):
                await client.call("any")
        with pytest.raises(Unreachable, match="died 5 times within 60 s") as refused:
            await client.call("any")
        assert refused.value.retry_after is not None


async def test_lines_that_are_no_messages_are_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    body = (
        "print('Starting up…', flush=True)\n" + SERVE_MODERN + "asked = read()\n"
        "for line in (b'{', b'[]', b'null', b'\\xff\\xfe', b'', b'{\"jsonrpc\":\"2.0\",\"id\":7}'):\n"
        "    sys.stdout.buffer.write(line + b'\\n')\n"
        "sys.stdout.flush()\n"
        "result({'id': 9999}, {})\n"
        "text(asked, 'hi')\n" + ECHO
    )
    async with nothing_left(), Client(script(body)) as client:
        assert (await client.call("any")).text == "hi"
    assert "Starting up" in caplog.text
    assert "an invalid MCP message" in caplog.text


async def test_invalid_messages_are_logged_ever_less_often_across_restarts(caplog: pytest.LogCaptureFixture) -> None:
    banner = script("print('Welcome', flush=True)\n" + SERVE_MODERN + "sys.exit(1)\n")
    for _ in range(6):
        async with Client(banner) as client:
            with pytest.raises(ServerFault):
                await client.call("any")
    counts = re.findall(r"sent an invalid MCP message: 'Welcome' \((\d+) so far\)", caplog.text)
    assert counts == ["1", "2", "4", "8", "16"][: len(counts)]
    assert len(counts) >= 3


async def test_a_server_that_hangs_is_given_up_at_the_deadline() -> None:
    async with nothing_left(), Client(script(SERVE_MODERN + "time.sleep(60)\n")) as client:
        with pytest.raises(ResponseTimeout, match=r"within 0\.2 s"):
            await client.call("any", timeout=0.2)


async def test_a_server_that_hangs_from_the_start_is_given_up_too() -> None:
    async with nothing_left():
        with pytest.raises(ResponseTimeout, match="no response to initialize"):
            async with Client(script("time.sleep(60)\n"), connect_timeout=0.4):
                pass


async def test_a_server_that_does_not_read_does_not_hold_the_client() -> None:
    async with nothing_left(), Client(script(SERVE_MODERN + "time.sleep(60)\n")) as client:
        with pytest.raises(ResponseTimeout):
            await client.call("any", {"much": "x" * 5_000_000}, timeout=0.5)


@sending(10_000_000)
async def test_a_line_of_ten_megabytes_is_an_answer_and_a_longer_one_an_error() -> None:
    body = (
        SERVE_MODERN + "while True:\n    asked = read()\n    text(asked, 'x' * asked['params']['arguments']['size'])\n"
    )
    async with nothing_left(), Client(script(body), timeout=30) as client:
        assert len((await client.call("any", {"size": 10_000_000})).text) == 10_000_000
        with pytest.raises(MessageTooLong, match="an answer of more than 16777216 bytes"):
            await client.call("any", {"size": 17_000_000})
        assert (await client.call("any", {"size": 2})).text == "xx"


async def test_a_null_result_is_a_clear_error() -> None:
    async with nothing_left(), Client(script(SERVE_MODERN + "result(read(), None)\n" + ECHO)) as client:
        with pytest.raises(MalformedMessage, match="result must be an object"):
            await client.call("any")


async def test_an_error_without_an_id_answers_the_only_request() -> None:
    body = (
        SERVE_MODERN
        + "read()\nsay({'jsonrpc': '2.0', 'id': None, 'error': {'code': -32700, 'message': 'what?'}})\n"
        + ECHO
    )
    async with Client(script(body)) as client:
        with pytest.raises(Refusal, match=r"what\?"):
            await client.call("any")


@pytest.mark.parametrize(
    "stubborn",
    [
        "",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nos.dup2(os.open('/dev/null', os.O_RDONLY), 0)\n",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.dup2(os.open('/dev/null', os.O_RDONLY), 0)\n",
    ],
    ids=["obeys", "needs TERM", "needs KILL"],
)
async def test_the_child_and_all_it_started_end_with_the_client(stubborn: str) -> None:
    stay = "while True: time.sleep(60)\n" if stubborn else "read()\n"
    body = (
        SERVE_MODERN
        + "asked = read()\n"
        + stubborn
        + "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "text(asked, f'{os.getpid()} {child.pid}')\n" + stay
    )
    async with nothing_left():
        async with Client(script(body)) as client:
            pids = [int(word) for word in (await client.call("any")).text.split()]
            assert all(map(is_alive, pids))
        await until(lambda: not any(map(is_alive, pids)))


async def test_a_grandchild_that_holds_the_pipe_does_not_hide_the_end() -> None:
    body = (
        SERVE_MODERN + "read()\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\nos._exit(4)\n"
    )
    async with nothing_left(), Client(script(body)) as client:
        with pytest.raises(ConnectionLost, match="exit code 4"):
            await client.call("any", timeout=10)


STAYS = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


async def test_a_close_that_is_cancelled_has_ended_the_process() -> None:
    child, up = ChildProcess(script(STAYS), max_line=1000), asyncio.Event()
    async with nothing_left():
        await child.open(lambda _: up.set(), lambda _: None)
        await up.wait()
        closing = asyncio.create_task(child.close())
        await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        # Reaped, too: a process that is not would be reported by Python once nothing refers to it.
        assert str(child.pid) not in children()


async def test_no_signal_is_sent_once_a_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    lost, killpg = asyncio.Event(), os.killpg

    def record(pid: int, number: int) -> None:
        sent.append(number)
        killpg(pid, number)

    child = ChildProcess(script(""), max_line=1000)
    async with nothing_left():
        await child.open(lambda _: None, lambda _: lost.set())
        await lost.wait()
        # By now the number may be that of another group.
        monkeypatch.setattr(os, "killpg", record)
        await child.close()
        assert sent == []


def test_a_line_that_comes_in_pieces_weighs_about_what_it_is_long() -> None:
    child = ChildProcess(["any"], max_line=2**24)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            # A new object each time, as from a pipe.
            child.pipe_data_received(1, bytes(bytearray(b"xy")))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * 200_000


async def test_a_client_that_is_cancelled_while_it_opens_leaves_no_child() -> None:
    before = children()
    async with nothing_left():

        async def use() -> None:
            async with Client(script("time.sleep(60)\n"), connect_timeout=30):
                pass

        task = asyncio.create_task(use())
        await until(lambda: bool(children() - before))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@sending(5000 * 61)
async def test_what_a_child_says_on_stderr_is_kept_bounded_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the lines may take longer to arrive than a period lasts.
    monkeypatch.setattr(stderr_log, "PERIOD_SECONDS", 3600.0)
    caplog.set_level(logging.DEBUG, "pegboard.client")
    body = (
        SERVE_MODERN + "for n in range(5000): print('line', n, 'x' * 50, file=sys.stderr)\nsys.stderr.flush()\n" + ECHO
    )
    async with nothing_left(), Client(script(body)) as client:
        await client.call("any")
        link = client._link
        assert isinstance(link, StdioLink)
        await until(lambda: "line 4999" in link.stderr_tail)
        assert len(link.stderr_tail) < 70_000
        assert "line 0 " not in link.stderr_tail
    logged = [record.getMessage() for record in caplog.records if "line " in record.getMessage()]
    assert len(logged) == LOGGED_LINES
    assert "line 0 " in logged[0]
    assert f"{5000 - LOGGED_LINES} more lines on stderr are not logged" in caplog.text


def test_a_child_sees_what_it_needs_and_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    seen = child_environment({"GIVEN": "1"})
    assert seen["GIVEN"] == "1"
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["LC_ALL"] == "C"
    assert "MY_TOKEN" not in seen


async def test_an_entry_of_a_configuration_is_a_target(tmp_path: Path) -> None:
    program, *words = script(SERVE_MODERN + "while True: text(read(), os.environ['WHO'] + ' ' + os.getcwd())\n")
    entry = {"command": program, "args": words, "env": {"WHO": "me"}, "cwd": str(tmp_path), "disabled": False}
    async with nothing_left(), Client(entry) as client:
        assert (await client.call("any")).text == f"me {tmp_path}"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, "must have a 'command' field"),
        ({"command": "x", "url": "http://x/"}, "has 'command' and 'url': expected only one of them"),
        ({"command": 5}, "command: got 5, expected a string or a list of strings"),
        ({"url": "ftp://x/"}, "is not a URL"),
    ],
)
def test_an_entry_that_says_nothing_is_refused(entry: dict[str, object], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        Client(entry)


async def test_a_legacy_servers_questions_are_answered_for_the_call_under_way() -> None:
    body = SERVE_LEGACY + (
        "asked = read()\n"
        "say({'jsonrpc': '2.0', 'id': 'q', 'method': 'elicitation/create', 'params': {'message': '?', 'requestedSchema': {'type': 'object', 'properties': {'n': {'type': 'integer', 'default': 4}}}}})\n"
        "told = read()\n"
        "text(asked, json.dumps(told['result']))\n" + ECHO
    )
    async with nothing_left(), Client(script(body), elicit=lambda asked: {}) as client:
        assert (await client.call("any")).text == '{"action": "accept", "content": {"n": 4}}'


@sending(40 * 1_000_000)
async def test_large_notifications_that_a_caller_is_slow_to_take_are_dropped(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    body = SERVE_LEGACY + (
        "asked = read()\n"
        "token = asked['params']['_meta']['progressToken']\n"
        "for n in range(1, 41):\n"
        "    told = {'progressToken': token, 'progress': n}\n"
        "    say({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': told, 'more': 'x' * 1_000_000})\n"
        "say({'jsonrpc': '2.0', 'id': 'p', 'method': 'ping'})\n"
        f"read(); open({str(sent)!r}, 'w').close()\n"
        "text(asked, 'done')\n"
    )
    heard: list[float] = []
    taken = asyncio.Event()

    async def progress(done: float, *_: object) -> None:
        heard.append(done)
        await taken.wait()

    async with nothing_left(), Client(script(body)) as client:
        call = asyncio.create_task(client.call("any", progress=progress))
        await until(sent.exists)
        taken.set()
        assert (await call).text == "done"
    # The newest stay: 4 MiB of them, and those that were taken at once.
    assert heard[-1] == 40
    assert len(heard) < 15


async def test_a_question_that_its_server_takes_back_is_dropped() -> None:
    body = SERVE_LEGACY + (
        "asked = read()\n"
        "say({'jsonrpc': '2.0', 'id': 'q', 'method': 'elicitation/create', 'params': {'message': '?'}})\n"
        "read()\n"
        "say({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'q'}})\n"
        "text(asked, 'without you')\n" + ECHO
    )
    asked = asyncio.Event()
    dropped = asyncio.Event()

    async def think(_: object) -> None:
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            dropped.set()

    async with nothing_left(), Client(script(body), elicit=think) as client:
        call = asyncio.create_task(client.call("any"))
        await asked.wait()
        # What makes the server read on.
        other = asyncio.create_task(client.call("nudge"))
        assert (await call).text == "without you"
        await dropped.wait()
        other.cancel()


def test_a_child_lives_and_dies_on_uvloop_as_on_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(era_cache, "_eras", {})
    body = (
        SERVE_MODERN + "dying = 0\n"
        "while True:\n"
        "    asked = read()\n"
        "    match asked.get('params', {}).get('name'):\n"
        "        case 'die' if dying < 4: dying += 1\n"
        "        case 'die': print('oh no', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        "        case 'long': text(asked, 'x' * 10_000_000)\n"
        "        case 'silence': pass\n"
        "        case _ if 'id' in asked: text(asked, str(os.getpid()))\n"
    )

    async def main() -> None:
        await (await asyncio.create_subprocess_exec("true")).wait()
        async with nothing_left(), Client(script(body)) as client:
            first = (await client.call("any")).text
            assert len((await client.call("long")).text) == 10_000_000
            with pytest.raises(ResponseTimeout):
                await client.call("silence", timeout=0.1)
            told = await asyncio.gather(*(client.call("die") for _ in range(5)), return_exceptions=True)
            assert {type(one) for one in told} == {ConnectionLost}
            assert "was ended by SIGKILL, saying: oh no" in str(told[0])
            second = (await client.call("any")).text
            assert first != second
        assert not is_alive(int(second))
        async with (
            nothing_left(),
            Client(script(SERVE_MODERN + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n")),
        ):
            pass

    uvloop.run(main())


async def test_a_client_that_is_closed_starts_no_child_for_those_who_still_wait() -> None:
    """A list may be asked for again, and a subscription comes back by itself: not once their client is gone."""
    async with nothing_left():
        async with Client(script(SERVE_MODERN + "while True: read()\n")) as client:
            listing = asyncio.create_task(client.list_tools())
            listening = asyncio.ensure_future(anext(client.listen(tools=True)))
            await asyncio.sleep(0)
        for waiting in (listing, listening):
            with pytest.raises(ConnectionLost, match="this client is closed"):
                await waiting
        with pytest.raises(ConnectionLost, match="this client is closed"):
            await client.call("any")


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n"])
async def test_a_message_of_several_lines_is_never_written_to_a_child(line_break: bytes) -> None:
    heard: list[bytes] = []
    echo = "import sys\nfor line in sys.stdin.buffer: print(line, flush=True)"
    child = ChildProcess([sys.executable, "-c", echo], max_line=1000)
    async with nothing_left():
        await child.open(heard.append, lambda fault: None)
        try:
            with pytest.raises(ValueError, match="one line"):
                child.send(b"[" + line_break + b"]")
            with pytest.raises(ValueError, match="one line"):
                child.send_now(b"{}" + line_break)
            assert child.send(b"{}") is None
            await until(lambda: heard)
        finally:
            await child.close()
    assert heard == [rb"b'{}\n'"]


async def test_arguments_that_are_text_reach_a_command_on_one_line() -> None:
    body = SERVE_MODERN + "while True:\n    asked = read()\n    text(asked, json.dumps(asked['params']['arguments']))\n"
    async with nothing_left(), Client(script(body)) as client:
        sent = Raw(b'{\n  "price": 1.50,\r\n  "tags": [\n    "a"\n  ]\n}')
        result = await client.request("tools/call", name="any", arguments=sent)
    assert result["content"][0]["text"] == '{"price": 1.5, "tags": ["a"]}'
