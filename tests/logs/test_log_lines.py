"""No text in a log record controls a terminal, in either format."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from pegboard.logs.log_lines import JsonLines, TextLines
from pegboard.logs.printable import printable_lines
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
