"""Waits for the tasks of servers: polls them, answers their questions, cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from pegboard.call import NULL_CHANNEL, Channel, Json, Notification, Question
from pegboard.client.links.link import CANCEL_SECONDS, PROGRESS_NOTIFICATION
from pegboard.client.links.server_messages import WireError, questions_in, refusal_of
from pegboard.deadline import Deadline, paused
from pegboard.errors import LimitReached, MalformedMessage, PegboardError, Refusal, ResponseTimeout, ToolError
from pegboard.protocol.json_values import as_object
from pegboard.protocol.revisions import TASKS

Send: TypeAlias = Callable[[str, Mapping[str, Any], Channel], Awaitable[Mapping[str, Json]]]
"""Sends a request to the server: method, params, and the channel for its notifications and questions."""
Answer: TypeAlias = Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Json]]]

SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
_DEFAULT_PAUSE: Final = 1.0


async def finish_task(
    send: Send, task: str, answer: Answer, channel: Channel, seconds: float, *, longest_pause: float = LONGEST_PAUSE
) -> Mapping[str, Json]:
    """The result of a modern server's task; answers its questions."""
    about = {"taskId": task}
    # A server may still list questions that it was just answered.
    answered: set[str] = set()
    async with _bounded(send, about, seconds) as deadline:
        last_message, steps = "", 0
        while True:
            state = await send("tasks/get", about, NULL_CHANNEL)
            match state.get("status"):
                case "completed":
                    result = state.get("result")
                    if not isinstance(result, dict):
                        raise MalformedMessage("completed a task without a result")
                    return result
                case "failed":
                    raise refusal_of(_error(state.get("error")))
                case "cancelled":
                    raise ToolError("The server cancelled the task")
                case "input_required":
                    questions = questions_in(state.get("inputRequests"))
                    fresh = {key: question for key, question in questions.items() if key not in answered}
                    if fresh:
                        with paused((deadline,)):
                            answers = await answer(fresh)
                        await send("tasks/update", {**about, "inputResponses": answers}, NULL_CHANNEL)
                        answered |= fresh.keys()
                case "working":
                    message = state.get("statusMessage")
                    if isinstance(message, str) and message != last_message:
                        last_message, steps = message, steps + 1
                        await channel.emit(Notification(PROGRESS_NOTIFICATION, {"progress": steps, "message": message}))
                case _:
                    raise MalformedMessage("returned a task with an unknown status")
            await asyncio.sleep(min(_pause(state.get("pollIntervalMs")), longest_pause))


async def call_as_task(send: Send, params: Mapping[str, Any], channel: Channel, seconds: float) -> Mapping[str, Json]:
    """Call a tool as a task of revision 2025-11-25, and return its result."""
    created = await send("tools/call", {**params, "task": {"ttl": int(seconds * 1000)}}, channel)
    task = created.get("task")
    if not isinstance(task, dict):
        # The server ran the tool at once.
        return created
    about = {"taskId": task.get("taskId")}
    async with _bounded(send, about, seconds) as deadline:
        state: Mapping[str, Json] = task
        asked = _PausingChannel(channel, deadline)
        while True:
            match state.get("status"):
                case "completed" | "failed" | "cancelled":
                    return await send("tasks/result", about, asked)
                case "input_required":
                    # "it SHOULD preemptively call `tasks/result`", on whose stream it is asked.
                    try:
                        return await send("tasks/result", about, asked)
                    except ResponseTimeout:
                        pass
                case "working":
                    await asyncio.sleep(_pause(state.get("pollInterval")))
                case _:
                    raise MalformedMessage("returned a task with an unknown status")
            state = await send("tasks/get", about, NULL_CHANNEL)


class _PausingChannel:
    """A channel that pauses a deadline while its caller is asked."""

    def __init__(self, channel: Channel, deadline: Deadline) -> None:
        self._deadline = deadline
        self._channel = channel
        self.emit = channel.emit
        self.close_stream = channel.close_stream

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        with paused((self._deadline,)):
            return await self._channel.ask(questions)


@asynccontextmanager
async def _bounded(send: Send, about: Mapping[str, Json], seconds: float) -> AsyncIterator[Deadline]:
    """Limit the time of a task; cancels it at its server when the time is over or the caller is cancelled."""
    deadline = Deadline(seconds, seconds)
    try:
        with deadline:
            yield deadline
    except TimeoutError:
        if not deadline.expired:
            raise
        await _stop(send, about)
        raise LimitReached(f"The task took longer than {seconds:g} s and was stopped", "timeout") from None
    except asyncio.CancelledError:
        await _stop(send, about)
        raise


async def _stop(send: Send, about: Mapping[str, Json]) -> None:
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            await send("tasks/cancel", about, NULL_CHANNEL)
    except (PegboardError, TimeoutError):
        # It ends by itself when its time to live is over.
        pass


def _pause(milliseconds: Json) -> float:
    seconds = milliseconds / 1000 if isinstance(milliseconds, int | float) else _DEFAULT_PAUSE
    return min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)


def _error(error: Json) -> WireError:
    given = as_object(error)
    code, message = given.get("code"), given.get("message")
    if type(code) is not int:
        raise MalformedMessage("failed a task without an error code")
    return WireError(code, message if isinstance(message, str) else "", given.get("data"))


def wants_task(refusal: Refusal) -> bool:
    """Whether a server rejected a call that it only runs as a task."""
    data = refusal.data if isinstance(refusal.data, dict) else {}
    required = data.get("requiredCapabilities")
    extensions = required.get("extensions") if isinstance(required, dict) else None
    return isinstance(extensions, dict) and TASKS in extensions


def task_id_in(result: Mapping[str, Json]) -> str:
    """The id of a task that a server has started."""
    task_id = result.get("taskId")
    if not isinstance(task_id, str) or not task_id:
        raise MalformedMessage("started a task without a taskId")
    return task_id
