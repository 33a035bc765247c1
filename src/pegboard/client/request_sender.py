"""Sends a request over a link, with credentials, deadlines, backoff and retries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from pegboard.backoff import backoff, jitter
from pegboard.call import Channel, Json
from pegboard.client.circuit_breaker import CircuitBreaker
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.credentials import with_credentials
from pegboard.client.links.link import OutgoingRequest, ServerLink
from pegboard.client.list_cache import CACHED
from pegboard.deadline import Deadline, paused
from pegboard.errors import ConnectionLost, HeaderMismatch, Refusal, ResponseTimeout, Unreachable

_WITHOUT_DEADLINE: Final = 5.0

# Asking twice changes nothing: these may be sent again when nobody knows whether they arrived.
_REPEATABLE: Final = frozenset({*CACHED, "prompts/get", "completion/complete", "ping"})

T = TypeVar("T")


class RequestSender:
    """Sends the requests of one link.

    `waits` are the deadlines of all that is under way, which stand still while a person logs in; `tools` is what is known
    of the server's tools, and `list_tools` makes it known anew.
    """

    def __init__(
        self,
        link: ServerLink,
        breaker: CircuitBreaker,
        tools: KnownTools,
        list_tools: Callable[[], Awaitable[object]],
        *,
        waits: set[Deadline],
        retries: int,
    ) -> None:
        self.breaker = breaker
        self._link = link
        self._tools = tools
        self._list_tools = list_tools
        self._waits = waits
        self._retries = retries

    async def open(self) -> None:
        """Open the link, with credentials where it takes some."""
        await self._with_credentials(self._link.open)

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        """A subscription, which has no deadline."""
        return await self.send_once(OutgoingRequest(method="subscriptions/listen", params=params, channel=channel))

    async def send_once(self, out: OutgoingRequest) -> Mapping[str, Json]:
        """Send a request once, however the server fares, and say nothing of that to the breaker."""
        return await self._with_credentials(lambda: self._link.request(out))

    async def within(self, deadline: Deadline, work: Awaitable[T], method: str, seconds: float) -> T:
        """Do some work within these deadlines, the nearest of so many seconds; NoAnswer where one of them passes."""
        self._waits.add(deadline)
        try:
            with deadline:
                return await work
        except TimeoutError as late:
            if not deadline.expired or isinstance(late, ResponseTimeout):
                raise
            fault = ResponseTimeout(f"{self._link.name}: no answer to {method} within {seconds:g} s")
            self.breaker.fail(fault)
            raise fault from None
        finally:
            self._waits.discard(deadline)

    async def send(self, out: OutgoingRequest, waits: Collection[Deadline] = ()) -> Mapping[str, Json]:
        """Send a request, and again where it cannot have been worked on or does no harm twice."""
        self.breaker.enter()
        for attempt in range(self._retries + 1):
            try:
                result = await self._with_credentials(lambda: self._send(out))
            except (Unreachable, ConnectionLost) as fault:
                self.breaker.fail(fault)
                wait = self._pause(fault, attempt, out)
                # Whoever would only wait for the deadline is told what went wrong instead.
                if wait is None or wait >= min((deadline.left() for deadline in waits), default=math.inf):
                    raise
            except Refusal:
                self.breaker.succeed()
                raise
            else:
                self.breaker.succeed()
                return result
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt is not waited for")

    def _pause(self, fault: Unreachable | ConnectionLost, attempt: int, out: OutgoingRequest) -> float | None:
        """How long to wait before a request is sent again; None where it is not."""
        if attempt >= self._retries or self.breaker.is_open:
            return None
        if isinstance(fault, Unreachable) and fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= _WITHOUT_DEADLINE else None
        if isinstance(fault, ConnectionLost) and not self._is_repeatable(out):
            return None
        return jitter(backoff(2 * attempt + 1, 0.1, _WITHOUT_DEADLINE))

    def _is_repeatable(self, out: OutgoingRequest) -> bool:
        if out.method == "tools/call":
            return self._tools.find(str(out.params.get("name"))).repeatable
        return out.method in _REPEATABLE

    def _with_credentials(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """A person who logs in for one request is waited for by all."""
        authorizer = self._link.authorizer
        return work() if authorizer is None else with_credentials(work, authorizer, lambda: paused(self._waits))

    def _send(self, out: OutgoingRequest) -> Awaitable[Mapping[str, Json]]:
        mirrors = out.method == "tools/call" and self._link.mirrors
        return self._send_mirrored(out) if mirrors else self._link.request(out)

    async def _send_mirrored(self, out: OutgoingRequest) -> Mapping[str, Json]:
        tools = self._tools
        if not tools.generation:
            await tools.learn(0, self._list_tools)
        name = str(out.params.get("name"))
        generation = tools.generation
        out.mirrors = tools.find(name).mirrors
        try:
            return await self._link.request(out)
        except HeaderMismatch:
            # "the client SHOULD call `tools/list` to check for changes …, then retry the original request"
            await tools.learn(generation, self._list_tools)
            out.mirrors = tools.find(name).mirrors
            return await self._link.request(out)
