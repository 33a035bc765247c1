"""One server behind the gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

from msgspec.structs import replace

from pegboard import __version__
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Caller, Channel, Json
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.credentials import Auth
from pegboard.client.links.in_process import InProcessLink, InProcessServer
from pegboard.client.links.link import Identity, OutgoingRequest, ServerLink
from pegboard.client.target import LinkOptions, open_link
from pegboard.config.gateway_config import ServerConfig
from pegboard.deadline import Deadline
from pegboard.errors import (
    ConnectionLost,
    MalformedMessage,
    MessageTooLong,
    ResponseTimeout,
    ServerFault,
    SetupError,
    Unauthorized,
    Unreachable,
)
from pegboard.gateway.servers.connection_pool import IDLE_SECONDS, OWN_KEY, ConnectionPool
from pegboard.gateway.servers.request_slots import RequestSlots
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.servers.server_connection import RunningCall, ServerConnection
from pegboard.gateway.servers.supervisor import State, Supervisor
from pegboard.protocol.revisions import MODERN, REVISIONS

MAX_CALLERS: Final = 256
"""How many who call are remembered by what they can do."""
SPARE_CONNECTIONS: Final = 520
"""Calls that wait for a person lend their slot, but not their connection; and our own requests need some."""

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

    `on_change` is told of another catalogue or state.
    """

    names_server: ClassVar[bool] = True

    def __init__(
        self,
        toolbox: str,
        config: ServerConfig,
        *,
        on_change: OnChange,
        on_updated: OnUpdated,
        login: Login | None = None,
        board: InProcessServer | None = None,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.name = config.name
        self.config = config
        self._login = login
        self._board = board
        # What children are told by their environment, whatever their entry says.
        self._marks = marks or {}
        self._tools = KnownTools()
        self._slots = RequestSlots(config.name, config.concurrency)
        self._only = (self._slots,)
        self._pool = ConnectionPool(config.name, self._make_connection, config.idle_seconds or IDLE_SECONDS)
        self._callers: BoundedDict[int, tuple[Caller, Caller, Identity]] = BoundedDict(MAX_CALLERS)
        self._supervisor = Supervisor(
            config,
            self._pool,
            self._tools,
            changed=lambda: on_change(self),
            updated=lambda uri: on_updated(self, uri),
        )

    @property
    def state(self) -> State:
        return self._supervisor.state

    @property
    def problem(self) -> str:
        return self._supervisor.problem

    @property
    def catalog(self) -> ServerCatalog | None:
        """What was last listed, through every failure; the same object for as long as it says the same."""
        return self._supervisor.catalog

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
        return not self._supervisor.settled.is_set()

    @property
    def describe_problem(self) -> str:
        """Why the server cannot be used, for callers; nothing while it can, or may soon."""
        return _TOLD.get(self.state, "")

    @property
    def asks_midway(self) -> bool:
        """Whether this is a legacy server, whose questions come while a request runs."""
        version = self.config.version if self.catalog is None else self.catalog.version
        return version is not None and REVISIONS[version].asks_midway

    def start(self) -> None:
        """Begin to connect, unless the server waits until it is needed."""
        if not self.config.lazy:
            self._supervisor.start_when_needed()

    async def wait_connected(self) -> None:
        """Wait until the first attempt has ended, well or not; a server that waits to be needed is needed now."""
        self._supervisor.start_when_needed()
        await self._supervisor.settled.wait()

    def follow(self, uris: frozenset[str]) -> None:
        """Tell of changes of these resources from now on, and of no others."""
        self._supervisor.follow(uris)

    async def send(
        self, out: OutgoingRequest, caller: Caller | None = None, *, timeout: float | None = None
    ) -> Mapping[str, Json]:
        """The result of a request, in the name of a caller; a Refusal where the server says no, else a ServerFault.

        It is Busy, which is a Refusal too, where too many wait for this server. `timeout` is in place of the server's own.
        """
        self._supervisor.start_when_needed()
        config = self.config
        quiet = config.timeout if timeout is None else timeout
        longest = max(config.max_timeout, quiet)
        key = OWN_KEY if caller is None or config.share == "all" else self._key(caller)
        connection = self._pool.connection(key)
        turn = connection.serializes(out.method)
        connection.users += 1
        try:
            if turn is None:
                return await self._take_slot(connection, out, caller, self._only, quiet, longest)
            await turn.take(quiet)
            try:
                return await self._take_slot(connection, out, caller, (self._slots, turn), quiet, longest)
            finally:
                turn.free()
        finally:
            connection.users -= 1
            connection.used_at = asyncio.get_running_loop().time()
            if key is not OWN_KEY and not connection.users and connection.breaker.is_open:
                # Nobody watches over a caller's own link: the next call gets a new one.
                self._pool.drop(key)

    def explain(self, fault: ServerFault) -> str:
        """What a caller may know of a fault: nothing of where the server is, how it is started or what it is sent."""
        match fault:
            case Unauthorized():
                told = _TOLD["needs_login"]
            case ResponseTimeout():
                told = "did not answer in time; the request was cancelled"
            case ConnectionLost():
                told = "was lost before it answered, and nobody knows how far the request came"
            case MessageTooLong():
                told = "answered with more than is read; ask it for less at a time"
            case MalformedMessage():
                told = "answered with something that is no MCP message"
            case Unreachable(retry_after=float(seconds)):
                told = f"cannot be reached now; try again in {max(1, round(seconds))} s"
            case _:
                told = _TOLD["failed"]
        return f"The server '{self.name}' {told}."

    async def stop(self) -> None:
        """Let go of the server: its processes, connections and tasks are gone within three seconds."""
        await self._supervisor.stop()
        await self._pool.close()

    # Calls.

    async def _take_slot(
        self,
        connection: ServerConnection,
        out: OutgoingRequest,
        caller: Caller | None,
        slots: Sequence[RequestSlots],
        quiet: float,
        longest: float,
    ) -> Mapping[str, Json]:
        if not self._slots.take_now():
            await self._slots.take(quiet)
        try:
            if not connection.link.is_open:
                await connection.open(seconds=quiet)
                self._supervisor.note_healthy()
            owner: Hashable = None if caller is None else (caller.principal, caller.session)
            deadline = Deadline(quiet, longest)
            running_call = RunningCall(out.channel, slots, owner, deadline)
            told, identity = (None, None) if caller is None else self._identity_of(caller)
            own = replace(out, channel=running_call, owner=owner, caller=told, identity=out.identity or identity)
            try:
                return await connection.send(own, running_call, seconds=min(quiet, longest))
            except (ResponseTimeout, Unauthorized):
                self._supervisor.note_suspect()
                raise
        finally:
            self._slots.free()

    def _key(self, caller: Caller) -> Hashable:
        """Whom a caller shares a link with; where there are no sessions, those of one principal."""
        if self.config.kind == "board":
            return OWN_KEY
        return caller.principal if self.config.share == "principal" else (caller.principal, caller.session)

    def _identity_of(self, caller: Caller) -> tuple[Caller, Identity]:
        """What a server is told of a caller: what it can do, but not who it is."""
        known = self._callers.get(id(caller))
        if known is None or known[0] is not caller:
            told = replace(caller, version=MODERN, transport="direct")
            identity = Identity(_CLIENT, caller.capabilities, caller.log_level)
            known = self._callers[id(caller)] = caller, told, identity
        return known[1], known[2]

    # Links.

    def _make_connection(self, key: Hashable) -> ServerConnection:
        principal = key if isinstance(key, str) else key[0] if isinstance(key, tuple) else ""
        try:
            return ServerConnection(
                self.name,
                lambda unattributed: self._make_link(unattributed, principal),
                self._tools,
                self._list_again,
                roots=self.config.roots,
                connect_timeout=self._supervisor.connect_timeout,
            )
        except SetupError as problem:
            raise Unreachable(f"{self.name}: {problem}") from None

    async def _list_again(self) -> None:
        await self._supervisor.list_again()

    def _make_link(self, unattributed: Channel, principal: str) -> ServerLink:
        config = self.config
        if config.kind == "board":
            if self._board is None:
                raise SetupError(f"there is no board {config.board!r}")
            return InProcessLink(self._board, _OURSELVES)
        options = LinkOptions(
            headers=config.headers,
            env={**config.child_env(os.environ), **self._marks},
            cwd=config.cwd,
            version=config.version,
            connect_timeout=self._supervisor.connect_timeout,
            connections=config.concurrency + SPARE_CONNECTIONS,
            auth=None if self._login is None else self._login(config, principal),
            restarts=None,
        )
        return open_link(config.command if config.kind == "stdio" else config.url, _OURSELVES, unattributed, options)
