"""One server behind the gateway: reached when it is needed, watched over, and asked for whoever calls.

Theory of operation. A keeper, one task for each server, connects, lists what there is, and stays: it listens for changes,
looks now and then whether the server is still there, and begins anew when it is lost. Calls do not wait for the keeper;
they take a lane and open it themselves if they must, so that the keeper's pauses are nobody's delay. What was listed last
stays through every failure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from pegboard import __version__
from pegboard.call import Caller, Channel, Json
from pegboard.client.admission import Auth
from pegboard.client.direct import Served
from pegboard.client.known_tools import KnownTools
from pegboard.client.link import Identity, Link, Outbound
from pegboard.client.patience import Patience
from pegboard.client.renewed import Renewed
from pegboard.client.target import Options, open_link
from pegboard.errors import (
    Garbled,
    LinkLost,
    NoAnswer,
    NotAdmitted,
    PegboardError,
    Refusal,
    ServerFault,
    SetupError,
    Unreachable,
)
from pegboard.gateway.catalogue import Catalogue, list_catalogue
from pegboard.gateway.config import ServerConfig
from pegboard.gateway.lane import Lane, Ride
from pegboard.gateway.listening import Listening
from pegboard.gateway.pool import IDLE_SECONDS, OURS, Pool
from pegboard.gateway.slots import Slots
from pegboard.protocol.versions import LEGACY, MODERN

_log = logging.getLogger("pegboard.gateway")

State: TypeAlias = Literal["idle", "connecting", "ready", "failed", "needs_login", "stopped"]

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""A server that stayed this long has not failed before."""
DEBOUNCE_SECONDS: Final = 0.2
IDLER_DEBOUNCES: Final = 5
"""A server that tells changes and has none is listed ever more rarely: its pause doubles so often."""
LOOK_SECONDS: Final = 60.0
"""How often a server that nobody calls is asked whether it is still there."""
SHORTEST_TTL: Final = 30.0
CALLERS: Final = 256

OnChange: TypeAlias = Callable[["Downstream"], None]
OnUpdated: TypeAlias = Callable[["Downstream", str], None]
Login: TypeAlias = Callable[[ServerConfig, str], Auth | None]
"""Says how a server is logged in to, for a principal; "" is the gateway itself."""

_CLIENT: Final[Mapping[str, Json]] = {"name": "pegboard", "title": "Pegboard", "version": __version__}
# All that a gateway can carry to somebody: what a legacy server is told once, whoever calls later.
_CARRIED: Final[Mapping[str, Json]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
_TOLD: Final[Mapping[State, str]] = {
    "failed": "cannot be reached now; it is tried again by itself",
    "needs_login": "needs a login, which whoever runs this gateway has to do",
    "stopped": "is stopped",
}
_OURSELVES: Final = Identity(_CLIENT, _CARRIED, "info")


class Downstream:
    """A server of a toolbox; `problem` is for who runs the gateway, and `explain` for who calls.

    `on_change` is told of another catalogue or state: the catalogue is the same object for as long as it says the same.
    """

    def __init__(
        self,
        toolbox: str,
        config: ServerConfig,
        *,
        on_change: OnChange,
        on_updated: OnUpdated,
        login: Login | None = None,
        board: Served | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.name = config.name
        self.config = config
        self.state: State = "idle"
        self.problem = ""
        self.catalogue: Catalogue | None = None
        self._on_change = on_change
        self._on_updated = on_updated
        self._login = login
        self._board = board
        self._tools = KnownTools()
        self._slots = Slots(config.name, config.concurrency)
        self._pool = Pool(config.name, self._make_lane, config.idle_seconds or IDLE_SECONDS)
        self._listening = Listening(self._hear_change, self._hear_update)
        self._callers: dict[int, tuple[Caller, Caller, Identity]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._doubt = asyncio.Event()
        self._changed = asyncio.Event()
        self._relisting = asyncio.Lock()

    @property
    def spawns(self) -> int:
        """How many processes were started for this server so far."""
        return self._pool.spawns

    @property
    def in_flight(self) -> int:
        return self._slots.taken

    @property
    def pending(self) -> bool:
        """Whether the first attempt to connect has not ended, or not even begun."""
        return not self._settled.is_set()

    @property
    def told_problem(self) -> str:
        """Why the server cannot be used, for callers; nothing while it can, or may soon."""
        return _TOLD.get(self.state, "")

    @property
    def asks_midway(self) -> bool:
        """Whether this is a legacy server, whose questions come while a request runs."""
        version = self._pool.lane().link.version if self.catalogue is None else self.catalogue.version
        return version in LEGACY

    def start(self) -> None:
        """Begin to connect, unless the server waits until it is needed."""
        if not self.config.lazy:
            self._need()

    async def settled(self) -> None:
        """Wait until the first attempt has ended, well or not; a server that waits to be needed is needed now."""
        self._need()
        await self._settled.wait()

    def follow(self, uris: frozenset[str]) -> None:
        """Tell of changes of these resources from now on, and of no others."""
        self._listening.follow(uris)
        if uris:
            self._need()

    async def send(
        self, out: Outbound, caller: Caller | None = None, *, timeout: float | None = None
    ) -> Mapping[str, Json]:
        """The result of a request, in the name of a caller; a Refusal where the server says no, else a ServerFault.

        It is Busy, which is a Refusal too, where too many wait for this server. `timeout` is in place of the server's own.
        """
        self._need()
        config = self.config
        quiet = config.timeout if timeout is None else timeout
        longest = max(config.max_timeout, quiet)
        lane = self._pool.lane(OURS if caller is None or config.share == "all" else self._key(caller))
        turn = lane.turns(out.method)
        lane.users += 1
        try:
            if turn is None:
                return await self._take_slot(lane, out, caller, (self._slots,), quiet, longest)
            await turn.take(quiet)
            try:
                return await self._take_slot(lane, out, caller, (self._slots, turn), quiet, longest)
            finally:
                turn.free()
        finally:
            lane.users -= 1

    def explain(self, fault: ServerFault) -> str:
        """What a caller may know of a fault: nothing of where the server is, how it is started or what it is sent."""
        match fault:
            case NotAdmitted():
                told = _TOLD["needs_login"]
            case NoAnswer():
                told = "did not answer in time; the request was cancelled"
            case LinkLost():
                told = "was lost before it answered, and nobody knows how far the request came"
            case Garbled():
                told = "answered with something that is no MCP message"
            case Unreachable(retry_after=float(seconds)):
                told = f"cannot be reached now; try again in {max(1, round(seconds))} s"
            case _:
                told = _TOLD["failed"]
        return f"The server '{self.name}' {told}."

    async def stop(self) -> None:
        """Let go of the server: its processes, connections and tasks are gone within three seconds."""
        self.state = "stopped"
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._settled.set()
        await self._pool.close()

    # Calls.

    async def _take_slot(
        self, lane: Lane, out: Outbound, caller: Caller | None, slots: Sequence[Slots], quiet: float, longest: float
    ) -> Mapping[str, Json]:
        await self._slots.take(quiet)
        try:
            return await self._send(lane, out, caller, slots, quiet, longest)
        finally:
            self._slots.free()

    async def _send(
        self, lane: Lane, out: Outbound, caller: Caller | None, slots: Sequence[Slots], quiet: float, longest: float
    ) -> Mapping[str, Json]:
        if not lane.link.is_open:
            await lane.open()
            self._hurry.set()
        owner: Hashable = None if caller is None else (caller.principal, caller.session)
        patience = Patience(quiet, longest)
        ride = Ride(out.channel, slots, owner, patience)
        told, identity = (None, None) if caller is None else self._introduce(caller)
        own = replace(out, channel=ride, owner=owner, caller=told, identity=out.identity or identity)
        try:
            return await lane.send(own, ride, seconds=min(quiet, longest))
        except NoAnswer:
            self._doubt.set()
            raise

    def _key(self, caller: Caller) -> Hashable:
        """Whom a caller shares a link with; where there are no sessions, those of one principal."""
        if self.config.kind == "board":
            return OURS
        return caller.principal if self.config.share == "principal" else (caller.principal, caller.session)

    def _introduce(self, caller: Caller) -> tuple[Caller, Identity]:
        """What a server is told of a caller: what it can do, but not who it is."""
        known = self._callers.get(id(caller))
        if known is None or known[0] is not caller:
            while len(self._callers) >= CALLERS:
                del self._callers[next(iter(self._callers))]
            told = replace(caller, version=MODERN, transport="direct")
            identity = Identity(_CLIENT, caller.capabilities, caller.log_level)
            known = self._callers[id(caller)] = caller, told, identity
        return known[1], known[2]

    # Links.

    def _make_lane(self, key: Hashable) -> Lane:
        principal = key if isinstance(key, str) else key[0] if isinstance(key, tuple) else ""
        return Lane(
            self.name,
            lambda lobby: self._make_link(lobby, principal),
            self._tools,
            self._list_again,
            roots=self.config.roots,
            connect_timeout=self.config.connect_timeout,
        )

    def _make_link(self, lobby: Channel, principal: str) -> Link:
        config = self.config
        target: Any
        match config.kind:
            case "stdio":
                target = config.command
            case "board":
                if self._board is None:
                    raise SetupError(f"{self.name}: there is no board {config.board!r}")
                target = self._board
            case _:
                target = config.url
        inherited = {name: os.environ[name] for name in config.inherit if name in os.environ}
        options = Options(
            headers=config.headers,
            env={**inherited, **config.env},
            cwd=config.cwd,
            version=config.version,
            connect_timeout=config.connect_timeout,
            connections=config.concurrency,
            auth=None if self._login is None else self._login(config, principal),
            restarts=None,
        )
        return open_link(target, _OURSELVES, lobby, options)

    # The keeper.

    def _need(self) -> None:
        if self.state == "stopped":
            raise Unreachable(f"{self.name}: is stopped")
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                began = loop.time()
                lane = self._pool.lane()
                try:
                    if not lane.link.is_open:
                        self._become("connecting", self.problem)
                    await lane.open(now=True)
                    await self._list(lane)
                    self._become("ready", "")
                    self._settled.set()
                    await self._attend(lane)
                except PegboardError as problem:
                    failures = 1 if loop.time() - began > STEADY_SECONDS else failures + 1
                    self._give_up(lane, problem)
                    self._take_problem(problem)
                else:
                    self._pool.drop(OURS)
                    self._become("idle", "")
                    return
                self._settled.set()
                await self._pause(failures)
        except Exception:  # noqa: BLE001 — a fault of ours: whoever runs this is told, and calls are still served
            _log.exception("%s: is not watched over any more", self.name)
            self._become("failed", "an error of the gateway itself, see its log")
            self._settled.set()

    async def _list(self, lane: Lane) -> None:
        """List what there is, and tell of it where it is not as it was."""
        seconds = max(self.config.timeout, self.config.connect_timeout)
        link = lane.link
        async with self._relisting:
            try:
                async with asyncio.timeout(seconds):
                    found = await list_catalogue(
                        lane.ask, lambda: link.version, mirrors=lambda: link.mirrors, name=self.name
                    )
            except TimeoutError as late:
                if isinstance(late, NoAnswer):
                    raise
                raise NoAnswer(f"{link.name}: its lists do not come within {seconds:g} s") from None
            self._tools.take(found.tools)
            if self.catalogue is not None and self.catalogue.digest == found.digest:
                return
            self.catalogue = found
        for told in found.dropped:
            _log.warning("%s: left out of its lists: %s", self.name, ascii(told))
        if self.state == "ready":
            self._tell(self._on_change, self)

    async def _list_again(self) -> None:
        """A call found out that a tool is not as it was listed."""
        await self._list(self._pool.lane())

    async def _attend(self, lane: Lane) -> None:
        """Stay with a server until it is lost, and raise why; it returns where nobody needs the server any more."""
        assert self.catalogue is not None  # noqa: S101 — it was listed just now
        watches: list[Coroutine[Any, Any, None]] = [
            self._listening.run(lane, self.catalogue),
            self._refresh(lane),
            self._look(lane),
        ]
        if isinstance(lane.link, Renewed):
            watches.append(lane.link.until_lost())
        if self.config.idle_seconds is not None:
            watches.append(self._until_idle(lane, self.config.idle_seconds))
        tasks = [asyncio.create_task(watch) for watch in watches]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _refresh(self, lane: Lane) -> None:
        """List again after a change was told, once for all that are told within a moment."""
        in_vain = 0
        while True:
            await self._changed.wait()
            await asyncio.sleep(DEBOUNCE_SECONDS * 2 ** min(in_vain, IDLER_DEBOUNCES))
            self._changed.clear()
            before = self.catalogue
            try:
                await self._list(lane)
            except Refusal as refusal:
                _log.warning("%s: refused to be listed again: %s", self.name, ascii(refusal.message[:200]))
            in_vain = in_vain + 1 if self.catalogue is before else 0

    async def _look(self, lane: Lane) -> None:
        """Ask the server now and then whether it is still there, and list it again where it tells no changes."""
        while True:
            seconds = LOOK_SECONDS if (ttl := self._ttl()) is None else min(LOOK_SECONDS, ttl)
            self._doubt.clear()
            try:
                # With jitter, so that many servers are not asked together.
                async with asyncio.timeout(seconds * (0.9 + 0.2 * random.random())):
                    await self._doubt.wait()
            except TimeoutError:
                if ttl is not None:
                    await self._list(lane)
                    continue
            if not lane.users:
                await self._ping(lane)

    async def _ping(self, lane: Lane) -> None:
        method = "ping" if lane.link.version in LEGACY else "server/discover"
        try:
            await lane.ask(method, {})
        except Refusal:
            # Whoever refuses is there.
            return

    def _give_up(self, lane: Lane, problem: PegboardError) -> None:
        """A process that hangs, or a connection that nobody reads, does not recover by itself."""
        if isinstance(problem, NoAnswer) and isinstance(lane.link, Renewed) and not lane.users:
            self._pool.drop(OURS)

    def _ttl(self) -> float | None:
        """How long the lists hold of a server that tells no changes and gives them a time; None for others."""
        catalogue = self.catalogue
        if catalogue is None or catalogue.ttl_ms is None:
            return None
        if any(catalogue.tells_changes(kind) for kind in ("tools", "prompts", "resources")):
            return None
        return max(catalogue.ttl_ms / 1000, SHORTEST_TTL)

    async def _until_idle(self, lane: Lane, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left = lane.used_at + seconds - loop.time()
            if left <= 0 and not lane.users and not self._listening.uris:
                return
            await asyncio.sleep(max(left, 0.05))

    async def _pause(self, failures: int) -> None:
        """Wait before the next attempt, unless a call has found the server well meanwhile."""
        longest = min(FIRST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE)
        self._hurry.clear()
        try:
            async with asyncio.timeout(longest * (0.5 + random.random())):
                await self._hurry.wait()
        except TimeoutError:
            return

    def _take_problem(self, problem: PegboardError) -> None:
        _log.warning("%s: %s", self.name, ascii(str(problem))[1:-1])
        if isinstance(problem, NotAdmitted):
            self._become("needs_login", str(problem))
        elif self.state == "ready" and isinstance(problem, LinkLost):
            lane = self._pool.lane()
            self._become("ready" if lane.link.is_open else "connecting", str(problem))
        else:
            self._become("failed", str(problem))

    def _become(self, state: State, problem: str) -> None:
        if self.state == "stopped":
            return
        before, self.state, self.problem = self.state, state, problem
        if state != before:
            self._tell(self._on_change, self)

    def _hear_change(self) -> None:
        self._changed.set()

    def _hear_update(self, uri: str) -> None:
        self._tell(self._on_updated, self, uri)

    def _tell(self, listener: Callable[..., None], *told: object) -> None:
        try:
            listener(*told)
        except Exception:  # noqa: BLE001 — whatever a listener does, the server is watched over
            _log.exception("%s: a change could not be told on", self.name)
