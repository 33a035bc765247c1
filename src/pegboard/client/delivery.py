"""The way of a request: from the cache, over rounds of questions, within its deadlines, and again where that is safe."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from pegboard.call import Channel, Json, Question
from pegboard.client.admission import admitted
from pegboard.client.answers import Answers
from pegboard.client.breaker import Breaker
from pegboard.client.ear import Ear, OnLog, Progress
from pegboard.client.known_tools import KnownTools
from pegboard.client.link import Link, Outbound
from pegboard.client.lists import CACHED, Lists
from pegboard.client.mirrors import usable
from pegboard.client.patience import Patience, held
from pegboard.errors import Garbled, HeaderMismatch, InvalidParams, LinkLost, NoAnswer, Refusal, Unreachable

ROUNDS: Final = 16
PAGES: Final = 1000
_PATIENT: Final = 5.0

# Asking twice changes nothing: these may be sent again when nobody knows whether they arrived.
_REPEATABLE: Final = frozenset({*CACHED, "prompts/get", "completion/complete", "ping"})

T = TypeVar("T")


class Delivery:
    """Takes the requests of a client to its server, and brings the results.

    `waits` are the deadlines of all that is under way; `timeout` and `max_timeout` bound a call without news and in all,
    with its retries, rounds and resumptions.
    """

    def __init__(
        self,
        link: Link,
        answers: Answers,
        lists: Lists,
        log: OnLog | None,
        waits: set[Patience],
        *,
        timeout: float,
        max_timeout: float,
        retries: int,
        breaker: Breaker,
    ) -> None:
        self._link = link
        self._answers = answers
        self._lists = lists
        self._log = log
        self._waits = waits
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._retries = retries
        self._breaker = breaker
        self._caches = link.transport != "direct"
        self._tools = KnownTools()

    async def open(self) -> None:
        """Open the link, with credentials where it takes some."""
        await self._admitted(self._link.open)

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        """A subscription, which has no deadline."""
        out = Outbound(method="subscriptions/listen", params=params, channel=channel)
        return await self._admitted(lambda: self._link.request(out))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Json]:
        """The result of a request; NoAnswer where it does not come in time."""
        ear = Ear(self._answers, self._lists, self._log, progress)
        quiet = self._timeout if timeout is None else timeout
        longest = self._max_timeout if timeout is None else max(self._max_timeout, timeout)
        if quiet == longest == math.inf:
            return await self._rounds(method, params, ear, wants_progress=progress is not None)
        patience = Patience(quiet, longest)
        ear.waits = (patience,)
        self._waits.add(patience)
        try:
            with patience:
                return await self._rounds(method, params, ear, wants_progress=progress is not None)
        except TimeoutError as late:
            if not patience.expired or isinstance(late, NoAnswer):
                raise
            fault = NoAnswer(f"{self._link.name}: no answer to {method} within {min(quiet, longest):g} s")
            self._breaker.fail(fault)
            raise fault from None
        finally:
            self._waits.discard(patience)

    async def list_tools(self) -> list[dict[str, Json]]:
        """All tools that this link can call by the rules."""
        tools = await self.collect("tools/list", "tools")
        if self._link.mirrors:
            tools = usable(tools, self._link.name)
        self._tools.take(tools)
        return tools

    async def collect(self, method: str, member: str) -> list[dict[str, Json]]:
        """Every page of a list."""
        found: list[dict[str, Json]] = []
        params: dict[str, Json] = {}
        for _ in range(PAGES):
            try:
                page = await self.request(method, params)
            except InvalidParams:
                if not params:
                    raise
                # "discard all cached pages and re-fetch from the beginning": the cursor does not hold any more.
                self._lists.clear(method)
                found, params = [], {}
                continue
            found += self.members(page, member)
            cursor = page.get("nextCursor")
            if cursor is None or cursor == params.get("cursor"):
                return found
            params = {"cursor": cursor}
        raise Garbled(f"{self._link.name}: {method} has more than {PAGES} pages")

    def members(self, result: Mapping[str, Json], member: str) -> list[dict[str, Json]]:
        """The objects that a result lists; Garbled where it does not."""
        items = result.get(member)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Garbled(f"{self._link.name}: answered with no list of {member}")
        return items

    async def _rounds(
        self, method: str, params: Mapping[str, Any], ear: Ear, *, wants_progress: bool
    ) -> Mapping[str, Json]:
        cached = self._caches and method in CACHED
        if cached and (kept := self._lists.find(method, params)) is not None:
            return kept
        sent = params
        for _ in range(ROUNDS):
            out = Outbound(method=method, params=sent, channel=ear, wants_progress=wants_progress)
            result = await self._persist(out, ear)
            if result.get("resultType") != "input_required":
                if cached and sent is params:
                    self._lists.keep(method, params, result)
                return result
            sent = {**params, **await self._answer(result, ear)}
        raise Garbled(f"{self._link.name}: still asks after {ROUNDS} rounds of {method}")

    async def _answer(self, result: Mapping[str, Json], ear: Ear) -> dict[str, Json]:
        """What a request is sent again with: the answers, and the state exactly as it came."""
        asked = result.get("inputRequests")
        again: dict[str, Json] = {}
        if isinstance(asked, dict) and asked:
            try:
                questions = {key: Question(one["method"], one.get("params") or {}) for key, one in asked.items()}
            except (TypeError, KeyError, AttributeError):
                raise Garbled(f"{self._link.name}: asks for input in no form that can be answered") from None
            again["inputResponses"] = await ear.ask(questions)
        if "requestState" in result:
            again["requestState"] = result["requestState"]
        if not again:
            raise Garbled(f"{self._link.name}: asks for input and does not say what")
        return again

    async def _persist(self, out: Outbound, ear: Ear) -> Mapping[str, Json]:
        """Send a request, and again where it cannot have been worked on or does no harm twice."""
        self._breaker.enter()
        for attempt in range(self._retries + 1):
            try:
                result = await self._admitted(lambda: self._send(out))
            except (Unreachable, LinkLost) as fault:
                self._breaker.fail(fault)
                wait = self._pause(fault, attempt, out)
                # Whoever would only wait for the deadline is told what went wrong instead.
                if wait is None or wait >= min((patience.left() for patience in ear.waits), default=math.inf):
                    raise
            except Refusal:
                self._breaker.succeed()
                raise
            else:
                self._breaker.succeed()
                return result
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt is not waited for")

    def _pause(self, fault: Unreachable | LinkLost, attempt: int, out: Outbound) -> float | None:
        """How long to wait before a request is sent again; None where it is not."""
        if attempt >= self._retries or self._breaker.is_open:
            return None
        if isinstance(fault, Unreachable) and fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= _PATIENT else None
        if isinstance(fault, LinkLost) and not self._is_repeatable(out):
            return None
        # With jitter, so that many clients do not come back together.
        return 0.1 * 4.0**attempt * (0.5 + random.random())

    def _is_repeatable(self, out: Outbound) -> bool:
        if out.method == "tools/call":
            return self._tools.find(str(out.params.get("name"))).repeatable
        return out.method in _REPEATABLE

    def _admitted(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """A person who logs in for one request is waited for by all."""
        authorizer = self._link.authorizer
        return work() if authorizer is None else admitted(work, authorizer, lambda: held(self._waits))

    async def _send(self, out: Outbound) -> Mapping[str, Json]:
        if out.method != "tools/call" or not self._link.mirrors:
            return await self._link.request(out)
        tools = self._tools
        if not tools.edition:
            await tools.learn(0, self.list_tools)
        name = str(out.params.get("name"))
        edition = tools.edition
        out.mirrors = tools.find(name).mirrors
        try:
            return await self._link.request(out)
        except HeaderMismatch:
            # "the client SHOULD call `tools/list` to check for changes …, then retry the original request"
            self._lists.drop("notifications/tools/list_changed")
            await tools.learn(edition, self.list_tools)
            out.mirrors = tools.find(name).mirrors
            return await self._link.request(out)
