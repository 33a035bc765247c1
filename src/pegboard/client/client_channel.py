"""What a client receives while a request runs: progress, logs and questions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from pegboard.call import Json, Notification, Question
from pegboard.client.links.link import PROGRESS_NOTIFICATION
from pegboard.client.list_cache import ListCache
from pegboard.client.question_handlers import QuestionHandlers
from pegboard.deadline import Deadline, paused
from pegboard.protocol.revisions import CHANGE_KINDS

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[str, Json], Awaitable[None] | None]
OnNotification: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None] | None]


class ClientChannel(Struct, eq=False):
    """The channel of a client's requests: notifications and questions become calls of its user's functions.

    `waits` are the deadlines that are paused during a question that belongs to no request: those of all requests.
    """

    answers: QuestionHandlers
    lists: ListCache
    log: OnLog | None
    progress: Progress | None = None
    waits: Collection[Deadline] = ()
    notified: OnNotification | None = None

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        with paused(self.waits):
            answers = await asyncio.gather(*(self.answers.answer(question) for question in questions.values()))
        return dict(zip(questions, answers, strict=True))

    async def close_stream(self, retry_ms: int) -> None:
        """Nothing to close."""

    async def emit(self, notice: Notification) -> None:
        params: Mapping[str, Any] = notice.params
        delivery: Awaitable[None] | None = None
        if notice.method == PROGRESS_NOTIFICATION:
            if self.progress is not None:
                delivery = self.progress(params["progress"], params.get("total"), params.get("message"))
        elif notice.method == "notifications/message":
            if self.log is not None:
                delivery = self.log(params.get("level", "info"), params.get("data"))
        else:
            if notice.method in CHANGE_KINDS:
                uri = params.get("uri")
                self.lists.drop(notice.method, uri if isinstance(uri, str) else "")
            if self.notified is not None and notice.method != ACKNOWLEDGED:
                delivery = self.notified(notice.method, params)
        if inspect.isawaitable(delivery):
            await delivery
