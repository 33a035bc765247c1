"""Formats log records as lines of text or JSON."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from typing import Final

from pegboard.logs.printable import printable, printable_json, printable_lines

_TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s  %(message)s"


class TextLines(logging.Formatter):
    """One line per record, tracebacks indented below it: text from a peer cannot look like a record of ours."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record)).replace("\n", "\n    ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the standard library's name
        return printable(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def set_up_logging(level: str, style: str) -> None:
    """Log to stderr, one line for each record, as `text` or as `json`: our loggers and those of authors alike."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines(_TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def log_failure(logger: logging.Logger, message: str, *args: object, error: BaseException | None = None) -> str:
    """Log a failure under a new id, and return the id: it is all that a peer may learn about the failure."""
    error_id = secrets.token_hex(4)
    logger.error("%s, error id %s", message % args, error_id, exc_info=error, stacklevel=2)
    return error_id


def guard_last_resort() -> None:
    """Format records safely that libraries log without a handler of their own."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TextLines())
