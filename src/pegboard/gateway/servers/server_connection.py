"""One connection to a server, and the calls that run on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Final

from pegboard.background_tasks import end_tasks
from pegboard.call import Channel, Json
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.link import OutgoingRequest, ServerLink
from pegboard.client.links.server_messages import read_members, read_values
from pegboard.client.request_sender import CircuitBreaker, RequestSender
from pegboard.client.transports.stdio_link import StdioLink
from pegboard.deadline import Deadline
from pegboard.errors import PegboardError, Refusal, ResponseTimeout, ServerFault, Unreachable
from pegboard.gateway.servers.request_slots import RequestSlots
from pegboard.gateway.servers.unattributed import ASKING, UnattributedChannel
from pegboard.protocol.revisions import REVISIONS

_log = logging.getLogger("pegboard.gateway")

MAX_RETRIES: Final = 2
AGAIN_SECONDS: Final = 1.0
"""How soon after a failure a call may try to connect again."""

STARTING_SECONDS: Final = 5.0
"""When to retry a call to a server that was still starting."""


class ServerConnection:
    """A link that is opened once for all requests.

    `on_end` is called with the revision of each session with the server, and how many seconds it lasted.
    """

    def __init__(
        self,
        name: str,
        make_link: Callable[[Channel], ServerLink],
        tools: KnownTools,
        list_tools: Callable[[], Awaitable[object]],
        *,
        roots: Sequence[str],
        connect_timeout: float,
        start_timeout: float = 0.0,
        on_end: Callable[[str, float], object] | None = None,
    ) -> None:
        self._on_end = on_end
        self._began: float | None = None
        self.users = 0
        self.retired = False
        """Whether it ends with its running requests."""
        self.used_at = 0.0
        running: dict[OutgoingRequest, Deadline] = {}
        self.unattributed = UnattributedChannel(name, roots, running.keys())
        self.link = make_link(self.unattributed)
        self.breaker = CircuitBreaker(self.link.name)
        self._name = name
        self._connect_timeout = connect_timeout
        # Detecting the era may take one timeout, and the handshake another.
        self._open_timeout = connect_timeout + max(connect_timeout, start_timeout)
        self._sender = RequestSender(
            self.link, self.breaker, tools, list_tools, running, retries=MAX_RETRIES, abandon=self._abandon
        )
        self._turn = RequestSlots(name, 1)
        self._given_up = count()
        self._opening: asyncio.Task[None] | None = None
        self._failure: ServerFault | None = None
        self._failed_at = 0.0
        self._closed = False

    @property
    def spawns(self) -> int:
        """How many processes were started for this connection."""
        return self.link.spawns if isinstance(self.link, StdioLink) else 0

    @property
    def stderr_tail(self) -> str:
        """The end of what the process of this connection wrote to stderr."""
        return self.link.stderr_tail if isinstance(self.link, StdioLink) else ""

    @property
    def is_opening(self) -> bool:
        return self._opening is not None

    async def open(self, *, now: bool = False, seconds: float | None = None) -> None:
        """Open the link; shortly after a failure, raises the same fault again, unless it must be tried `now`.

        After `seconds`, a caller gets the error that the server is still starting.
        """
        if self.link.is_open:
            return
        if self._opening is None:
            if self._closed:
                raise Unreachable(f"{self.link.name}: the connection is closed")
            since = asyncio.get_running_loop().time() - self._failed_at
            if self._failure is not None and not now and since < AGAIN_SECONDS:
                raise self._failure.with_traceback(None)
            self._end_session()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # A caller that stops waiting must not cancel the attempt for the others.
        done, _ = await asyncio.wait([opening], timeout=seconds)
        if not done:
            raise Unreachable(f"{self.link.name}: is still starting", retry_after=STARTING_SECONDS)
        if opening.cancelled():
            raise Unreachable(f"{self.link.name}: the connection is closed")
        opening.result()

    def send(self, out: OutgoingRequest) -> Coroutine[Any, Any, Mapping[str, Json]]:
        """Send a caller's request within its deadline, with retries where they are safe."""
        return self._sender.send(out)

    def _abandon(self, out: OutgoingRequest) -> None:
        if out.method in ASKING:
            self.unattributed.abandoned.add(next(self._given_up), out.owner)

    def serializes(self, method: str) -> RequestSlots | None:
        """The slot that calls take one at a time, once the server has sent a question that several could have caused."""
        return (
            self._turn
            if self.unattributed.ambiguous and method in ASKING and REVISIONS[self.link.version].asks_midway
            else None
        )

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request of the gateway itself."""
        read = read_values if method == "server/discover" else read_members
        out = OutgoingRequest(method=method, params=params, channel=self.unattributed, read=read)
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._sender.send_once(out)
        except TimeoutError:
            raise ResponseTimeout(
                f"{self.link.name}: no response to {method} within {self._connect_timeout:g} s"
            ) from None

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        return await self._sender.listen(params, channel)

    async def close(self) -> None:
        """Close the link, and fail the requests that wait for it."""
        self._closed = True
        await end_tasks(self._opening)
        self._end_session()
        await self.link.close()

    def _end_session(self) -> None:
        """The link has been closed, or its server has."""
        began, self._began = self._began, None
        if began is not None and self._on_end is not None:
            self._on_end(self.link.version, asyncio.get_running_loop().time() - began)

    async def _open(self) -> None:
        seconds = self._open_timeout
        try:
            async with asyncio.timeout(seconds):
                await self._sender.open()
        except TimeoutError as late:
            if isinstance(late, ResponseTimeout):
                raise
            raise ResponseTimeout(f"{self.link.name}: no connection within {seconds:g} s") from None
        except Refusal as refusal:
            raise Unreachable(f"{self.link.name}: rejected the handshake: {refusal.message[:200]}") from None
        except ServerFault:
            raise
        except PegboardError as problem:
            raise Unreachable(f"{self._name}: {problem}") from None
        except Exception as problem:  # noqa: BLE001 — starting a board runs its author's code
            _log.exception("%s: cannot be started", self._name)
            raise Unreachable(f"{self._name}: cannot be started, {type(problem).__name__}") from None

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        failure = None if opening.cancelled() else opening.exception()
        if failure is None:
            self._failure = None
            if not opening.cancelled():
                self._began = asyncio.get_running_loop().time()
                self.breaker.succeed()
        elif isinstance(failure, ServerFault):
            self._failure = failure
            self._failed_at = asyncio.get_running_loop().time()
