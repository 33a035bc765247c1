"""One link to a downstream server, and the calls that are under way on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

from pegboard.call import Channel, Json, Notice, Question
from pegboard.client.breaker import Breaker
from pegboard.client.incoming import read_members, read_values
from pegboard.client.known_tools import KnownTools
from pegboard.client.link import PROGRESS, Link, Outbound
from pegboard.client.sending import Sending
from pegboard.client.stdio import StdioLink
from pegboard.errors import NoAnswer, PegboardError, Refusal, ServerFault, Unreachable
from pegboard.gateway.servers.lobby import Lobby
from pegboard.gateway.servers.slots import Slots
from pegboard.patience import Patience, held
from pegboard.protocol.versions import ASKED_MEANWHILE

_log = logging.getLogger("pegboard.gateway")

RETRIES: Final = 2
AGAIN_SECONDS: Final = 1.0
"""How soon after a failure a call may have the server tried again."""

STARTING_SECONDS: Final = 5.0
"""When to try again what a server was not there for yet."""

ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""What a server may ask something for."""


class Ride:
    """A call under way, and its channel: while its caller is asked, its clock stands still and its slots are lent."""

    __slots__ = ("_channel", "_slots", "asked", "owner", "patience")

    def __init__(self, channel: Channel, slots: Sequence[Slots], owner: Hashable, patience: Patience) -> None:
        self._channel = channel
        self._slots = slots
        self.asked = 0
        self.owner = owner
        self.patience = patience

    async def emit(self, notice: Notice) -> None:
        if notice.method == PROGRESS:
            self.patience.news()
        await self._channel.emit(notice)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        with ExitStack() as lent:
            lent.enter_context(held((self.patience,)))
            if not self.asked:
                for slots in self._slots:
                    lent.enter_context(slots.lent())
            self.asked += 1
            lent.callback(self._end_ask)
            return await self._channel.ask(asks)

    async def close_stream(self, retry_ms: int) -> None:
        await self._channel.close_stream(retry_ms)

    def _end_ask(self) -> None:
        self.asked -= 1


class Lane:
    """A link that is opened once for all who need it."""

    def __init__(
        self,
        name: str,
        make_link: Callable[[Channel], Link],
        tools: KnownTools,
        list_tools: Callable[[], Awaitable[object]],
        *,
        roots: Sequence[str],
        connect_timeout: float,
    ) -> None:
        self.users = 0
        self.used_at = 0.0
        self.under_way: dict[Ride, None] = {}
        self.lobby = Lobby(name, roots, self.under_way.keys())
        self.link = make_link(self.lobby)
        self.breaker = Breaker(self.link.name)
        self._name = name
        self._connect_timeout = connect_timeout
        self._sending = Sending(self.link, self.breaker, tools, list_tools, waits=set(), retries=RETRIES)
        self._turn = Slots(name, 1)
        self._given_up = count()
        self._opening: asyncio.Task[None] | None = None
        self._failure: ServerFault | None = None
        self._failed_at = 0.0
        self._closed = False

    @property
    def spawns(self) -> int:
        """How many processes were started for it."""
        return self.link.spawns if isinstance(self.link, StdioLink) else 0

    async def open(self, *, now: bool = False, seconds: float | None = None) -> None:
        """Open the link; where that failed a moment ago, the same fault at once, unless it has to be tried `now`.

        Whoever has only so many `seconds` is told after them that it still begins.
        """
        if self.link.is_open:
            return
        if self._opening is None:
            if self._closed:
                raise Unreachable(f"{self.link.name}: is not used any more")
            since = asyncio.get_running_loop().time() - self._failed_at
            if self._failure is not None and not now and since < AGAIN_SECONDS:
                raise self._failure.with_traceback(None)
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # Whoever gives up waiting does not take it from the others.
        done, _ = await asyncio.wait([opening], timeout=seconds)
        if not done:
            raise Unreachable(f"{self.link.name}: is still starting", retry_after=STARTING_SECONDS)
        if opening.cancelled():
            raise Unreachable(f"{self.link.name}: is not used any more")
        opening.result()

    async def send(self, out: Outbound, ride: Ride, *, seconds: float) -> Mapping[str, Json]:
        """Send a request for a ride whose nearest deadline is so many seconds away."""
        if out.method not in ASKING:
            return await self._send(out, ride, seconds)
        self.under_way[ride] = None
        try:
            return await self._send(out, ride, seconds)
        except (asyncio.CancelledError, NoAnswer):
            self.lobby.abandoned.add(next(self._given_up), ride.owner)
            raise
        finally:
            del self.under_way[ride]

    def turns(self, method: str) -> Slots | None:
        """What calls wait for where they go one at a time, because nobody knows for which of several a server asks."""
        return self._turn if self.lobby.muddled and method in ASKING and self.link.version in ASKED_MEANWHILE else None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request of our own."""
        read = read_values if method == "server/discover" else read_members
        out = Outbound(method=method, params=params, channel=self.lobby, read=read)
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._sending.send_once(out)
        except TimeoutError:
            raise NoAnswer(f"{self.link.name}: no answer to {method} within {self._connect_timeout:g} s") from None

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        return await self._sending.listen(params, channel)

    async def close(self) -> None:
        """Let go of the link, and of who waits for it."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self.link.close()

    def _send(self, out: Outbound, ride: Ride, seconds: float) -> Coroutine[Any, Any, Mapping[str, Json]]:
        patience = ride.patience
        work = self._sending.send(out, (patience,))
        return self._sending.within(patience, work, out.method, seconds)

    async def _open(self) -> None:
        # Finding out the era may take an answer that does not come, and the handshake another.
        seconds = 2 * self._connect_timeout
        try:
            async with asyncio.timeout(seconds):
                await self._sending.open()
        except TimeoutError as late:
            if isinstance(late, NoAnswer):
                raise
            raise NoAnswer(f"{self.link.name}: cannot be spoken to within {seconds:g} s") from None
        except Refusal as refusal:
            raise Unreachable(f"{self.link.name}: refuses to begin: {refusal.message[:200]}") from None
        except ServerFault:
            raise
        except PegboardError as problem:
            raise Unreachable(f"{self._name}: {problem}") from None
        except Exception as problem:  # noqa: BLE001 — a board of this process starts what its author gave it
            _log.exception("%s: cannot be started", self._name)
            raise Unreachable(f"{self._name}: cannot be started, {type(problem).__name__}") from None

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        failure = None if opening.cancelled() else opening.exception()
        if failure is None:
            self._failure = None
            if not opening.cancelled():
                self.breaker.succeed()
        elif isinstance(failure, ServerFault):
            self._failure = failure
            self._failed_at = asyncio.get_running_loop().time()
