"""A call that may continue as a task.

Theory of operation. The whole chain of hooks and tool runs once, in its own asyncio task. Until it detaches it is an
ordinary call: its notifications and questions go to its caller, which waits for the reply and cancels it by
disconnecting. By detaching it becomes a task: its record is written, the caller gets the task id, and from then on
progress is the status of the record, and questions wait there for `tasks/update`. It ends once, by whichever comes
first: the work itself, `tasks/cancel`, its time limit, or the end of the server.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from pegboard.call import (
    NULL_CHANNEL,
    Call,
    Channel,
    Done,
    EncodedResult,
    Handler,
    Json,
    Notification,
    Question,
    Reply,
    TaskStarted,
)
from pegboard.errors import InternalFailure, Refusal, ToolError
from pegboard.logs.log_lines import log_failure
from pegboard.tasks.task_store import ENDED, POLL_MS, Status, TaskRecord, TaskStore

_log = logging.getLogger("pegboard.tasks")

_MAX_MESSAGE: Final = 500


class TaskRun:
    """One call of a tool that may run as a task; `ready` is done once the caller can be answered."""

    def __init__(self, call: Call, chain: Handler, store: TaskStore, questions: int) -> None:
        loop = asyncio.get_running_loop()
        self.id = secrets.token_hex(16)
        self.ready: asyncio.Future[None] = loop.create_future()
        self.record: TaskRecord | None = None
        self._answer: Reply | Refusal | None = None
        self._name = call.name
        self._for = call.caller
        self._request_size = len(call.raw)
        self._caller: Channel = call.channel
        self._wants_progress = call.token is not None
        self._store = store
        self._max_questions = questions
        self._open: dict[str, tuple[Question, asyncio.Future[Json]]] = {}
        self._keys: set[str] = set()
        self._saving = asyncio.Lock()
        self._saved = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        call.channel = self
        if call.token is None:
            # Progress is the status of a task, even if its caller did not ask for progress.
            call.token = self.id
        self.task = loop.create_task(self._work(chain, call))
        # If it is cancelled before its first step, it cannot report that itself.
        self.task.add_done_callback(lambda _: self._signal_ready())

    async def answer(self) -> Reply:
        """The reply: the result of the call, or a task. If the caller leaves before, the call is cancelled."""
        try:
            await self.ready
        except asyncio.CancelledError:
            if self.record is None:
                self.task.cancel()
                await asyncio.wait({self.task})
            raise
        if isinstance(self._answer, Refusal):
            raise self._answer
        if self._answer is None:
            raise asyncio.CancelledError
        return self._answer

    async def detach(self) -> None:
        """Continue as a task; the record is written before the reply."""
        async with self._saving:
            if self.record is not None:
                return
            self.record = await self._store.create(self.id, self._for, self._request_size)
        self._answer = TaskStarted(self.record.initial_task(self.id))
        # The connection ends with the reply.
        self._caller = NULL_CHANNEL
        self._saved = self.record.created
        self._expiry = asyncio.get_running_loop().call_later(self.record.seconds, self._expire)
        self._signal_ready()

    # -- the channel of the call -------------------------------------------------------------------------------------

    async def emit(self, notice: Notification) -> None:
        is_progress = notice.method == "notifications/progress"
        if self.record is None:
            if self._wants_progress or not is_progress:
                await self._caller.emit(notice)
        elif is_progress and self.record.status not in ENDED:
            # "notifications/message … are not supported on tasks in general": only progress can be reported.
            self.record.message = _status_message(notice.params)
            self._touch()
            if self.record.updated - self._saved >= POLL_MS / 1000:
                await self._save()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        if self.record is None:
            return await self._caller.ask(questions)
        if self.record.status in ENDED:
            raise asyncio.CancelledError
        if len(self._open) + len(questions) > self._max_questions:
            raise ToolError(f"{self._name} asks more than {self._max_questions} questions at once")
        loop = asyncio.get_running_loop()
        keys = {self._new_key(key): key for key in questions}
        futures = {unique: loop.create_future() for unique in keys}
        self._open.update({unique: (questions[key], futures[unique]) for unique, key in keys.items()})
        self._touch()
        try:
            await self._save()
            return {key: await futures[unique] for unique, key in keys.items()}
        finally:
            for unique in keys:
                self._open.pop(unique, None)
            self._touch()

    async def close_stream(self, retry_ms: int) -> None:
        if self.record is None:
            await self._caller.close_stream(retry_ms)

    def _new_key(self, key: str) -> str:
        # "Each request key … MUST be unique over the lifetime of a single task": asked again, it gets another key.
        unique, number = key, 1
        while unique in self._keys:
            number += 1
            unique = f"{key}.{number}"
        self._keys.add(unique)
        return unique

    # -- operations on a task ----------------------------------------------------------------------------------------

    async def receive_answers(self, answers: Mapping[str, Json]) -> None:
        """Deliver answers to the questions that wait for them; "a server SHOULD ignore" all others."""
        for key in answers.keys() & self._open.keys():
            _, waiting = self._open.pop(key)
            if not waiting.done():
                waiting.set_result(answers[key])
        self._touch()
        await self._save()

    async def cancel(self) -> None:
        """End the task on its caller's request; its work ends as soon as it can."""
        if self._mark("cancelled", "Cancelled at the client's request"):
            self.task.cancel()
            await self._save()

    async def interrupt(self) -> None:
        """End the task because the server shuts down."""
        self._fail(InternalFailure("The server was stopped before this task ended"))
        self.task.cancel()
        await self._save()

    def _expire(self) -> None:
        self._fail(InternalFailure("The task was still running when its retention time (ttl) ended"))
        self.task.cancel()

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _work(self, chain: Handler, call: Call) -> None:
        try:
            self._finish(await chain(call))
        except Refusal as refusal:
            self._fail(refusal)
        except asyncio.CancelledError:
            self._fail(InternalFailure("The task was interrupted"))
            raise
        except Exception as error:  # noqa: BLE001 — the task has no other place to report it
            error_id = log_failure(_log, "the task of %s failed", self._name, error=error)
            self._fail(InternalFailure(f"Internal error, error id {error_id}"))
        finally:
            if self._expiry is not None:
                self._expiry.cancel()
            self._store.release_request(self.id)
            try:
                await self._save()
            except Exception:  # noqa: BLE001 — the work is done, whatever became of its record
                _log.exception("the end of a task of %s could not be written", self._name)

    def _finish(self, reply: Reply) -> None:
        if self.record is None:
            self._answer = reply
        elif not isinstance(reply, Done):
            self._fail(InternalFailure(f"{self._name} asked before it was a task, and continued without the answer"))
        else:
            result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
            size = len(msgspec.json.encode(result))
            if self._store.has_capacity(self.id, size):
                self._mark("completed", None, {"resultType": "complete", **result})
            else:
                self._fail(InternalFailure(f"The result has {size} bytes, more than the remaining space"))

    def _fail(self, refusal: Refusal) -> None:
        if self.record is None:
            self._answer = self._answer or refusal
            return
        error: dict[str, Json] = {"code": refusal.code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        self._mark("failed", refusal.message[:_MAX_MESSAGE], error)

    def _mark(self, status: Status, message: str | None, outcome: Json = None) -> bool:
        """Write the end of the task, unless it has already ended."""
        record = self.record
        if record is None or record.status in ENDED:
            return False
        self._open.clear()
        self._touch()
        record.status, record.message, record.outcome = status, message, outcome
        return True

    def _touch(self) -> None:
        record = self.record
        if record is None or record.status in ENDED:
            return
        record.updated = self._store.clock()
        record.status = "input_required" if self._open else "working"
        record.outcome = {key: {"method": ask.method, "params": ask.params} for key, (ask, _) in self._open.items()}

    async def _save(self) -> None:
        # One after the other, each with the current record, so that a later state is never overwritten by an earlier
        # one.
        async with self._saving:
            if self.record is None:
                return
            self._saved = self.record.updated
            if not await self._store.save(self.id, self.record):
                _log.warning("a task of %s was ended by another process, which considered this one dead", self._name)
                self._fail(InternalFailure("The task was ended by another process of the server"))
                self.task.cancel()

    def _signal_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


async def detach(call: Call) -> None:
    """Run the call as a task, if it can be one."""
    if isinstance(call.channel, TaskRun):
        await call.channel.detach()


def is_detached(call: Call) -> bool:
    """Whether the call runs as a task, which its caller polls."""
    return isinstance(call.channel, TaskRun) and call.channel.record is not None


def _status_message(params: Mapping[str, Json]) -> str:
    message = params.get("message")
    if isinstance(message, str):
        return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"
    total = params.get("total")
    return f"{params['progress']:g}" if total is None else f"{params['progress']:g} of {total:g}"
