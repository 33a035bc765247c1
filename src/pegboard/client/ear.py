"""What a client hears while its requests are under way, and how long it waits for it."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from pegboard.call import Change, Json, Notice, Question
from pegboard.client.answers import Answers
from pegboard.client.link import CHANGES, PROGRESS
from pegboard.client.lists import Lists

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[str, Json], Awaitable[None] | None]


class Patience:
    """The deadlines of one call: so long without news, so long in all; what its own side takes to answer is not counted."""

    __slots__ = ("_end", "_held", "_quiet", "_scope", "_since")

    def __init__(self, quiet: float, longest: float, scope: asyncio.Timeout) -> None:
        self._quiet = quiet
        self._scope: asyncio.Timeout | None = scope
        self._held = 0
        self._since = _now()
        self._end = self._since + longest
        self.news()

    def news(self) -> None:
        """Something came: the wait begins anew."""
        if not self._held:
            until = min(_now() + self._quiet, self._end)
            self._set(None if until == math.inf else until)

    def hold(self) -> None:
        """What is waited for now is not the server's to do."""
        if not self._held:
            self._since = _now()
            self._set(None)
        self._held += 1

    def release(self) -> None:
        """It is the server's turn again."""
        self._held -= 1
        if not self._held:
            self._end += _now() - self._since
            self.news()

    def end(self) -> None:
        """Nobody waits any more."""
        self._scope = None

    def _set(self, until: float | None) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(until)


def _now() -> float:
    return asyncio.get_running_loop().time()


@contextmanager
def held(waits: Collection[Patience]) -> Iterator[None]:
    """Deadlines that stand still meanwhile."""
    stopped = list(waits)
    for patience in stopped:
        patience.hold()
    try:
        yield
    finally:
        for patience in stopped:
            patience.release()


class Ear:
    """The channel of a client's requests: notices and questions become calls of its user's functions.

    `waits` are the deadlines that stand still while it is asked: those of its call, or of all where it belongs to none.
    """

    __slots__ = ("_answers", "_lists", "_log", "_progress", "waits")

    def __init__(
        self,
        answers: Answers,
        lists: Lists,
        log: OnLog | None,
        progress: Progress | None = None,
        waits: Collection[Patience] = (),
    ) -> None:
        self._answers = answers
        self._lists = lists
        self._log = log
        self._progress = progress
        self.waits = waits

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        with held(self.waits):
            told = await asyncio.gather(*(self._answers.answer(question) for question in asks.values()))
        return dict(zip(asks, told, strict=True))

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""

    async def emit(self, notice: Notice) -> None:
        params: Mapping[str, Any] = notice.params
        told: Awaitable[None] | None = None
        if notice.method == PROGRESS:
            for patience in self.waits:
                patience.news()
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
