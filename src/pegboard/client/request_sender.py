"""Sends a request over a link, with credentials, deadlines, retries and a circuit breaker."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any, Final

from msgspec import Struct

from pegboard.backoff import backoff, jitter
from pegboard.call import Channel, Json
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.link import CredentialAttempt, OutgoingRequest, ServerLink, with_credentials
from pegboard.client.list_cache import CACHED
from pegboard.deadline import Deadline, paused
from pegboard.errors import (
    ConnectionLost,
    HeaderMismatch,
    LoginFailed,
    Refusal,
    ResponseTimeout,
    ServerFault,
    Unauthorized,
    Unreachable,
)

_WITHOUT_DEADLINE: Final = 5.0

# Requests without side effects, which may be retried even if they may have arrived.
_REPEATABLE: Final = frozenset({*CACHED, "prompts/get", "completion/complete", "ping"})

_NO_DEADLINE: Final = nullcontext()

FAILURE_LIMIT: Final = 8
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class CircuitBreaker:
    """Counts the `failures` of one server in a row.

    At `limit` of them it opens, and rejects requests at once. After each pause it lets one request through as a probe,
    and the next one only after another pause: a response closes the breaker, a failure doubles the pause. With a limit
    of 0 it never opens.
    """

    def __init__(self, name: str, limit: int = FAILURE_LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._limit = limit or math.inf
        self._clock = clock
        self.failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._until = 0.0
        self._trying = False
        self._last: ServerFault | None = None

    @property
    def is_open(self) -> bool:
        return self.failures >= self._limit

    @property
    def retry_seconds(self) -> float:
        """How long it still rejects requests."""
        return max(0.0, self._until - self._clock()) if self.is_open else 0.0

    def enter(self) -> None:
        """Let a request through; raises Unreachable while the breaker is open."""
        if self.failures < self._limit:
            return
        now = self._clock()
        wait = self._until - now
        if wait > 0:
            problem = f"failed {self.failures} times in a row, and is tried again in {wait:.1f} s"
            raise Unreachable(f"{self._name}: {problem}. Last error: {self._last}", retry_after=wait)
        self._until = now + self._pause
        self._trying = True

    def fail(self, fault: ServerFault) -> None:
        """The server was unreachable, the connection was lost, or no response came."""
        self.failures += 1
        if self.failures < self._limit:
            return
        if self._trying:
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        elif self.failures > self._limit:
            # Many requests may have been in flight when it opened: they count as one failure.
            return
        self._trying = False
        self._last = fault
        asked = fault.retry_after if isinstance(fault, Unreachable) else None
        self._until = self._clock() + max(self._pause, min(asked or 0.0, LONGEST_PAUSE_SECONDS))

    def succeed(self) -> None:
        """The server responded, with whatever result."""
        if self.failures:
            self.failures = 0
            self._pause = FIRST_PAUSE_SECONDS
            self._trying = False
            self._last = None


class RequestSender(Struct, eq=False):
    """Sends the requests of one link.

    `running` holds the running requests with their deadlines, which are paused while a person logs in; `tools` is what is
    known of the server's tools, and `list_tools` lists them again. `abandon` is called with a request that the server may
    still work on, although its response is not waited for any more.
    """

    link: ServerLink
    breaker: CircuitBreaker
    tools: KnownTools
    list_tools: Callable[[], Awaitable[object]]
    running: dict[OutgoingRequest, Deadline]
    retries: int
    abandon: Callable[[OutgoingRequest], object] = id

    async def open(self) -> None:
        """Open the link, with credentials if it uses some."""
        authorizer = self.link.authorizer
        if authorizer is None:
            return await self.link.open()
        return await with_credentials(self.link.open, authorizer, lambda: paused(self.running.values()))

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        """A subscription, which has no deadline."""
        return await self.send_once(OutgoingRequest(method="subscriptions/listen", params=params, channel=channel))

    async def send(self, out: OutgoingRequest) -> Mapping[str, Json]:  # noqa: C901 — one function, since all requests run through it
        """Send a request within its deadline; ResponseTimeout if that passes.

        It is sent again if the server cannot have worked on it or a repetition is safe.
        """
        link, breaker, deadline = self.link, self.breaker, out.deadline
        if breaker.failures:
            breaker.enter()
        if deadline is not None:
            self.running[out] = deadline
        try:
            with deadline or _NO_DEADLINE:
                attempt = 0
                while True:
                    authorizer, generation = link.authorizer, self.tools.generation
                    entry = None if authorizer is None else authorizer.entry()
                    ready = not link.mirrors or self._mirror(out)
                    try:
                        try:
                            result = await (link.request(out) if ready else self._send_with(entry, generation, out))
                        except (HeaderMismatch, Unauthorized) as refused:
                            if not ready:
                                raise
                            result = await self._send_with(entry, generation, out, refused)
                    except (Unreachable, ConnectionLost) as fault:
                        breaker.fail(fault)
                        wait = self._pause(fault, attempt, out)
                        # If the deadline would pass during the pause, the caller gets the fault instead.
                        if wait is None or (deadline is not None and wait >= deadline.left()):
                            raise
                    except Refusal:
                        breaker.succeed()
                        raise
                    else:
                        if breaker.failures:
                            breaker.succeed()
                        return result
                    await asyncio.sleep(wait)
                    attempt += 1
        except (asyncio.CancelledError, TimeoutError) as end:
            self.abandon(out)
            is_late = isinstance(end, TimeoutError) and not isinstance(end, ResponseTimeout)
            if deadline is None or not deadline.expired or not is_late:
                raise
            fault_of_time = ResponseTimeout(f"{link.name}: no response to {out.method} within {deadline.seconds:g} s")
            breaker.fail(fault_of_time)
            raise fault_of_time from None
        finally:
            if deadline is not None:
                del self.running[out]

    def send_once(self, out: OutgoingRequest) -> Coroutine[Any, Any, Mapping[str, Json]]:
        """Send a request in one attempt, past the circuit breaker, with the credentials and headers that it needs."""
        authorizer = self.link.authorizer
        return self._send_with(None if authorizer is None else authorizer.entry(), self.tools.generation, out)

    def _mirror(self, out: OutgoingRequest) -> bool:
        """Find the arguments to repeat in headers; False if the tools of the server must be listed first."""
        if out.method == "tools/call":
            if not self.tools.generation:
                return False
            out.mirrors = self.tools.find(str(out.params.get("name"))).mirrors
        return True

    async def _send_with(
        self,
        entry: CredentialAttempt | None,
        generation: int,
        out: OutgoingRequest,
        rejected: HeaderMismatch | Unauthorized | None = None,
    ) -> Mapping[str, Json]:
        """Send a request, and again with other credentials or headers; `rejected` is the end of a first attempt.

        `generation` is that of the tools before. While a person logs in for one request, all of them wait.
        """
        mirrored = out.method == "tools/call" and self.link.mirrors
        listed_again = outdated = mirrored and not generation
        while True:
            try:
                if rejected is not None:
                    problem, rejected = rejected, None
                    raise problem
                if outdated:
                    await self._learn(generation)
                    outdated = False
                generation = self.tools.generation
                if mirrored:
                    self._mirror(out)
                return await self.link.request(out)
            except HeaderMismatch:
                # "the client SHOULD call `tools/list` to check for changes …, then retry the original request"
                if not mirrored or listed_again:
                    raise
                listed_again = outdated = True
            except Unauthorized as refused:
                if entry is None or isinstance(refused, LoginFailed):
                    raise
                with paused(self.running.values()):
                    renewed = await entry.renew(refused.status, refused.challenge)
                if not renewed:
                    raise

    def _pause(self, fault: Unreachable | ConnectionLost, attempt: int, out: OutgoingRequest) -> float | None:
        """How long to wait before a retry; None for no retry."""
        if attempt >= self.retries or self.breaker.is_open:
            return None
        if isinstance(fault, Unreachable) and fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= _WITHOUT_DEADLINE else None
        if isinstance(fault, ConnectionLost) and not self._is_repeatable(out):
            return None
        return jitter(backoff(2 * attempt + 1, 0.1, _WITHOUT_DEADLINE))

    def _is_repeatable(self, out: OutgoingRequest) -> bool:
        if out.method == "tools/call":
            return self.tools.find(str(out.params.get("name"))).repeatable
        return out.method in _REPEATABLE

    async def _learn(self, generation: int) -> None:
        try:
            await self.tools.learn(generation, self.list_tools)
        except ConnectionLost as lost:
            # The call itself was not sent, so it can be retried.
            raise Unreachable(f"{self.link.name}: the connection was lost while its tools were listed") from lost
