"""Logging: one line a call, its fields, what is hidden, and what cannot be forged."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from pegboard import Board, Client, ToolError
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.errors import DeclarationError
from pegboard.middleware import Logging, RateLimit
from pegboard.testing import make_call, run_alone


def make_logger(stream: io.StringIO, level: int = logging.INFO) -> logging.Logger:
    logger = logging.Logger("alone", level)  # noqa: LOG001 — not one of the registry's, which would outlive the test
    logger.addHandler(logging.StreamHandler(stream))
    return logger


async def test_a_call_is_one_line_with_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    await run_alone(
        Logging(), call=make_call("search", principal="ann", session="0123456789abcdef" * 2, client="editor")
    )
    [line] = caplog.records
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("search ok in ")
    assert line.getMessage().endswith(" ms for ann")
    fields = line.__dict__
    assert {key: fields[key] for key in ("tool", "outcome", "transport", "client", "principal", "session")} == {
        "tool": "search",
        "outcome": "ok",
        "transport": "direct",
        "client": "editor",
        "principal": "ann",
        "session": "01234567",
    }
    assert fields["elapsed_ms"] >= 0


async def test_arguments_are_written_at_debug_alone_and_masked(caplog: pytest.LogCaptureFixture) -> None:
    call = make_call(
        "login", {"user": "ann", "password": "hunter2", "headers": [{"Authorization": "Bearer abcdef123"}]}
    )
    caplog.set_level(logging.INFO, "pegboard.calls")
    await run_alone(Logging(), call=call)
    assert "ann" not in caplog.text
    caplog.clear()
    caplog.set_level(logging.DEBUG, "pegboard.calls")
    await run_alone(Logging(), call=call)
    start, end = caplog.records
    assert start.getMessage() == (
        'login started with {"user":"ann","password":"***","headers":[{"Authorization":"***"}]}'
    )
    assert start.levelno == logging.DEBUG
    assert end.getMessage().startswith("login ok")
    assert "hunter2" not in caplog.text
    assert "abcdef123" not in caplog.text


async def test_repairs_are_in_the_line_without_their_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    board = Board()
    board.use(Logging())

    @board.tool
    async def login(user_id: int, pin: str) -> str:
        return "ok"

    async with Client(board) as client:
        await client.call("login", {"userId": "4711", "pin": 9876})
    record = caplog.records[-1]
    assert record.repaired == [  # type: ignore[attr-defined]  # a field of ours
        "user_id: property_name_matched",
        "user_id: string_literal_converted_to_integer",
        "pin: non_string_literal_retained",
    ]
    assert "repaired user_id: property_name_matched; user_id: string" in record.getMessage()
    assert "4711" not in caplog.text
    assert "9876" not in caplog.text


async def test_repairs_are_logged_at_debug_without_this_middleware(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pegboard.tools.parse")
    board = Board()

    @board.tool
    async def fail(number: int) -> str:
        raise ToolError("no")

    async with Client(board) as client:
        await client.call("fail", {"number": "4711"})
    assert caplog.messages == ["fail: 1 repairs: number: string_literal_converted_to_integer"]


async def test_huge_arguments_make_no_huge_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pegboard.calls")
    nested: object = "x"
    for _ in range(100):
        nested = {"a": nested}
    await run_alone(Logging(), call=make_call(arguments={"a": "y" * 1_000_000, "b": ["z"] * 100_000, "c": nested}))
    assert len(caplog.records[0].getMessage()) < 5000
    assert "(1000000 characters)" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("answer", "outcome", "level"),
    [
        (ToolError("no such user"), "failed", logging.WARNING),
        (ValueError("password=hunter2 is wrong"), "failed", logging.WARNING),
        (asyncio.CancelledError(), "cancelled", logging.INFO),
    ],
)
async def test_a_call_that_raised_says_how(
    answer: BaseException, outcome: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    await run_alone(Logging(), answer=answer)
    [line] = caplog.records
    assert line.__dict__["outcome"] == outcome
    assert line.levelno == level
    assert "hunter2" not in line.getMessage()
    if level == logging.WARNING:
        assert line.__dict__["problem"].startswith(type(answer).__name__)
        assert line.__dict__["problem"] in line.getMessage()


async def test_an_error_result_and_a_refusal_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pegboard.calls")
    board, limit = Board(), RateLimit(1, "hour")
    limit.order = 11  # inside, so that the log hears of it
    board.use(Logging(), limit)

    @board.tool(inline=True)
    def broken() -> object:
        from pegboard import ToolResult

        return ToolResult("no", is_error=True)

    async with Client(board) as client:
        await client.call("broken")
        await client.call("broken")
        with pytest.raises(Exception, match="nknown"):
            await client.call("invented")
    assert [line.__dict__["outcome"] for line in caplog.records] == ["error", "refused", "refused"]
    assert {line.levelname for line in caplog.records} == {"WARNING"}


async def test_json_is_one_object_a_line() -> None:
    stream = io.StringIO()
    logger = make_logger(stream)
    await run_alone(Logging(logger, style="json"), call=make_call("a", client="x\ny"))
    await run_alone(Logging(logger, style="json"), answer=ToolError('bad "quote"\r\nforged'))
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["tool"] == "a"
    assert first["outcome"] == "ok"
    assert second["problem"] == 'ToolError: bad "quote"\\r\\nforged'


@pytest.mark.parametrize("style", ["line", "json"])
async def test_log_lines_cannot_be_forged(style: str) -> None:
    stream = io.StringIO()
    logger = make_logger(stream, logging.DEBUG)
    evil = "a\r\nb\x85c\u2028d\x1b[31m\x00%s%d"
    call = make_call(arguments={evil: evil}, principal=evil, client=evil, session=evil)
    call.name, call.tool = evil, UNKNOWN_ITEM
    await run_alone(Logging(logger, style=style), call=call, answer=ToolError(evil))  # type: ignore[arg-type]
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()


async def test_the_level_is_chosen_and_a_silent_logger_writes_nothing() -> None:
    stream = io.StringIO()
    logger = make_logger(stream, logging.WARNING)
    await run_alone(Logging(logger))
    assert stream.getvalue() == ""
    await run_alone(Logging(logger, logging.ERROR))
    assert "ok in" in stream.getvalue()


def test_a_style_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DeclarationError, match='"line" or "json"'):
        Logging(style="xml")  # type: ignore[arg-type]


async def test_a_record_has_all_that_records_have() -> None:
    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    kept: list[logging.LogRecord] = []
    logger = make_logger(io.StringIO())
    logger.addHandler(Kept())
    middleware = Logging(logger)
    for _ in range(2):
        await run_alone(middleware)
    await asyncio.to_thread(lambda: asyncio.run(run_alone(middleware)))
    logger.info("as usual")
    first, second, elsewhere, usual = kept
    assert set(usual.__dict__) <= set(first.__dict__)
    assert usual.created - 10 < first.created <= second.created <= usual.created
    assert first.relativeCreated <= second.relativeCreated <= usual.relativeCreated
    for name in ("name", "levelno", "levelname", "process", "processName", "thread", "threadName", "exc_info", "args"):
        assert getattr(first, name) == getattr(second, name) == getattr(usual, name), name
    assert elsewhere.thread != first.thread
    assert "%(asctime)s" not in logging.Formatter("%(asctime)s %(taskName)s %(message)s").format(second)


async def test_a_factory_of_records_is_asked() -> None:
    stream, usual = io.StringIO(), logging.getLogRecordFactory()

    def make(*arguments: object, **options: object) -> logging.LogRecord:
        record = usual(*arguments, **options)
        record.msg = f"traced: {record.msg}"
        return record

    logging.setLogRecordFactory(make)
    try:
        await run_alone(Logging(make_logger(stream)))
    finally:
        logging.setLogRecordFactory(usual)
    assert stream.getvalue().startswith("traced: stub ok in ")
