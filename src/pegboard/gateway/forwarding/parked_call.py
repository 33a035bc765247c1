"""A request at a legacy server that waits while its caller answers a question.

Theory of operation. The server asks while its request runs, and a modern caller can be asked only by the response to
its own request. So the request has its own task, and the caller waits with it for the result or for a question,
whichever comes first. With a question the caller's request ends while the server's keeps waiting, and the caller's next
request brings the answers and waits again. A caller that disconnects without having been asked cancels the request.
While no caller waits, the newest progress is kept for the next one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Channel, Json, NeedInput, Notification, Question
from pegboard.client.links.link import CANCEL_SECONDS, PROGRESS_NOTIFICATION
from pegboard.errors import Busy, Refusal, ToolError
from pegboard.gateway.forwarding.caller_channel import answer_unsupported, ask_caller, decline_result, notification_for

GATHER_SECONDS: Final = 0.01
"""Questions that a server sends within this time are asked together."""
GRACE_SECONDS: Final = 1.0
"""How long a server has to end its call after its questions were cancelled."""

Work: TypeAlias = Callable[[Channel], Coroutine[Any, Any, Mapping[str, Json]]]
"""The request itself; its notifications and questions go to the channel."""


class _PendingQuestion(Struct, eq=False):
    question: Question
    answer: asyncio.Future[Json]


class ParkedCall:
    """One request, its open questions and the caller that waits; it is the channel of the request.

    `leg` is the number of the next resumption: a ticket is valid for that one only.
    """

    def __init__(self, call: Call, work: Work, max_questions: int) -> None:
        self._max_questions = max_questions
        self.id = secrets.token_hex(16)
        self.principal = call.caller.principal.id
        self.account = call.caller.account or self.principal
        self.leg = 0
        self._waiting_caller: Call | None = call
        # A resuming caller may declare other capabilities; questions depend on those of the first request.
        self._first = call
        self._open: dict[str, _PendingQuestion] = {}
        self._numbers = count(1)
        self._newest: Notification | None = None
        self._abandoned = False
        self._changed = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(work(self))
        self.task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Mapping[str, Json]]) -> None:
        if not task.cancelled():
            # Marks the exception as retrieved: the caller may never resume.
            task.exception()
        self._changed.set()

    # -- the caller's side -------------------------------------------------------------------------------------------

    async def wait_with(self, call: Call) -> dict[str, Question]:
        """Wait with the caller; returns the questions to answer first, or nothing if the request has ended."""
        self._waiting_caller = call
        try:
            newest, self._newest = self._newest, None
            if newest is not None:
                await self.emit(newest)
            while not self.task.done():
                if self._open:
                    await asyncio.sleep(GATHER_SECONDS)
                    if self._open and not self.task.done():
                        return {key: asked.question for key, asked in self._open.items()}
                    continue
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            self._waiting_caller = None
        return {}

    def result(self) -> Mapping[str, Json]:
        """The result of a request that has ended."""
        if self.task.cancelled():
            raise ToolError(
                "The call was cancelled before it had a result: the gateway is shutting down, or no answer came in time"
            )
        return self.task.result()

    def receive_answers(self, answers: Mapping[str, Json]) -> None:
        """Deliver answers to the questions that wait for them; others are ignored."""
        for key in answers.keys() & self._open.keys():
            asked = self._open.pop(key)
            if not asked.answer.done():
                asked.answer.set_result(answers[key])

    async def abandon(self) -> None:
        """Cancel the open questions of the server, then its request."""
        self._abandoned = True
        for asked in self._open.values():
            if not asked.answer.done():
                _cancel_questions(asked)
        await asyncio.wait({self.task}, timeout=GRACE_SECONDS)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel the request of the server."""
        self._abandoned = True
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=2 * CANCEL_SECONDS)

    # -- the server's side -------------------------------------------------------------------------------------------

    async def emit(self, notice: Notification) -> None:
        call = self._waiting_caller
        if call is None:
            if notice.method == PROGRESS_NOTIFICATION:
                self._newest = notice
            return
        notification = notification_for(call, notice)
        if notification is not None:
            await call.channel.emit(notification)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        answered, left = answer_unsupported(questions, self._first, midway=True)
        if not left:
            return answered
        call = self._waiting_caller
        if call is not None:
            try:
                return {**answered, **await ask_caller(call, left)}
            except NeedInput:
                pass
        if self._abandoned:
            return {**answered, **{key: decline_result(question) for key, question in left.items()}}
        if len(self._open) + len(left) > self._max_questions:
            raise Busy(f"A call may ask {self._max_questions} questions at a time")
        return {**answered, **await self._wait(left)}

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to do: there is no stream to resume."""

    async def _wait(self, questions: Mapping[str, Question]) -> dict[str, Json]:
        loop = asyncio.get_running_loop()
        opened = {key: _PendingQuestion(question, loop.create_future()) for key, question in questions.items()}
        kinds = {key: question.method.partition("/")[0] for key, question in questions.items()}
        names = {key: f"{kind}-{next(self._numbers)}" for key, kind in kinds.items()}
        self._open.update({names[key]: asked for key, asked in opened.items()})
        self._changed.set()
        try:
            return {key: await asked.answer for key, asked in opened.items()}
        finally:
            # The server may have cancelled its question.
            for key, asked in opened.items():
                self._open.pop(names[key], None)
                asked.answer.cancel()


def _cancel_questions(asked: _PendingQuestion) -> None:
    try:
        asked.answer.set_result(decline_result(asked.question))
    except Refusal as refusal:
        asked.answer.set_exception(refusal)
