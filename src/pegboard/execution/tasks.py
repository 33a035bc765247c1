"""Tasks, the extension `io.modelcontextprotocol/tasks`: which calls become jobs, and the methods that ask after them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.call import Call, Done, Handler, Json, Reply
from pegboard.catalog.catalog import ToolCatalog
from pegboard.errors import Busy, InternalFailure, InvalidParams, MethodNotFound
from pegboard.execution.job import Job
from pegboard.execution.shelf import ENDED, Shelf, TaskRecord, key_of
from pegboard.limits import Limits
from pegboard.protocol.extensions import TASKS, has_extension, missing_extension
from pegboard.stores.crew import Crew, Shared
from pegboard.tools.tool import Tool

_LAST_WORDS_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 2.0
_TASK: Final = "task"


class _Order(Struct, array_like=True):
    """What is to be done to a task in the process that works on it: answers to bring, or without any to cancel it."""

    key: str
    answers: Json


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Order).decode


class Tasks:
    """The jobs and tasks of one board."""

    def __init__(self, catalog: ToolCatalog, shelf: Shelf, limits: Limits) -> None:
        self._catalog = catalog
        self._shelf = shelf
        self._limits = limits
        # Until their work has ended; a record may say so before.
        self._jobs: dict[str, Job] = {}
        self._crew: Crew | None = None
        self.methods: Mapping[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    def share(self, shared: Shared) -> None:
        """Keep tasks where other processes can be asked after them."""
        self._crew = shared.crew
        self._shelf.keep_in(shared.store.records, shared.crew.me)
        shared.crew.hear(_TASK, self._hear)

    def capabilities(self) -> Mapping[str, Json]:
        """What there is to declare: nothing for a board whose tools all answer at once."""
        return {"extensions": {TASKS: {}}} if self._offered() else {}

    def handler(self, tool: Tool, chain: Handler) -> Handler:
        """The chain of a tool, as a job where its author and its caller are ready for a task."""
        if tool.task is None:
            return chain
        required = tool.task == "required"

        async def start(call: Call) -> Reply:
            if has_extension(TASKS, call.caller.capabilities, call.caller.version):
                return await self._start(call, chain).answer()
            if required:
                # A server that can only answer with a task "MUST return an error with the code -32021" (Negotiation).
                raise missing_extension(f"{call.name} runs as a task only", TASKS)
            return await chain(call)

        return start

    async def close(self) -> None:
        """End all work: tasks that have not ended are told to be interrupted."""
        loop, current = asyncio.get_running_loop(), asyncio.current_task()
        jobs = [job for job in self._jobs.values() if job.task.get_loop() is loop and job.task is not current]
        for job in jobs:
            await job.interrupt()
        if jobs:
            await asyncio.wait({job.task for job in jobs}, timeout=_LAST_WORDS_SECONDS)

    def _start(self, call: Call, chain: Handler) -> Job:
        job = Job(call, chain, self._shelf, self._limits.asks)
        self._jobs[job.id] = job
        job.task.add_done_callback(lambda _: self._jobs.pop(job.id, None))
        return job

    # -- methods -----------------------------------------------------------------------------------------------------

    async def _get(self, call: Call) -> Reply:
        record, _ = await self._find(call)
        return Done(record.whole(call.name))

    async def _update(self, call: Call) -> Reply:
        record, job = await self._find(call)
        answers = None if call.answers is None else msgspec.json.decode(call.answers)
        if not isinstance(answers, dict):
            raise InvalidParams("params.inputResponses must be an object: the answer to each question under its key")
        if record.status not in ENDED:
            await (job.take(answers) if job is not None else self._order(call.name, record, answers))
        return Done({})

    async def _cancel(self, call: Call) -> Reply:
        record, job = await self._find(call)
        if record.status not in ENDED:
            await (job.cancel() if job is not None else self._order(call.name, record, None))
        return Done({})

    async def _find(self, call: Call) -> tuple[TaskRecord, Job | None]:
        """The task that a request is about, if it is its caller's; nobody learns of anybody else's."""
        if not self._offered():
            raise MethodNotFound(f"Method not found: {call.method!r}")
        if not has_extension(TASKS, call.caller.capabilities, call.caller.version):
            raise missing_extension(call.method, TASKS)
        job = self._jobs.get(call.name)
        record = None if job is None else job.record
        if record is None or record.status in ENDED:
            # An end is one when it is written: another process may have written another.
            record = await self._read(call.name)
        if record is None or record.principal != call.caller.principal:
            raise InvalidParams(
                "Unknown task: there is none with this taskId, or it was forgotten when its time was over"
            )
        return record, job

    def _offered(self) -> bool:
        return len(self._shelf) > 0 or any(tool.task is not None for tool in self._catalog)

    # -- tasks of other processes ------------------------------------------------------------------------------------

    async def _read(self, task_id: str) -> TaskRecord | None:
        """The record of a task as it is written; one that runs nowhere has failed."""
        record = await self._shelf.read(task_id)
        if record is None or record.status in ENDED or self._crew is None:
            return record
        if task_id in self._jobs or (record.owner != self._crew.me and await self._crew.is_alive(record.owner)):
            return record
        lost = InternalFailure("The server process that ran this task has ended before the task had")
        return await self._shelf.orphan(task_id, {"code": lost.code, "message": lost.message})

    async def _order(self, task_id: str, record: TaskRecord, answers: Json) -> None:
        if self._crew is None:
            raise InternalFailure("The server that ran this task is gone, or cannot be reached from here")
        order = _encode(_Order(key_of(task_id), answers))
        if await self._crew.ask(record.owner, _TASK, order, _PATIENCE_SECONDS) is None:
            raise Busy("The server process that runs this task does not answer; try again", retry_after=1)

    def _hear(self, said: bytes) -> Awaitable[bytes] | None:
        order = _decode(said)
        job = next((job for task_id, job in self._jobs.items() if key_of(task_id) == order.key), None)
        # One that is not here any more has just ended.
        return None if job is None else self._obey(job, order)

    async def _obey(self, job: Job, order: _Order) -> bytes:
        await (job.cancel() if order.answers is None else job.take(order.answers))
        return b""
