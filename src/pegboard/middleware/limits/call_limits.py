"""Limits on concurrent calls and on the duration of a call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from time import perf_counter
from typing import TypeAlias

from pegboard.call import Call, Handler, Reply
from pegboard.deadline import Deadline
from pegboard.errors import DeclarationError, LimitReached
from pegboard.fair_slots import FairSlots
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import Key, key_function, resolve, tool_of

_Room: TypeAlias = FairSlots[asyncio.Future[bool]]


class ConcurrencyLimit(Middleware):
    """At most `limit` concurrent calls, of every kind, for each account that `by` names.

    Further calls wait up to `wait` seconds for a slot, at most `queue` of them, and are rejected otherwise; principals
    get a slot in turn. A slot is free when the call has ended; a sync tool whose call was cancelled may still be busy in
    its thread.
    """

    order = 6

    def __init__(self, limit: int, *, by: Key = "tool", wait: float = 0.0, queue: int = 1000) -> None:
        numbers: tuple[object, ...] = (limit, wait, queue)
        if not all(isinstance(number, int | float) for number in numbers) or limit < 1 or not wait >= 0 or queue < 0:
            raise DeclarationError(
                f"limit={limit!r}, wait={wait!r}, queue={queue!r}: use numbers of at least 1, 0 and 0"
            )
        self.limit, self.wait, self.queue = limit, wait, queue
        self.refused = 0
        self._key = key_function(by)
        self._rooms: dict[str, _Room] = {}

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call when fewer than `limit` others run, or reject it."""
        key, owner = self._key(call), call.caller.account
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = FairSlots(self.limit, self.queue if self.wait else 0, math.inf)
        if not room.take(owner):
            began = perf_counter()
            await self._queue_up(key, room, call, owner)
            call.note_wait("limit", perf_counter() - began)
        try:
            return await proceed(call)
        finally:
            self._leave(key, room, owner)

    async def _queue_up(self, key: str, room: _Room, call: Call, owner: str) -> None:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        removed = room.displace(owner)
        if removed is not None and not removed.done():
            removed.set_result(False)
        if not room.wait(owner, waiter):
            raise self._refuse(call)
        limit = asyncio.timeout(self.wait)
        try:
            async with limit:
                has_slot = await waiter
        except BaseException as problem:
            if not room.leave(owner, waiter) and waiter.done() and not waiter.cancelled() and waiter.result():
                # The slot was passed on at the same moment: it goes to the next call.
                self._leave(key, room, owner)
            if isinstance(problem, TimeoutError) and limit.expired():
                raise self._refuse(call) from None
            raise
        if not has_slot:
            raise self._refuse(call)

    def _leave(self, key: str, room: _Room, owner: str) -> None:
        room.free(owner)
        while (granted := room.grant()) is not None:
            next_owner, waiter = granted
            if waiter.done():
                room.free(next_owner)
            else:
                waiter.set_result(True)
        if not room.taken:
            # An unused account is dropped: there are never more of them than running calls.
            self._rooms.pop(key, None)

    def _refuse(self, call: Call) -> LimitReached:
        self.refused += 1
        at_once = "1 call" if self.limit == 1 else f"{self.limit} calls"
        waited = f", and none has ended in {self.wait:g} s" if self.wait else ""
        return LimitReached(
            f"{tool_of(call)} was not run: the limit of {at_once} at once is reached{waited}. Try again in 1 s.",
            "concurrency_limit",
            retry_after=1.0,
            limit=self.limit,
        )


class Timeout(Middleware):
    """Stops a call of any kind after a time: that of its tool in `tools`, else of its category in `categories`, else `seconds`.

    None means no limit; the time that the caller takes to answer questions is not counted. By default it is the
    innermost middleware: it limits the tool, once per attempt of a retry, and every other middleware sees the timeout.
    """

    order = 120

    def __init__(
        self,
        seconds: float | None,
        *,
        tools: Mapping[str, float | None] | None = None,
        categories: Mapping[str, float | None] | None = None,
    ) -> None:
        self.seconds = seconds
        self.tools, self.categories = dict(tools or {}), dict(categories or {})
        self.expired = 0
        limits: tuple[object, ...] = (seconds, *self.tools.values(), *self.categories.values())
        for limit in limits:
            if limit is not None and not (isinstance(limit, int | float) and limit > 0):
                raise DeclarationError(f"A timeout must be seconds greater than 0, or None for no limit, got {limit!r}")

    async def around(self, call: Call, proceed: Handler) -> Reply:
        """Run the call, and stop it after its timeout."""
        seconds = resolve(call, self.tools, self.categories, self.seconds)
        if seconds is None:
            return await proceed(call)
        clock = Deadline(math.inf, seconds)
        try:
            with call.timed(clock):
                return await proceed(call)
        except TimeoutError:
            # A TimeoutError of the tool itself is its failure, not ours.
            if not clock.expired:
                raise
            self.expired += 1
            raise LimitReached(
                f"{tool_of(call)} took longer than {seconds:g} s and was stopped. Ask for less at a time.",
                "timeout",
                seconds=seconds,
            ) from None
