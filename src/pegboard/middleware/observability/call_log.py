"""Logs one line for every call."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from pegboard.call import Call, Json
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.errors import DeclarationError
from pegboard.hooks.middleware import Middleware
from pegboard.hooks.observation import Observation
from pegboard.logs.printable import printable
from pegboard.middleware.call_keys import client_of
from pegboard.middleware.observability.call_record import trace_of
from pegboard.middleware.observability.masking import mask, mask_text
from pegboard.protocol.json_values import texts_in

_MAX_TEXT = 500
_MAX_ARGUMENTS = 4000
_MAX_ITEMS = 50
_MAX_DEPTH = 8
_MAX_REPAIRS = 10
_MODELS = 64
# What other middleware notes in `call.state` and a log line should show.
_NOTED = ("slow_ms", "tokens_in", "tokens_out", "tokens_estimated")

_encode = msgspec.json.Encoder(enc_hook=str).encode


class Logging(Middleware):
    """Logs how each call of any kind ended, to `logger` at `level` (a number or a name); failures at WARNING; the start and the masked arguments at DEBUG.

    `style="line"` writes a sentence, `"json"` one JSON object. The record also has the fields as attributes (`extra`):
    tool (the name), kind unless it is a tool, outcome, elapsed_ms, transport, and if available client, principal, session (its first eight digits), call (the id of its other log lines), trace, slow_ms,
    tokens_in, tokens_out, tokens_estimated, problem and repaired (where arguments were repaired, and how).
    """

    order = 10

    def __init__(
        self,
        logger: logging.Logger | str = "pegboard.calls",
        level: int | str = logging.INFO,
        *,
        style: Literal["line", "json"] = "line",
    ) -> None:
        if style not in ("line", "json"):
            raise DeclarationError(f'style={style!r}: use "line" or "json"')
        self.logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self.level = _read_level(level)
        self.style = style
        self._models: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._watch_level()

    async def start(self) -> None:
        """Find out whether the start of each call is logged, too."""
        self._watch_level()

    def _watch_level(self) -> None:
        # A hook is set only if it is needed: it would cost every call something.
        if self.logger.isEnabledFor(logging.DEBUG):
            self.before = self._log_start  # type: ignore[method-assign, assignment]  # hooks may be plain functions
        else:
            self.__dict__.pop("before", None)

    def _log_start(self, call: Call) -> None:
        arguments = _encode(mask(_shorten(call.sent))).decode("utf-8", "replace")
        fields = {**_fields(call, "started"), "arguments": printable(arguments[:_MAX_ARGUMENTS])}
        self._write(logging.DEBUG, f"started with {fields['arguments']}", fields)

    def observe(self, call: Call, seen: Observation) -> None:
        """Log how the call ended."""
        failure = seen.failure
        cancelled = failure is not None and failure.outcome == "cancelled"
        level = logging.WARNING if seen.failed and not cancelled else self.level
        if not self.logger.isEnabledFor(level):
            return
        elapsed_ms = (seen.ended - seen.began) * 1000
        outcome = seen.outcome
        fields = _fields(call, "failed" if failure is not None and outcome == "error" else outcome, elapsed_ms)
        message = ""
        if failure is not None and not cancelled:
            fields["problem"] = printable(mask_text(f"{failure.name}: {failure.text}"[:_MAX_TEXT]))
            message = f" ({fields['problem']})"
        self._write(
            level, f"{fields['outcome']} in {elapsed_ms:.1f} ms{_who(fields)}{_repairs(fields)}{message}", fields
        )

    def _write(self, level: int, line: str, fields: dict[str, Json]) -> None:
        if self.style == "line":
            name = f"{fields['kind']} {fields['tool']}" if "kind" in fields else fields["tool"]
            message = f"{name} {line}"
        else:
            message = _encode(fields).decode("utf-8", "replace")
        logger = self.logger
        if logging.getLogRecordFactory() is logging.LogRecord:
            logger.handle(self._record(level, message, fields))
        else:
            logger.handle(logger.makeRecord(logger.name, level, __file__, 0, message, (), None, extra=fields))

    def _record(self, level: int, message: str, fields: dict[str, Json]) -> logging.LogRecord:
        """A record as `LogRecord(…)` makes it, copied from the last one of this level, process and thread.

        Most fields of a record do not change from call to call, and computing them costs more than the rest of this
        middleware.
        """
        key = level, os.getpid(), threading.get_ident()
        model = self._models.get(key)
        if model is None:
            if len(self._models) >= _MODELS:
                self._models.clear()
            # No arguments, so that a % in the message is kept.
            model = self._models[key] = logging.LogRecord(self.logger.name, level, __file__, 0, "", (), None).__dict__
        attributes = model.copy()
        now = time.time()
        attributes["created"], attributes["msecs"] = now, int(now % 1 * 1000) + 0.0
        attributes["relativeCreated"] = model["relativeCreated"] + (now - model["created"]) * 1000
        attributes["taskName"] = None if (task := asyncio.current_task()) is None else task.get_name()
        attributes["msg"] = message
        attributes.update(fields)
        record = object.__new__(logging.LogRecord)
        record.__dict__ = attributes
        return record


def _read_level(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise DeclarationError(f'level={level!r}: use a level of the module logging, such as "INFO"')
    return number


def _fields(call: Call, outcome: str, elapsed_ms: float | None = None) -> dict[str, Json]:
    # The name of a known tool has been checked; any other comes from the caller.
    if call.method != "tools/call":
        fields: dict[str, Json] = {"tool": printable(call.name[:256]), "kind": call.kind}
    else:
        fields = {"tool": printable(call.name[:128]) if call.tool is UNKNOWN_ITEM else call.name}
    fields["outcome"] = outcome
    if elapsed_ms is not None:
        fields["elapsed_ms"] = int(elapsed_ms * 1000) / 1000
    caller = call.caller
    fields["transport"] = caller.transport
    if client := client_of(call):
        fields["client"] = printable(client)
    if caller.principal.id:
        fields["principal"] = printable(caller.principal.id)
    if caller.session:
        fields["session"] = printable(caller.session[:8])
    fields["call"] = call.log_id
    if trace := trace_of(call):
        fields["trace"] = trace
    if call.parsed is not None and call.parsed.warnings:
        # Without the values, which may be secrets.
        fields["repaired"] = [
            printable(f"{warning.path or 'arguments'}: {warning.code}") for warning in call.warnings[:_MAX_REPAIRS]
        ]
    if call._state is not None:
        fields.update({key: call._state[key] for key in _NOTED if key in call._state})
    return fields


def _who(fields: Mapping[str, Json]) -> str:
    who = fields.get("principal") or fields.get("client")
    return f" for {who}" if who else ""


def _repairs(fields: Mapping[str, Json]) -> str:
    return f", repaired {'; '.join(texts_in(fields['repaired']))}" if "repaired" in fields else ""


def _shorten(value: Json, depth: int = 0) -> Json:
    """The value cut to what a line may hold, before any other work."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict | list) and depth == _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        kept = list(value.items())[:_MAX_ITEMS]
        return {key[:_MAX_TEXT]: _shorten(item, depth + 1) for key, item in kept}
    if isinstance(value, list):
        return [_shorten(item, depth + 1) for item in value[:_MAX_ITEMS]]
    return value
