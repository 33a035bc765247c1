"""The record of every call: what it says, when it is on the disk, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Middleware, ToolError, ToolResult
from pegboard.call import Call
from pegboard.errors import DeclarationError, InvalidParams, LimitReached, SetupError
from pegboard.middleware import Audit, RateLimit
from pegboard.middleware.observability.journal import Journal, LinesFile, Row
from pegboard.testing import make_call, run_alone
from tests.waiting import SOON, until

FORMS = pytest.mark.parametrize("name", ["audit.jsonl", "audit.db"])
SERVER = Path(__file__).with_name("audited_server.py")


@contextmanager
def audit(path: Path, **options: Any) -> Iterator[Audit]:
    made = Audit(path, **options)
    try:
        yield made
    finally:
        made.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The records, however they are kept; what is absent is left out."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT * FROM audit ORDER BY number").fetchall()
    return [{key: row[key] for key in row.keys() if row[key] is not None and key != "number"} for row in rows]  # noqa: SIM118 — a Row is a sequence


# -- what is recorded -----------------------------------------------------------------------------------------------


@FORMS
async def test_a_record_says_who_called_what_and_what_came_of_it(tmp_path: Path, name: str) -> None:
    with audit(tmp_path / name, now=lambda: 1_700_000_000.5) as made:
        call = make_call(
            "pay", {"to": "you", "amount": 3}, principal="ann", session="secret", client="desk", transport="http"
        )
        assert (await run_alone(made, call=call)).text == "done"
    (record,) = read(tmp_path / name)
    assert 0 <= record.pop("elapsed_ms") < 60_000
    assert record == {
        "at": "2023-11-14T22:13:20.500+00:00",
        "tool": "pay",
        "kind": "tool",
        "principal": "ann",
        "client": "desk",
        "session": hashlib.sha256(b"secret").hexdigest()[:16],
        "transport": "http",
        "request": "1",
        "outcome": "ok",
        "arguments_sha256": hashlib.sha256(b'{"amount":3,"to":"you"}').hexdigest(),
    }


@FORMS
async def test_arguments_are_full_and_masked_or_left_out_where_that_is_asked_for(tmp_path: Path, name: str) -> None:
    for arguments in ("full", "none"):
        with audit(tmp_path / f"{arguments}-{name}", arguments=arguments) as made:
            await run_alone(made, call=make_call("pay", {"password": "hunter2", "amount": 3}))
    (full,), (none,) = read(tmp_path / f"full-{name}"), read(tmp_path / f"none-{name}")
    assert json.loads(full["arguments"]) == {"amount": 3, "password": "***"}
    assert {"arguments", "arguments_sha256"}.isdisjoint(none)


@FORMS
async def test_every_outcome_has_its_name_and_no_text_of_a_failure_is_written(
    tmp_path: Path, name: str, road: str
) -> None:
    board = Board()

    @board.tool
    async def run(how: str) -> ToolResult:
        match how:
            case "raise":
                raise ValueError("a secret text")
            case "say":
                raise ToolError("a secret text")
            case "cancel":
                raise asyncio.CancelledError
        return ToolResult("a secret text", is_error=how == "fail")

    with audit(tmp_path / name) as made:
        board.use(made, RateLimit(5, 3600))
        async with Client(board) as client:
            for how in ("work", "fail", "raise", "say", "cancel", "once too often"):
                await client.call("run", {"how": how})
            with pytest.raises(InvalidParams, match=r"Unknown tool: .walk."):
                await client.call("walk")
    records = read(tmp_path / name)
    raised: list[tuple[str, str, str | None]] = [
        ("run", "failed", "ValueError"),
        ("run", "failed", "ToolError"),
        ("run", "cancelled", "CancelledError"),
    ]
    if "gateway" in road:
        # What is raised in a server is a failed result here.
        raised = [("run", "failed", None)] * 3
    assert [(record["tool"], record["outcome"], record.get("error")) for record in records] == [
        ("run", "ok", None),
        ("run", "failed", None),
        *raised,
        ("run", "refused", "LimitReached"),
        ("walk", "refused", "UnknownTool"),
    ]
    assert "secret" not in str(records)


async def test_a_cancelled_call_is_recorded(tmp_path: Path) -> None:
    board, begun = Board(), asyncio.Event()

    @board.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    with audit(tmp_path / "audit.jsonl") as made:
        board.use(made)
        async with Client(board) as client:
            task = asyncio.ensure_future(client.call("wait"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert [record["outcome"] for record in read(tmp_path / "audit.jsonl")] == ["cancelled"]


# -- when it is on the disk -----------------------------------------------------------------------------------------


@FORMS
async def test_the_record_is_there_when_the_answer_is(tmp_path: Path, name: str) -> None:
    with audit(tmp_path / name) as made:
        for number in range(1, 6):
            await run_alone(made)
            assert len(read(tmp_path / name)) == number
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


class SlowSink:
    """A disk that writes when told."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.taken = 0
        self.batches: list[int] = []
        self.problem: OSError | None = None

    def open(self) -> None: ...

    def append(self, rows: Any) -> None:
        self.taken += 1
        assert self.go.acquire(timeout=SOON)
        self.batches.append(len(rows))
        if self.problem is not None:
            raise self.problem

    def close(self) -> None: ...


async def test_one_sync_serves_all_that_came_meanwhile_and_the_loop_is_free() -> None:
    sink = SlowSink()
    journal = Journal(sink)
    first = asyncio.ensure_future(journal.put({}))
    await until(lambda: sink.taken == 1)
    rest = [asyncio.ensure_future(journal.put({})) for _ in range(50)]
    await asyncio.sleep(0)
    assert not first.done()
    sink.go.release()
    await first
    assert not any(task.done() for task in rest)
    sink.go.release()
    await asyncio.gather(*rest)
    assert sink.batches == [1, 50]
    journal.close()


async def test_when_too_many_records_wait_for_the_disk_callers_wait_for_room() -> None:
    sink = SlowSink()
    journal = Journal(sink, pending=2)
    tasks = [asyncio.ensure_future(journal.put({})) for _ in range(20)]
    await asyncio.sleep(0)
    assert len(journal._rows) <= 2
    sink.go.release(40)
    await asyncio.gather(*tasks)
    assert sum(sink.batches) == 20
    assert max(sink.batches) <= 2
    journal.close()


async def test_a_journal_serves_several_event_loops() -> None:
    sink = SlowSink()
    sink.go.release(100)
    journal = Journal(sink)

    def elsewhere() -> None:
        with asyncio.Runner() as runner:
            runner.run(journal.put({}))

    await asyncio.gather(journal.put({}), *(asyncio.to_thread(elsewhere) for _ in range(3)))
    assert sum(sink.batches) == 4
    journal.close()
    with pytest.raises(OSError, match="closed"):
        await journal.put({})


# -- when it cannot be ----------------------------------------------------------------------------------------------


async def test_a_full_disk_withholds_the_result_then_refuses_calls_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.audit")
    made = Audit(tmp_path / "audit.jsonl")
    sink = SlowSink()
    sink.go.release(100)
    made._journal = Journal(sink)
    sink.problem = OSError(28, "No space left on device")
    ran = await run_alone(made)
    assert ran.ran == 1
    assert isinstance(ran.exception, LimitReached)
    assert "ran, but could not be recorded" in str(ran.exception)
    for _ in range(3):
        refused = await run_alone(made)
        assert refused.ran == 0
        assert "was not run" in str(refused.exception)
    assert made.unwritten == 4
    sink.problem = None
    assert (await run_alone(made)).text == "done"
    made._journal.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "No space left" in caplog.text


async def test_a_full_disk_lets_calls_through_unrecorded_where_that_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Audit(tmp_path / "audit.jsonl", fail="open")
    sink = SlowSink()
    sink.go.release(100)
    made._journal = Journal(sink)
    sink.problem = OSError(28, "No space left on device")
    for _ in range(3):
        assert (await run_alone(made)).text == "done"
    assert made.unwritten == 3
    assert len(caplog.records) == 1
    made._journal.close()


@FORMS
async def test_a_file_that_cannot_be_opened_is_a_disk_that_cannot_be_written(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with audit(tmp_path / name) as made:
        (tmp_path / name).mkdir()
        assert isinstance((await run_alone(made)).exception, LimitReached)
        (tmp_path / name).rmdir()
        assert (await run_alone(made)).text == "done"
    assert [record["outcome"] for record in read(tmp_path / name)] == ["resumed", "ok"]


def test_what_cannot_work_is_said_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="folder of the audit file"):
        Audit(tmp_path / "nowhere" / "audit.jsonl")
    for wrong in ({"arguments": "all"}, {"fail": "maybe"}, {"form": "xml"}, {"pending": 0}):
        with pytest.raises(DeclarationError):
            Audit(tmp_path / "audit.jsonl", **wrong)


def test_the_table_refuses_to_be_changed(tmp_path: Path) -> None:
    with audit(tmp_path / "audit.db") as made, asyncio.Runner() as runner:
        runner.run(run_alone(made))
    with closing(sqlite3.connect(tmp_path / "audit.db")) as database:
        for change in ("UPDATE audit SET tool = 'other'", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(change)


# -- after a crash --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (b'{"a":1}\n{"a":2}\n{"a"', b'{"a":1}\n{"a":2}\n'),
        (b'{"a":1}\n' + b"x" * 200_000, b'{"a":1}\n'),
        (b"x" * 200_000, b""),
        (b'{"a":1}\n', b'{"a":1}\n'),
        (b"\n", b"\n"),
        (b"", b""),
    ],
)
def test_a_torn_last_line_is_dropped_with_a_note_at_the_next_start(
    tmp_path: Path, left: bytes, kept: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(left)
    file = LinesFile(path)
    file.open()
    file.append([{"b": 1}])
    file.close()
    assert path.read_bytes() == kept + b'{"b":1}\n'
    notes = [record.getMessage() for record in caplog.records]
    lost = len(left) - len(kept)
    assert notes == (
        [f"{path}: dropped the last record, which was incomplete after a crash ({lost} bytes)"] if lost else []
    )


def test_a_line_that_another_process_left_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = LinesFile(tmp_path / "audit.jsonl")
    file.open()
    file.append([{"a": 1}])
    with (tmp_path / "audit.jsonl").open("ab") as other:
        other.write(b'{"torn')
    file.append([{"b": 2}])
    file.close()
    assert (tmp_path / "audit.jsonl").read_text().splitlines() == ['{"a":1}', '{"torn', '{"b":2}']


def request(number: int) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "note", "arguments": {"number": number}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


@FORMS
def test_a_server_killed_during_ten_thousand_calls_has_recorded_every_call_it_answered(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, answered = tmp_path / name, set()
    server = subprocess.Popen([sys.executable, SERVER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None

    def send() -> None:
        try:
            for number in range(10_000):
                server.stdin.write(request(number))
            server.stdin.flush()
        except OSError:
            return  # it was killed

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for line in server.stdout:
            answered.add(json.loads(line)["id"])
            if len(answered) == 4_000:
                os.kill(server.pid, signal.SIGKILL)
                break
        # What it had written into the pipe before it died has left it, too.
        answered.update(json.loads(line)["id"] for line in server.stdout if line.endswith(b"\n"))
    finally:
        server.kill()
        server.wait()
        sender.join()
        server.stdout.close()
        try:
            server.stdin.close()
        except OSError:
            pass
    assert 4_000 <= len(answered) < 10_000
    # The next start drops what is torn, if anything is.
    with audit(path) as made, asyncio.Runner() as runner:
        runner.run(run_alone(made))
    records = [record for record in read(path) if record["tool"] == "note"]
    assert answered <= {int(record["request"]) for record in records}
    assert len(records) == len({record["request"] for record in records})
    assert all(json.loads(record["arguments"])["number"] == int(record["request"]) for record in records)


async def test_a_stopped_call_is_recorded_before_it_is_answered(tmp_path: Path) -> None:
    class Stopping(Middleware):
        order = 50

        async def before(self, call: Call) -> None:
            call.cancel()

    board = Board()

    @board.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    with audit(tmp_path / "audit.jsonl") as made:
        board.use(made, Stopping())
        async with Client(board) as client:
            assert (await client.call("wait")).text == "wait was stopped before it had a result"
            assert [record["outcome"] for record in read(tmp_path / "audit.jsonl")] == ["cancelled"]


def test_a_row_is_any_mapping(tmp_path: Path) -> None:
    row: Row = {"a": [1, {"b": None}]}
    file = LinesFile(tmp_path / "rows.jsonl")
    file.open()
    file.append([row, row])
    file.close()
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == [row, row]
