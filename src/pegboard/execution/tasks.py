"""Tasks, the extension `io.modelcontextprotocol/tasks`: which calls become jobs, and the methods that ask after them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from pegboard.call import Call, Done, Handler, Json, Reply
from pegboard.catalog.catalog import ToolCatalog
from pegboard.errors import InternalFailure, InvalidParams, MethodNotFound
from pegboard.execution.job import Job
from pegboard.execution.shelf import ENDED, Shelf, TaskRecord
from pegboard.limits import Limits
from pegboard.protocol.extensions import TASKS, has_extension, missing_extension
from pegboard.tools.tool import Tool

_LAST_WORDS_SECONDS: Final = 2.0


class Tasks:
    """The jobs and tasks of one board."""

    def __init__(self, catalog: ToolCatalog, shelf: Shelf, limits: Limits) -> None:
        self._catalog = catalog
        self._shelf = shelf
        self._limits = limits
        # Until their work has ended; a record may say so before.
        self._jobs: dict[str, Job] = {}
        self.methods: Mapping[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

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
            await _reached(job).take(answers)
        return Done({})

    async def _cancel(self, call: Call) -> Reply:
        record, job = await self._find(call)
        if record.status not in ENDED:
            await _reached(job).cancel()
        return Done({})

    async def _find(self, call: Call) -> tuple[TaskRecord, Job | None]:
        """The task that a request is about, if it is its caller's; nobody learns of anybody else's."""
        if not self._offered():
            raise MethodNotFound(f"Method not found: {call.method!r}")
        if not has_extension(TASKS, call.caller.capabilities, call.caller.version):
            raise missing_extension(call.method, TASKS)
        job = self._jobs.get(call.name)
        record = await self._shelf.read(call.name) if job is None else job.record
        if record is None or record.principal != call.caller.principal:
            raise InvalidParams(
                "Unknown task: there is none with this taskId, or it was forgotten when its time was over"
            )
        return record, job

    def _offered(self) -> bool:
        return len(self._shelf) > 0 or any(tool.task is not None for tool in self._catalog)


def _reached(job: Job | None) -> Job:
    if job is None:
        raise InternalFailure("The server that ran this task is gone, or cannot be reached from here")
    return job
