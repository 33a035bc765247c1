"""No text in a log record controls a terminal, in either format."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from pegboard.logs.log_lines import JsonLines, TextLines, current_call
from pegboard.logs.printable import printable_lines
from pegboard.testing import make_call
from tests.cli.hostile_server import ATTACK, LINE


def record(text: str) -> logging.LogRecord:
    """A record with the text in its message and in its exception."""
    try:
        raise ValueError(text)
    except ValueError:
        return logging.LogRecord("pegboard.x", logging.ERROR, "x.py", 1, "it said %s", (text,), sys.exc_info())


@pytest.mark.parametrize("formatter", [TextLines("%(levelname)s %(message)s"), JsonLines()], ids=["text", "json"])
@pytest.mark.parametrize("text", [LINE, ATTACK, "half \ud83d", "\r\n\x85"])
def test_a_record_is_one_line_of_text_and_a_traceback_is_indented(formatter: logging.Formatter, text: str) -> None:
    first, *rest = formatter.format(record(text)).split("\n")
    assert "it said" in first
    for line in (first, *rest):
        assert printable_lines(line) == line
        line.encode()
    assert all(line.startswith("    ") for line in rest)


def test_json_holds_the_message_as_it_was() -> None:
    assert json.loads(JsonLines().format(record(LINE)))["message"] == f"it said {LINE}"


@pytest.mark.process
def test_what_a_served_board_logs_by_default_is_safe_too() -> None:
    program = f"""
import logging
from pegboard import Board
Board("logs").run(transport="stdio")
logging.getLogger("pegboard.x").error("it said %s", {LINE!r})
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, input=b"", capture_output=True, timeout=60)
    told = done.stderr.decode()
    assert "ERROR   pegboard.x  it said mark" in told
    assert printable_lines(told) == told


def test_the_lines_of_a_call_name_its_principal_session_and_trace() -> None:
    call = make_call("pay", principal="ann", session="0123456789abcdef")
    call.notes.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    token = current_call.set(call)
    try:
        line = json.loads(JsonLines().format(record("x")))
    finally:
        current_call.reset(token)
    known = {name: line[name] for name in ("tool", "call", "principal", "session", "trace")}
    assert known == {
        "tool": "pay",
        "call": call.log_id,
        "principal": "ann",
        # Without the rest, a reader cannot take over the session.
        "session": "01234567",
        "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
    }
