"""The middleware that records every call in the audit log before its response is sent."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal

import msgspec

from pegboard.call import Call, Done, EncodedResult, Handler, InputRequired, Reply, TaskStarted
from pegboard.errors import REFUSED, DeclarationError, LimitReached, Refusal, SetupError, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.logs.audit_sink import AuditSink, Decision
from pegboard.middleware.audit.chain_writer import ChainWriter
from pegboard.middleware.audit.hash_chain import read_chain_keys
from pegboard.middleware.audit.journal import Journal
from pegboard.middleware.audit.otlp_logs import OtlpLogs
from pegboard.middleware.observability.call_masking import CallMasking
from pegboard.middleware.observability.call_record import Arguments, CallRecord, CallRecorder, mask_details, timestamp
from pegboard.protocol.json_values import as_object
from pegboard.security.ownership import check_folder

_log = logging.getLogger("pegboard.audit")
_encode = msgspec.json.Encoder(enc_hook=str).encode
_UNWRITTEN: Final = (OSError, SetupError)
_CLEANUP_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0
_WITHHELD: Final = "{} ran, but could not be recorded, so its result is withheld. Tell the operator."
_UNCHANGED: Final = "This cannot be recorded in the audit log now, so nothing was changed. Try again later."
_NOT_RUN: Final = "{} was not run: calls cannot be recorded now. Try again later."


class Audit(Middleware, AuditSink):
    """Records each call: who called what, when and from where, with which arguments, and the outcome.

    The records are JSON lines in the folder `path`; each is linked to the one before, and `pegboard audit verify` finds
    what was changed, removed or cut (docs/audit.md). A response waits until its record is written.

    arguments: "masked", "hash" (SHA-256 of the arguments with their names sorted) or "none".
    names: further names of arguments whose values are masked.
    secret: the key of the chain; without it, PEGBOARD_SECRET, or no key.
    sync: what a record survives: "normal" the death of the process, "full" also a power failure.
    fail: what happens to calls while the disk cannot be written: "closed" rejects them, "open" answers them unrecorded.
    max_bytes, max_age: the size and the age in seconds at which the next file begins.
    keep_files: how many files of each process are kept; None for all.
    compress: whether finished files are compressed.
    otlp: whether each record is also sent to an OpenTelemetry collector, as `OTEL_EXPORTER_OTLP_ENDPOINT` says.
    pending: with sync="full", how many records may wait for the disk.
    now: the clock, for tests.
    """

    # Outside of all other middleware, which may reject calls.
    order = -math.inf

    def __init__(
        self,
        path: str | Path,
        *,
        arguments: Arguments = "masked",
        names: Iterable[str] = (),
        secret: str | None = None,
        sync: Literal["normal", "full"] = "normal",
        fail: Literal["closed", "open"] = "closed",
        max_bytes: int = 64 * 2**20,
        max_age: float = 86_400.0,
        keep_files: int | None = None,
        compress: bool = True,
        otlp: bool = False,
        pending: int = 4096,
        now: Callable[[], float] = time.time,
    ) -> None:
        folder = Path(path)
        _check_choice("arguments", arguments, "masked", "hash", "none")
        _check_choice("sync", sync, "normal", "full")
        _check_choice("fail", fail, "closed", "open")
        if max_bytes < 1 or not max_age > 0 or (keep_files is not None and keep_files < 1):
            raise DeclarationError("max_bytes, max_age and keep_files must be positive")
        self.folder: Path = folder
        self.arguments, self.fail = arguments, fail
        self.unwritten = 0
        self._now = now
        self._masking = CallMasking(names)
        self._recorder = CallRecorder(self._masking, arguments)
        self._is_down = False
        keys = read_chain_keys(os.environ.get("PEGBOARD_SECRET") if secret is None else secret)
        self._otlp = OtlpLogs() if otlp else None
        self._writer = ChainWriter(
            folder,
            keys[0],
            max_bytes=max_bytes,
            max_age=max_age,
            keep_files=keep_files,
            compress=compress,
            sync=sync == "full",
            on_written=None if self._otlp is None else self._otlp.send,
            now=now,
        )
        self._journal = Journal(self._writer, pending) if sync == "full" else None
        _check_folder(folder)
        weakref.finalize(self, self._writer.close if self._journal is None else self._journal.release)

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Record the call, and wait until the record is written."""
        if self._is_down and self.fail == "closed":
            await self._probe(call)
        began = perf_counter()
        try:
            reply = await proceed(call)
        except asyncio.CancelledError:
            await self._write_cancelled(self._describe(call, "cancelled", "CancelledError", began))
            raise
        except BaseException as problem:
            outcome = "refused" if _is_refusal(problem) else "failed"
            await self._write_all(self._describe(call, outcome, type(problem).__name__, began), _WITHHELD)
            raise
        # The common case first, without calls of other functions.
        result = reply.result
        outcome = (
            "ok" if type(reply) is Done and type(result) is dict and "isError" not in result else _outcome_of(reply)
        )
        record = self._recorder.record(call, outcome, "", (perf_counter() - began) * 1000, self._now())
        waiting = self._write(record, _WITHHELD)
        if waiting is not None:
            await waiting
        return reply

    async def record(self, decision: Decision) -> None:
        record = CallRecord(
            at=timestamp(self._now()),
            action=decision.action,
            principal=decision.principal,
            name=decision.name[:512],
            outcome=decision.outcome,
            transport=decision.transport,
            address=decision.address,
        )
        if decision.details:
            record.details = mask_details(decision.details, self._masking)
        await self._write_all(record, _UNCHANGED)

    async def start(self) -> None:
        """Open the file, so that a folder that cannot be used is reported before the first call runs."""
        try:
            await asyncio.to_thread(self._writer.open)
        except _UNWRITTEN as problem:
            self._report_outage(problem)

    async def stop(self) -> None:
        """Write pending records and close the file; the next call opens it again."""
        await asyncio.to_thread(self._writer.close if self._journal is None else self._journal.rest)
        if self._otlp is not None:
            await asyncio.to_thread(self._otlp.close)

    def close(self) -> None:
        """Write pending records and close the file for good."""
        (self._journal or self._writer).close()
        if self._otlp is not None:
            self._otlp.close()

    def _write(
        self, record: CallRecord, rejection: str, retry_after: float | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """Write a record; what it returns has to be awaited."""
        journal, waiting = self._journal, None
        try:
            if journal is None:
                self._writer.append((_encode(record),))
            else:
                waiting = journal.put(_encode(record))
        except _UNWRITTEN as problem:
            self._reject(problem, rejection.format(record.name), retry_after)
            return None
        if waiting is not None:
            return self._wait(waiting, rejection.format(record.name), retry_after)
        if self._is_down:
            self._is_down = False
        return None

    async def _wait(self, waiting: Awaitable[None], rejection: str, retry_after: float | None) -> None:
        try:
            await waiting
        except _UNWRITTEN as problem:
            self._reject(problem, rejection, retry_after)
        else:
            if self._is_down:
                self._is_down = False

    async def _write_all(self, record: CallRecord, rejection: str, retry_after: float | None = None) -> None:
        waiting = self._write(record, rejection, retry_after)
        if waiting is not None:
            await waiting

    def _reject(self, problem: Exception, rejection: str, retry_after: float | None) -> None:
        self._report_unwritten(problem)
        if self.fail == "closed":
            raise LimitReached(rejection, "audit_unavailable", retry_after=retry_after) from problem

    async def _write_cancelled(self, record: CallRecord) -> None:
        """Waits too: a call that cancelled itself, or was stopped by a hook, still gets a response."""
        try:
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await self._write_all(record, _WITHHELD)
        except TimeoutError as problem:
            self._report_unwritten(problem)
        except LimitReached:
            return

    async def _probe(self, call: Call) -> None:
        """Try the disk before the tool runs; the record says so."""
        await self._write_all(self._describe(call, "resumed", "", perf_counter()), _NOT_RUN, _RETRY_SECONDS)
        _log.info("the audit log can be written again")

    def _report_unwritten(self, problem: Exception) -> None:
        self.unwritten += 1
        self._report_outage(problem)

    def _report_outage(self, problem: Exception) -> None:
        if not self._is_down:
            self._is_down = True
            outcome = "are refused" if self.fail == "closed" else "go unrecorded"
            _log.error("the audit log cannot be written, calls %s: %s", outcome, problem)

    def _describe(self, call: Call, outcome: str, error: str, began: float) -> CallRecord:
        return self._recorder.record(call, outcome, error, (perf_counter() - began) * 1000, self._now())


def _outcome_of(reply: Reply) -> str:
    if isinstance(reply, InputRequired):
        return "asked"
    if isinstance(reply, TaskStarted):
        return "task"
    result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
    if not result.get("isError"):
        return "ok"
    return "refused" if REFUSED in as_object(result.get("_meta")) else "failed"


def _is_refusal(problem: BaseException) -> bool:
    return isinstance(problem, Refusal) or (isinstance(problem, ToolError) and REFUSED in (problem.meta or {}))


def _check_choice(name: str, value: str, *choices: str) -> None:
    if value not in choices:
        *others, last = map(repr, choices)
        raise DeclarationError(f"{name}={value!r}: use {', '.join(others)} or {last}")


def _check_folder(folder: Path) -> None:
    """SetupError if the folder cannot be an audit log."""
    if folder.is_symlink():
        raise SetupError(f"{folder} is a symbolic link, which is not followed; remove it, or use what it points to")
    if folder.exists() and not folder.is_dir():
        raise SetupError(f"The audit log {str(folder)!r} is a folder, and this is a file; choose another name")
    if not folder.exists() and not folder.parent.is_dir():
        raise SetupError(f"The folder of the audit log {str(folder)!r} does not exist; create it or choose another")
    check_folder(folder if folder.exists() else folder.parent)
