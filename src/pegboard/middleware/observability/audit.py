"""An append-only record of every call, on disk before the response is sent."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias

import msgspec

from pegboard.call import Call, EncodedResult, Handler, InputRequired, Json, Reply
from pegboard.errors import DeclarationError, LimitReached, Refusal, SetupError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import client_of
from pegboard.middleware.observability.journal import Journal, JournalSink, LinesFile, SqliteFile
from pegboard.middleware.observability.masking import mask
from pegboard.security.ownership import check_folder, check_own_file

Form: TypeAlias = Literal["lines", "sqlite"]
Arguments: TypeAlias = Literal["hash", "full", "none"]

_log = logging.getLogger("pegboard.audit")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_COLUMNS = {
    "at": "TEXT NOT NULL",
    "tool": "TEXT NOT NULL",
    "kind": "TEXT",
    "principal": "TEXT",
    "client": "TEXT",
    "session": "TEXT",
    "transport": "TEXT",
    "request": "TEXT",
    "arguments": "TEXT",
    "arguments_sha256": "TEXT",
    "outcome": "TEXT NOT NULL",
    "error": "TEXT",
    "elapsed_ms": "REAL NOT NULL",
}
_UNWRITTEN = (OSError, sqlite3.Error, SetupError)
_CLEANUP_SECONDS = 1.0


class Audit(Middleware):
    """Records each call: who called which tool, prompt, resource or completion with which arguments, and the outcome.

    `path` is a file of JSON lines, or an SQLite database if it ends in `.db`, `.sqlite` or `.sqlite3` (`form` says it
    otherwise). It must belong to this user and must not be a link. `arguments`: `"hash"` (SHA-256 of the arguments with
    their names sorted), `"full"` (secrets masked) or `"none"`. `outcome` is `ok`, `failed`, `refused` or `cancelled`, or `asked` where the caller has to answer something
    first and send the call again; `error` names the kind of failure, never its text.

    At most `pending` records wait to be written. `now` is the clock, for tests.

    A response waits until its record is on disk, so a crash loses no record of an answered call. If the disk cannot be
    written, `fail="closed"` rejects calls before they run, and withholds the result of one that has run already;
    `fail="open"` answers anyway. Both are logged once and counted in `unwritten`. The first call after the disk works
    again adds a record with the outcome `resumed`.
    """

    order = 3

    def __init__(
        self,
        path: str | Path,
        *,
        arguments: Arguments = "hash",
        form: Form | None = None,
        fail: Literal["closed", "open"] = "closed",
        pending: int = 4096,
        now: Callable[[], float] = time.time,
    ) -> None:
        file = Path(path)
        if arguments not in ("hash", "full", "none"):
            raise DeclarationError(f'arguments={arguments!r}: use "hash", "full" or "none"')
        if fail not in ("closed", "open"):
            raise DeclarationError(f'fail={fail!r}: use "closed" or "open"')
        if not file.parent.is_dir():
            raise SetupError(f"The folder of the audit file {str(file)!r} does not exist; create it or choose another")
        check_folder(file.parent)
        check_own_file(file)
        self.arguments, self.fail = arguments, fail
        self.unwritten = 0
        self._now = now
        self._is_down = False
        self._journal = Journal(_sink(file, form), pending)
        weakref.finalize(self, self._journal.release)

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Record the call, and wait until the record is on disk."""
        if self._is_down and self.fail == "closed":
            await self._probe(call)
        began = perf_counter()
        try:
            reply = await proceed(call)
        except asyncio.CancelledError as cancelled:
            await self._write_cancelled(self._record(call, "cancelled", cancelled, began))
            raise
        except BaseException as problem:
            outcome = "refused" if isinstance(problem, Refusal | LimitReached) else "failed"
            await self._write(call, self._record(call, outcome, problem, began))
            raise
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        outcome = "asked" if isinstance(reply, InputRequired) else "failed" if result.get("isError") else "ok"
        await self._write(call, self._record(call, outcome, None, began))
        return reply

    async def stop(self) -> None:
        """Write pending records and close the file; the next call opens it again."""
        await asyncio.to_thread(self._journal.rest)

    def close(self) -> None:
        """Write pending records and close the file for good."""
        self._journal.close()

    async def _write(self, call: Call, record: dict[str, Json]) -> None:
        try:
            await self._journal.put(record)
        except _UNWRITTEN as problem:
            self._report_unwritten(problem)
            if self.fail == "closed":
                raise LimitReached(
                    f"{call.name} ran, but could not be recorded, so its result is withheld. Tell the operator.",
                    "audit_unavailable",
                ) from problem
        else:
            self._is_down = False

    async def _write_cancelled(self, record: dict[str, Json]) -> None:
        """Waits too: a call that cancelled itself, or was stopped by a hook, still gets a response."""
        try:
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await self._journal.put(record)
        except (TimeoutError, *_UNWRITTEN) as problem:
            self._report_unwritten(problem)

    async def _probe(self, call: Call) -> None:
        """Try the disk before the tool runs; the record says so."""
        try:
            await self._journal.put(self._record(call, "resumed", None, perf_counter()))
        except _UNWRITTEN as problem:
            self._report_unwritten(problem)
            raise LimitReached(
                f"{call.name} was not run: calls cannot be recorded now. Try again later.",
                "audit_unavailable",
                retry_after=10.0,
            ) from problem
        self._is_down = False
        _log.info("the audit file can be written again")

    def _report_unwritten(self, problem: Exception) -> None:
        self.unwritten += 1
        if not self._is_down:
            self._is_down = True
            outcome = "are refused" if self.fail == "closed" else "go unrecorded"
            _log.error("the audit file cannot be written, calls %s: %s", outcome, problem)

    def _record(self, call: Call, outcome: str, problem: BaseException | None, began: float) -> dict[str, Json]:
        record: dict[str, Json] = {
            "at": datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds"),
            "tool": call.name[:512],
            "kind": call.kind,
            "principal": call.caller.principal.id,
            "client": client_of(call),
            # A digest, so that a reader of the file cannot take over a session.
            "session": hashlib.sha256(call.caller.session.encode()).hexdigest()[:16] if call.caller.session else "",
            "transport": call.caller.transport,
            "request": "" if call.id is None else str(call.id)[:128],
            "outcome": outcome,
            "elapsed_ms": round((perf_counter() - began) * 1000, 3),
        }
        if problem is not None:
            record["error"] = type(problem).__name__
        if self.arguments == "hash":
            record["arguments_sha256"] = hashlib.sha256(_encode_sorted(call.sent)).hexdigest()
        elif self.arguments == "full":
            record["arguments"] = _encode_sorted(mask(call.sent)).decode()
        return record


def _sink(path: Path, form: Form | None) -> JournalSink:
    form = form or ("sqlite" if path.suffix in (".db", ".sqlite", ".sqlite3") else "lines")
    if form == "sqlite":
        return SqliteFile(path, "audit", _COLUMNS)
    if form == "lines":
        return LinesFile(path)
    raise DeclarationError(f'form={form!r}: use "lines" or "sqlite"')
