"""The tasks extension: which calls become tasks, and the `tasks/*` methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.call import Call, Done, Handler, Json, Reply
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import Busy, InternalFailure, InvalidParams, MethodNotFound
from pegboard.limits import Limits
from pegboard.protocol.revisions import TASKS, has_extension, missing_extension
from pegboard.stores.cluster import Cluster, SharedStore
from pegboard.tasks.task_run import TaskRun
from pegboard.tasks.task_store import ENDED, TaskRecord, TaskStore, task_key
from pegboard.tools.tool import Tool

_CLEANUP_SECONDS: Final = 2.0
_REPLY_SECONDS: Final = 2.0
_TASK: Final = "task"


class _TaskCommand(Struct, array_like=True):
    """An instruction to the process that runs a task: answers to deliver, or without any, to cancel it."""

    key: str
    answers: Mapping[str, Json] | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TaskCommand).decode


class TaskMethods:
    """The tasks of one board."""

    def __init__(self, catalog: ToolCatalog, store: TaskStore, limits: Limits) -> None:
        self._catalog = catalog
        self.store = store
        self._limits = limits
        # Until their work has ended; the record may end earlier.
        self._runs: dict[str, TaskRun] = {}
        self._cluster: Cluster | None = None
        self.methods: Mapping[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    def share(self, shared: SharedStore) -> None:
        """Keep tasks in this store, which other processes share."""
        self._cluster = shared.cluster
        self.store.use_store(shared.store.records, shared.cluster.me)
        shared.cluster.on_message(_TASK, self._receive_command)

    def capabilities(self) -> Mapping[str, Json]:
        """The capability to declare; none for a board without tasks."""
        return {"extensions": {TASKS: {}}} if self._offered() else {}

    def handler(self, tool: Tool, chain: Handler) -> Handler:
        """The chain of a tool, as a task if both its author and its caller allow one."""
        if tool.task is None:
            return chain
        required = tool.task == "required"

        async def start(call: Call) -> Reply:
            if has_extension(TASKS, call.caller.capabilities, call.caller.version):
                return await self._start(call, chain).answer()
            if required:
                # A server that can only answer with a task "MUST return an error with the code -32021" (Negotiation).
                raise missing_extension(f"{call.name} runs only as a task", TASKS)
            return await chain(call)

        return start

    async def close(self) -> None:
        """End all work: unfinished tasks are marked as interrupted."""
        loop, current = asyncio.get_running_loop(), asyncio.current_task()
        jobs = [job for job in self._runs.values() if job.task.get_loop() is loop and job.task is not current]
        for job in jobs:
            await job.interrupt()
        if jobs:
            await asyncio.wait({job.task for job in jobs}, timeout=_CLEANUP_SECONDS)

    def _start(self, call: Call, chain: Handler) -> TaskRun:
        job = TaskRun(call, chain, self.store, self._limits.questions)
        self._runs[job.id] = job
        job.task.add_done_callback(lambda _: self._runs.pop(job.id, None))
        return job

    # -- methods -----------------------------------------------------------------------------------------------------

    async def _get(self, call: Call) -> Reply:
        record, _ = await self._find(call)
        return Done(record.full_task(call.name))

    async def _update(self, call: Call) -> Reply:
        record, job = await self._find(call)
        answers = None if call.answers is None else msgspec.json.decode(call.answers)
        if not isinstance(answers, dict):
            raise InvalidParams(
                "params.inputResponses must be an object with the answer to each question under its key"
            )
        if record.status not in ENDED:
            await (job.receive_answers(answers) if job is not None else self._send_command(call.name, record, answers))
        return Done({})

    async def _cancel(self, call: Call) -> Reply:
        record, job = await self._find(call)
        if record.status not in ENDED:
            await (job.cancel() if job is not None else self._send_command(call.name, record, None))
        return Done({})

    async def _find(self, call: Call) -> tuple[TaskRecord, TaskRun | None]:
        """The task of a request, if it belongs to its caller; other callers' tasks look unknown."""
        if not self._offered():
            raise MethodNotFound(f"Method not found: {call.method!r}")
        if not has_extension(TASKS, call.caller.capabilities, call.caller.version):
            raise missing_extension(call.method, TASKS)
        job = self._runs.get(call.name)
        record = None if job is None else job.record
        if record is None or record.status in ENDED:
            # A task has ended once that is written: another process may have written another end.
            record = await self._read(call.name)
        if record is None or record.principal != call.caller.principal.id:
            raise InvalidParams("Unknown task: the taskId is wrong, or the task has expired")
        return record, job

    def _offered(self) -> bool:
        return len(self.store) > 0 or any(tool.task is not None for tool in self._catalog)

    # -- tasks of other processes ------------------------------------------------------------------------------------

    async def _read(self, task_id: str) -> TaskRecord | None:
        """The record of a task as stored; one whose process is gone has failed."""
        record = await self.store.read(task_id)
        if record is None or record.status in ENDED or self._cluster is None:
            return record
        if task_id in self._runs or (record.owner != self._cluster.me and await self._cluster.is_alive(record.owner)):
            return record
        lost = InternalFailure("The server process that ran this task ended before the task did")
        return await self.store.fail_orphan(task_id, lost.code, lost.message)

    async def _send_command(self, task_id: str, record: TaskRecord, answers: Mapping[str, Json] | None) -> None:
        if self._cluster is None:
            raise InternalFailure("The server that ran this task has stopped, or cannot be reached from here")
        order = _encode(_TaskCommand(task_key(task_id), answers))
        if await self._cluster.ask(record.owner, _TASK, order, _REPLY_SECONDS) is None:
            raise Busy("The server process that runs this task does not respond; try again", retry_after=1)

    def _receive_command(self, message: bytes) -> Awaitable[bytes] | None:
        order = _decode(message)
        job = next((job for task_id, job in self._runs.items() if task_key(task_id) == order.key), None)
        # A task that is missing here has just ended.
        return None if job is None else self._apply_command(job, order)

    async def _apply_command(self, job: TaskRun, order: _TaskCommand) -> bytes:
        await (job.cancel() if order.answers is None else job.receive_answers(order.answers))
        return b""
