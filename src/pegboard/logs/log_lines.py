"""Formats log records as lines of text or JSON, with the call that they belong to."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol, Self

from pegboard.logs.printable import printable, printable_json, printable_lines

_log = logging.getLogger("pegboard")

_TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s  %(message)s"


class LoggedCall(Protocol):
    """What a log line shows of the call that it belongs to; `call.Call` itself would make `pegboard --version` load asyncio."""

    @property
    def name(self) -> str: ...

    @property
    def method(self) -> str: ...

    @property
    def id(self) -> str | int | None: ...

    @property
    def kind(self) -> str: ...

    @property
    def log_id(self) -> str: ...

    @property
    def log_context(self) -> Mapping[str, object]: ...


current_call: Final[ContextVar[LoggedCall | None]] = ContextVar("current_call", default=None)
"""The call that runs, for its log lines only: an author's logger has no other way to learn it, also in threads and tasks."""


class ServerName(str):
    """The name of a server as an argument of a log record; `server` is the name that its operator gave it.

    A line for such a record starts with `server`, and a line of JSON has it as a field.
    """

    __slots__ = ("server",)
    server: str

    def __new__(cls, name: str, server: str) -> Self:
        made = super().__new__(cls, name)
        made.server = server
        return made


def server_of(record: logging.LogRecord) -> str:
    """The server that a record is about, or nothing."""
    known = getattr(record, "server", None)
    if known is not None:
        return str(known)
    args = record.args if isinstance(record.args, tuple) else ()
    return next((arg.server for arg in args if isinstance(arg, ServerName)), "")


def _message(record: logging.LogRecord) -> str:
    message, server = record.getMessage(), server_of(record)
    return message if message.startswith(server) else f"{server}: {message}"


class TextLines(logging.Formatter):
    """One line per record, tracebacks indented below it: text from a peer cannot look like a record of ours."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record)).replace("\n", "\n    ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the standard library's name
        record.message = _message(record)
        line, call = super().formatMessage(record), current_call.get()
        if call is not None:
            line += f"  ({call.name or call.method}, call {call.log_id}, request {call.id})"
        return printable(line)


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if server := server_of(record):
            line["server"] = server
        call = current_call.get()
        if call is not None:
            line |= {call.kind: call.name, "call": call.log_id, "request": call.id, **call.log_context}
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def set_up_logging(level: str, style: str) -> None:
    """Log to stderr, one line for each record, as `text` or as `json`: our loggers and those of authors alike."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines(_TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def announce_lines(lines: Sequence[str], *, essential: int = 1) -> None:
    """Print lines for the person who starts a server on stderr, where stdout may belong to the protocol.

    Where the log is JSON, the first `essential` lines become records, and the others, which are for reading, are left out.
    """
    if _logs_json():
        for line in lines[:essential]:
            _log.info("%s", " ".join(line.split()))
    elif sys.stderr is not None:
        print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)  # noqa: T201 — said at any log level


def report_setup_error(text: str) -> None:
    """Print why a program cannot do what it was started for, whatever the log level is."""
    if _logs_json():
        _log.error("%s", text)
    elif sys.stderr is not None:
        print(printable_lines(text), file=sys.stderr)  # noqa: T201


def _logs_json() -> bool:
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers)


def log_failure(logger: logging.Logger, message: str, *args: object, error: BaseException | None = None) -> str:
    """Log a failure under a new id, and return the id: it is all that a peer may learn about the failure."""
    # As `secrets.token_hex`, without the fourteen modules that every command would load for it.
    error_id = os.urandom(4).hex()
    logger.error("%s, error id %s", message % args, error_id, exc_info=error, stacklevel=2)
    return error_id


def guard_last_resort() -> None:
    """Format records safely that libraries log without a handler of their own."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TextLines())
