"""What a client hears while its requests are under way, and how long it waits for it."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from pegboard.call import Change, Json, Notice, Question
from pegboard.client.answers import Answers
from pegboard.client.link import CHANGES, PROGRESS
from pegboard.client.lists import Lists

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[str, Json], Awaitable[None] | None]


class Patience:
    """The deadlines of one call: so long without news, so long in all; what its own side takes to answer is not counted."""

    __slots__ = ("_end", "_quiet", "_scope")

    def __init__(self, quiet: float, longest: float, scope: asyncio.Timeout) -> None:
        self._quiet = quiet
        self._scope = scope
        self._end = asyncio.get_running_loop().time() + longest
        self.news()

    def news(self) -> None:
        """Something came: the wait begins anew."""
        until = min(asyncio.get_running_loop().time() + self._quiet, self._end)
        self._set(None if until == math.inf else until)

    async def without_counting(self, answer: Awaitable[Any]) -> Any:
        """Wait for something that is not the server's to do."""
        began = asyncio.get_running_loop().time()
        self._set(None)
        try:
            return await answer
        finally:
            self._end += asyncio.get_running_loop().time() - began
            self.news()

    def _set(self, until: float | None) -> None:
        if not self._scope.expired():
            self._scope.reschedule(until)


class Ear:
    """The channel of a client's requests: notices and questions become calls of its user's functions."""

    __slots__ = ("_answers", "_lists", "_log", "_progress", "patience")

    def __init__(self, answers: Answers, lists: Lists, log: OnLog | None, progress: Progress | None = None) -> None:
        self._answers = answers
        self._lists = lists
        self._log = log
        self._progress = progress
        self.patience: Patience | None = None

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        answers = asyncio.gather(*(self._answers.answer(question) for question in asks.values()))
        told = await (answers if self.patience is None else self.patience.without_counting(answers))
        return dict(zip(asks, told, strict=True))

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    async def emit(self, notice: Notice) -> None:
        params: Mapping[str, Any] = notice.params
        if self.patience is not None:
            self.patience.news()
        told: Awaitable[None] | None = None
        if notice.method == PROGRESS:
            if self._progress is not None:
                told = self._progress(params["progress"], params.get("total"), params.get("message"))
        elif notice.method == "notifications/message":
            if self._log is not None:
                told = self._log(params.get("level", "info"), params.get("data"))
        elif notice.method in CHANGES:
            self._lists.drop(notice.method, params.get("uri", ""))
        if inspect.isawaitable(told):
            await told


class Listener:
    """The channel of a subscription: changes wait here, each once, until they are taken."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._changed = asyncio.Event()
        self._waiting: dict[Change, None] = {}
        self._ended = False
        self.acknowledged = False

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        """Nobody is asked on a subscription."""
        return {}

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    async def emit(self, notice: Notice) -> None:
        if notice.method == "notifications/subscriptions/acknowledged":
            self.acknowledged = True
        elif notice.method in CHANGES:
            uri = str(notice.params.get("uri", ""))
            self._lists.drop(notice.method, uri)
            self.put(_change(notice.method, uri))

    def put(self, change: Change) -> None:
        self._waiting[change] = None
        self._changed.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._changed.set()

    async def next(self) -> Change | None:
        """The oldest change that waits; None once no more will come."""
        while not self._waiting:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change


def _change(method: str, uri: str) -> Change:
    match method:
        case "notifications/tools/list_changed":
            return Change("tools")
        case "notifications/prompts/list_changed":
            return Change("prompts")
        case "notifications/resources/list_changed":
            return Change("resources")
        case _:
            return Change("updated", uri)
