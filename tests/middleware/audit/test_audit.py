"""The record of every call: what it says, when it is on the disk, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from pegboard import Board, Client, Middleware, ToolError, ToolResult
from pegboard.call import Call
from pegboard.errors import REFUSED, DeclarationError, InvalidParams, LimitReached, SetupError
from pegboard.logs.audit_sink import NO_AUDIT, Decision
from pegboard.middleware import Audit, RateLimit
from pegboard.middleware.audit.chain_files import latest_records
from pegboard.middleware.audit.chain_writer import ChainWriter
from pegboard.testing import make_call, run_alone
from tests.middleware.audit.audit_records import SECRET, findings_of, records_of

SYNCS = pytest.mark.parametrize("sync", ["normal", "full"])


@contextmanager
def audit(folder: Path, **options: Any) -> Iterator[Audit]:
    made = Audit(folder, **{"secret": SECRET, **options})
    try:
        yield made
    finally:
        made.close()


# -- what is recorded -----------------------------------------------------------------------------------------------


@SYNCS
async def test_a_record_says_who_called_what_and_what_came_of_it(tmp_path: Path, sync: str) -> None:
    with audit(tmp_path, sync=sync, now=lambda: 1_700_000_000.5) as made:
        call = make_call(
            "pay", {"to": "you", "amount": 3}, principal="ann", session="secret", client="desk", transport="http"
        )
        assert (await run_alone(made, call=replace(call, rule="rules[0]: allow pay"))).text == "done"
    (record,) = records_of(tmp_path)
    assert 0 <= record.pop("elapsed_ms") < 60_000
    assert record == {
        "at": "2023-11-14T22:13:20.500Z",
        "action": "tools/call",
        "name": "pay",
        "principal": "ann",
        "client": "desk",
        "session": hashlib.sha256(b"secret").hexdigest()[:16],
        "transport": "http",
        "request": "1",
        "outcome": "ok",
        "rule": "rules[0]: allow pay",
        "arguments": {"to": "you", "amount": 3},
    }
    assert findings_of(tmp_path) == []


async def test_arguments_are_masked_hashed_or_left_out(tmp_path: Path) -> None:
    for arguments in ("masked", "hash", "none"):
        with audit(tmp_path / arguments, arguments=arguments, names=["iban"]) as made:
            call = make_call("pay", {"password": "hunter2", "amount": 3, "IBAN": "CH93"})
            await run_alone(made, call=call)
    (masked,), (hashed,), (none,) = (records_of(tmp_path / folder) for folder in ("masked", "hash", "none"))
    assert masked["arguments"] == {"amount": 3, "password": "***", "IBAN": "***"}
    sent = b'{"IBAN":"CH93","amount":3,"password":"hunter2"}'
    assert hashed["arguments_sha256"] == hashlib.sha256(sent).hexdigest()
    assert {"arguments", "arguments_sha256"}.isdisjoint(none)


async def test_facts_that_were_noted_while_the_call_ran_are_in_its_record(tmp_path: Path) -> None:
    class Noting(Middleware):
        async def before(self, call: Call) -> None:
            call.note(credential="oauth ann@github", approval={"id": "ap_1", "by": "bob"})
            call.note(quota="half", token="abc")

    with audit(tmp_path) as made:
        await run_alone(made, Noting())
    (record,) = records_of(tmp_path)
    assert record["credential"] == "oauth ann@github"
    assert record["approval"] == {"id": "ap_1", "by": "bob"}
    assert record["details"] == {"quota": "half", "token": "***"}


async def test_the_id_of_the_trace_is_in_the_record(tmp_path: Path) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with audit(tmp_path) as made:
        await run_alone(made, call=make_call(meta={"traceparent": f"00-{trace}-b7ad6b7169203331-01"}))
        await run_alone(made, call=make_call(meta={"traceparent": "nonsense"}))
    assert [record.get("trace") for record in records_of(tmp_path)] == [trace, None]


async def test_a_decision_is_recorded_beside_the_calls(tmp_path: Path) -> None:
    board = Board()
    assert board.audit is NO_AUDIT
    await board.audit.record(Decision("keys.add", name="nothing is recorded"))
    with audit(tmp_path, now=lambda: 1_700_000_000.0) as made:
        board.use(made)
        await board.audit.record(
            Decision(
                "approvals.grant",
                principal="ann",
                name="pay",
                transport="console",
                details={"for": "bob", "password": "x"},
            )
        )
    assert records_of(tmp_path) == [
        {
            "at": "2023-11-14T22:13:20.000Z",
            "action": "approvals.grant",
            "name": "pay",
            "principal": "ann",
            "transport": "console",
            "outcome": "ok",
            "details": {"for": "bob", "password": "***"},
        }
    ]


async def test_every_outcome_has_its_name_and_no_text_of_a_failure_is_written(tmp_path: Path, road: str) -> None:
    board = Board()

    @board.tool
    async def run(how: str) -> ToolResult:
        match how:
            case "raise":
                raise ValueError("a secret text")
            case "say":
                raise ToolError("a secret text")
            case "refuse":
                raise ToolError("a secret text", meta={REFUSED: {"reason": "denied"}})
            case "cancel":
                raise asyncio.CancelledError
        return ToolResult("a secret text", is_error=how == "fail")

    with audit(tmp_path) as made:
        board.use(made, RateLimit(6, 3600))
        async with Client(board) as client:
            for how in ("work", "fail", "refuse", "raise", "say", "cancel", "once too often"):
                await client.call("run", {"how": how})
            with pytest.raises(InvalidParams, match=r"Unknown tool: .walk."):
                await client.call("walk")
    records = records_of(tmp_path)
    raised: list[tuple[str, str, str | None]] = [
        ("run", "refused", "ToolError"),
        ("run", "failed", "ValueError"),
        ("run", "failed", "ToolError"),
        ("run", "cancelled", "CancelledError"),
    ]
    if "gateway" in road:
        # What is raised in a server is a failed result here.
        raised = [("run", "refused", None), *[("run", "failed", None)] * 3]
    assert [(record["name"], record["outcome"], record.get("error")) for record in records] == [
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

    with audit(tmp_path) as made:
        board.use(made)
        async with Client(board) as client:
            task = asyncio.ensure_future(client.call("wait"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert [record["outcome"] for record in records_of(tmp_path)] == ["cancelled"]


# -- when it is written ---------------------------------------------------------------------------------------------


@SYNCS
async def test_the_record_is_there_when_the_answer_is(tmp_path: Path, sync: str) -> None:
    with audit(tmp_path / "audit", sync=sync) as made:
        for number in range(1, 6):
            await run_alone(made)
            assert len(records_of(tmp_path / "audit")) == number
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "audit").iterdir()} == {0o600}


async def test_a_stopped_call_is_recorded_before_it_is_answered(tmp_path: Path) -> None:
    class Stopping(Middleware):
        order = 50

        async def before(self, call: Call) -> None:
            call.cancel()

    board = Board()

    @board.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    with audit(tmp_path) as made:
        board.use(made, Stopping())
        async with Client(board) as client:
            assert (await client.call("wait")).text == "wait was stopped before it had a result"
            assert [record["outcome"] for record in records_of(tmp_path)] == ["cancelled"]


async def test_a_call_that_other_middleware_rejects_is_recorded_wherever_that_is(tmp_path: Path) -> None:
    class Closed(Middleware):
        order = -5

        async def before(self, call: Call) -> None:
            raise LimitReached("closed", "closed")

    board = Board()
    board.tool(lambda: "x", name="work")
    with audit(tmp_path) as made:
        board.use(made, Closed())
        async with Client(board) as client:
            await client.call("work")
    assert [record["outcome"] for record in records_of(tmp_path)] == ["refused"]


# -- when it cannot be written --------------------------------------------------------------------------------------


class FullDisk(ChainWriter):
    """A log on a disk that is full until told otherwise."""

    def __init__(self, real: ChainWriter) -> None:
        self.real = real
        self.problem: OSError | None = OSError(28, "No space left on device")

    def append(self, records: Sequence[bytes]) -> None:
        if self.problem is not None:
            raise self.problem
        self.real.append(records)

    def close(self) -> None:
        self.real.close()


async def test_a_full_disk_withholds_the_result_then_refuses_calls_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.audit")
    with audit(tmp_path) as made:
        disk = made._writer = FullDisk(made._writer)
        ran = await run_alone(made)
        assert ran.ran == 1
        assert isinstance(ran.exception, LimitReached)
        assert "ran, but could not be recorded" in str(ran.exception)
        for _ in range(3):
            refused = await run_alone(made)
            assert refused.ran == 0
            assert "was not run" in str(refused.exception)
        with pytest.raises(LimitReached, match="nothing was changed"):
            await made.record(Decision("keys.add"))
        assert made.unwritten == 5
        disk.problem = None
        assert (await run_alone(made)).text == "done"
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "No space left" in caplog.text
    assert [record["outcome"] for record in records_of(tmp_path)] == ["resumed", "ok"]


async def test_a_full_disk_lets_calls_through_unrecorded_where_that_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with audit(tmp_path, fail="open") as made:
        made._writer = FullDisk(made._writer)
        for _ in range(3):
            assert (await run_alone(made)).text == "done"
        await made.record(Decision("keys.add"))
        assert made.unwritten == 4
        assert len(caplog.records) == 1


async def test_a_board_whose_audit_log_cannot_be_written_runs_no_call_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board, ran = Board(), list[int]()
    board.tool(lambda: ran.append(1), name="work")
    with audit(tmp_path) as made:
        (tmp_path / "audit-1.head").mkdir()
        board.use(made)
        async with Client(board) as client:
            assert "was not run" in (await client.call("work")).text
    assert not ran
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "not a regular file" in caplog.text


@SYNCS
async def test_a_file_that_cannot_be_opened_is_a_disk_that_cannot_be_written(
    tmp_path: Path, sync: str, caplog: pytest.LogCaptureFixture
) -> None:
    with audit(tmp_path, sync=sync) as made:
        (tmp_path / "audit-1.head").mkdir()
        assert isinstance((await run_alone(made)).exception, LimitReached)
        (tmp_path / "audit-1.head").rmdir()
        assert (await run_alone(made)).text == "done"
    assert [record["outcome"] for record in records_of(tmp_path)] == ["resumed", "ok"]


def test_what_cannot_work_is_said_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="folder of the audit log"):
        Audit(tmp_path / "nowhere" / "audit")
    (tmp_path / "audit.jsonl").touch()
    with pytest.raises(SetupError, match="this is a file"):
        Audit(tmp_path / "audit.jsonl")
    with pytest.raises(SetupError, match="PEGBOARD_SECRET"):
        Audit(tmp_path, secret="short")
    for wrong in (
        {"arguments": "all"},
        {"fail": "maybe"},
        {"sync": "often"},
        {"pending": 0, "sync": "full"},
        {"max_bytes": 0},
    ):
        with pytest.raises(DeclarationError):
            Audit(tmp_path, **wrong)


async def test_a_caller_cannot_hide_or_forge_records_with_the_spelling_of_its_arguments(tmp_path: Path) -> None:
    """A carriage return is white space in JSON, and ends a line for some programs; of a repeated member, the last counts."""
    forged = b'{"action":"approvals.grant","at":"2099-01-01T00:00:00.000Z","principal":"admin","outcome":"ok"}'
    call = make_call("pay", {"amount": 3})
    call.raw = Raw(b'{"amount":[\r' + forged + b'\r],"amount":\r3}')
    with audit(tmp_path) as made:
        await run_alone(made, call=call)
        shown = latest_records(tmp_path, 10)
    assert {record["action"]: record.get("arguments") for record in shown} == {
        "audit.open": None,
        "tools/call": {"amount": 3},
    }
    assert b"\r" not in (tmp_path / "audit-1.000001.jsonl").read_bytes()
    # The next process finds the end of the log.
    with audit(tmp_path) as made:
        await run_alone(made)
    assert findings_of(tmp_path) == []
