"""Tasks of servers that their callers know nothing of: the gateway asks after them until they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias

from pegboard.call import NOBODY, Channel, Json, Notice, Question
from pegboard.client.incoming import WireError, refusal_of
from pegboard.client.link import CANCEL_SECONDS, PROGRESS
from pegboard.errors import Garbled, LimitReached, NoAnswer, PegboardError, ToolError
from pegboard.gateway.passage.outcome import CALL, questions_in
from pegboard.patience import Patience

Send: TypeAlias = Callable[[str, Mapping[str, Any], Channel], Awaitable[Mapping[str, Json]]]
"""A request to the server: method, params, and who hears what it says and asks on the way."""
Answer: TypeAlias = Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Json]]]

_SOONEST: Final = 0.05
_LATEST: Final = 5.0
_UNTOLD: Final = 1.0


async def finish_task(send: Send, task: str, answer: Answer, channel: Channel, seconds: float) -> Mapping[str, Json]:
    """The result of a modern server's task, whose questions are answered on the way."""
    about = {"taskId": task}
    # A server may be slow to see what it was answered.
    answered: set[str] = set()
    async with _bounded(send, about, seconds) as patience:
        told, steps = "", 0
        while True:
            state = await send("tasks/get", about, NOBODY)
            match state.get("status"):
                case "completed":
                    result = state.get("result")
                    if not isinstance(result, dict):
                        raise Garbled("has completed a task, and gives no result")
                    return result
                case "failed":
                    raise refusal_of(_error(state.get("error")))
                case "cancelled":
                    raise ToolError("The server has cancelled the task")
                case "input_required":
                    asks = questions_in(state.get("inputRequests"))
                    fresh = {key: question for key, question in asks.items() if key not in answered}
                    if fresh:
                        with _held(patience):
                            answers = await answer(fresh)
                        await send("tasks/update", {**about, "inputResponses": answers}, NOBODY)
                        answered |= fresh.keys()
                case "working":
                    message = state.get("statusMessage")
                    if isinstance(message, str) and message != told:
                        told, steps = message, steps + 1
                        await channel.emit(Notice(PROGRESS, {"progress": steps, "message": message}))
                case _:
                    raise Garbled("tells of a task in no state that there is")
            await asyncio.sleep(_pause(state.get("pollIntervalMs")))


async def call_as_task(send: Send, params: Mapping[str, Any], channel: Channel, seconds: float) -> Mapping[str, Json]:
    """Call a tool by the rules that revision 2025-11-25 has for tasks; the result it comes to."""
    created = await send(CALL, {**params, "task": {"ttl": int(seconds * 1000)}}, channel)
    task = created.get("task")
    if not isinstance(task, dict):
        # It has done it at once.
        return created
    about = {"taskId": task.get("taskId")}
    async with _bounded(send, about, seconds) as patience:
        state: Mapping[str, Json] = task
        asked = _Holding(channel, patience)
        while True:
            match state.get("status"):
                case "completed" | "failed" | "cancelled":
                    return await send("tasks/result", about, asked)
                case "input_required":
                    # "it SHOULD preemptively call `tasks/result`", on whose stream it is asked.
                    try:
                        return await send("tasks/result", about, asked)
                    except NoAnswer:
                        pass
                case "working":
                    await asyncio.sleep(_pause(state.get("pollInterval")))
                case _:
                    raise Garbled("tells of a task in no state that there is")
            state = await send("tasks/get", about, NOBODY)


class _Holding:
    """A channel that lets a deadline stand still while its caller is asked."""

    def __init__(self, channel: Channel, patience: Patience) -> None:
        self._patience = patience
        self._channel = channel
        self.emit = channel.emit
        self.close_stream = channel.close_stream

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        with _held(self._patience):
            return await self._channel.ask(asks)


@contextmanager
def _held(patience: Patience) -> Iterator[None]:
    patience.hold()
    try:
        yield
    finally:
        patience.release()


@asynccontextmanager
async def _bounded(send: Send, about: Mapping[str, Json], seconds: float) -> AsyncIterator[Patience]:
    """The time that a task has; when it is over, or nobody waits any more, its server is told."""
    patience = Patience(seconds, seconds)
    try:
        with patience:
            yield patience
    except TimeoutError:
        if not patience.expired:
            raise
        await _stop(send, about)
        raise LimitReached(f"The task took longer than {seconds:g} s and was stopped", "timeout") from None
    except asyncio.CancelledError:
        await _stop(send, about)
        raise


async def _stop(send: Send, about: Mapping[str, Json]) -> None:
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            await send("tasks/cancel", about, NOBODY)
    except (PegboardError, TimeoutError):
        # It ends by itself, at the end of its time at the latest.
        pass


def _pause(milliseconds: Json) -> float:
    told = milliseconds / 1000 if isinstance(milliseconds, int | float) else _UNTOLD
    return min(max(told, _SOONEST), _LATEST)


def _error(error: Json) -> WireError:
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if type(code) is not int:
        raise Garbled("has failed a task, and does not say how")
    return WireError(code, message if isinstance(message, str) else "", error.get("data"))
