"""One server behind the gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard import __version__
from pegboard.auth.principal import Principal
from pegboard.board import Board
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Call, Caller, Channel, Json
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.in_process import InProcessLink, InProcessServer
from pegboard.client.links.link import ClientAuth, Identity, LinkOptions, OutgoingRequest, ServerLink
from pegboard.client.request_sender import CircuitBreaker
from pegboard.client.target import open_link
from pegboard.client.transports.child_process import installs
from pegboard.config.gateway_config import ServerConfig
from pegboard.deadline import Deadline
from pegboard.errors import (
    ConnectionLost,
    MalformedMessage,
    MessageTooLong,
    Refusal,
    ResponseTimeout,
    ServerFault,
    SetupError,
    Unauthorized,
    Unreachable,
)
from pegboard.gateway.servers.caller_key import CallerKey, key_of
from pegboard.gateway.servers.connection_pool import IDLE_SECONDS, OWN_KEY, ConnectionPool
from pegboard.gateway.servers.local_board import LocalBoard
from pegboard.gateway.servers.request_slots import RequestSlots
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.servers.server_connection import ServerConnection
from pegboard.gateway.servers.supervisor import State, Supervisor
from pegboard.limits import Limits
from pegboard.logs.log_lines import ServerName
from pegboard.protocol.revisions import MODERN, REVISIONS

MAX_CALLERS: Final = 256
"""How many callers are cached with their capabilities."""
SPARE_CONNECTIONS: Final = 520
"""Calls that wait for a person release their slot, but not their connection; and our own requests need some."""

INSTALL_SECONDS: Final = 300.0
"""What a command such as npx gets to install and start its server: one that is stopped halfway leaves a broken install."""

OnChange: TypeAlias = Callable[["Downstream"], None]
OnUpdated: TypeAlias = Callable[["Downstream", str], None]
OnServerSessionEnd: TypeAlias = Callable[["Downstream", str, float], object]
"""Is called with a server, the revision of a session with it that ended, and the seconds that it lasted."""
Prepare: TypeAlias = Callable[["Downstream", ServerCatalog], Awaitable[None]]
"""Called with a new catalog before it is in effect."""
Login: TypeAlias = Callable[[ServerConfig, CallerKey | None], ClientAuth | None]
"""Returns how to log in to a server, for a caller; None is the gateway itself."""

_CLIENT: Final[Mapping[str, Json]] = {"name": "pegboard", "title": "Pegboard", "version": __version__}
# All capabilities that a gateway can forward: a legacy server gets them once, before the callers are known.
_CARRIED: Final[Mapping[str, Json]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
_TOLD: Final[Mapping[State, str]] = {
    "failed": "cannot be reached now; the gateway keeps trying",
    "needs_login": "needs a login by the operator of this gateway",
    "stopped": "is stopped",
}
_UNCONFIGURED: Final = "cannot be used until the operator of this gateway completes its configuration"
_OURSELVES: Final = Identity(_CLIENT, _CARRIED, "info")


class _KnownCaller(Struct, frozen=True):
    """A caller, as it is shown to servers and what its requests count for; without one, requests are the gateway's own."""

    itself: Caller | None = None
    shown: Caller | None = None
    identity: Identity | None = None
    owner: Hashable = None
    account: str = ""


_OURS: Final = _KnownCaller()


class Downstream:
    """A server of a toolbox; `problem` is for the operator of the gateway, and `explain` for callers.

    `on_change` is called when the catalog or the state changes.
    """

    names_server: ClassVar[bool] = True

    def __init__(
        self,
        toolbox: str,
        config: ServerConfig,
        *,
        on_change: OnChange,
        on_updated: OnUpdated,
        prepare: Prepare | None = None,
        login: Login | None = None,
        board: InProcessServer | None = None,
        marks: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        installing: asyncio.Semaphore | None = None,
        on_session_end: OnServerSessionEnd | None = None,
    ) -> None:
        self._identity = replace(_OURSELVES, limits=limits or Limits())
        self.toolbox = toolbox
        self.name = config.name
        self.config = config
        self._login = login
        self._board = board
        self.credential = _describe_credential(config)
        # Variables that all children get, whatever their entry sets.
        self._marks = marks or {}
        self._tools = KnownTools()
        self._on_session_end = on_session_end
        self._slots = RequestSlots(config.name, config.concurrency)
        # What a request holds that waits for no other one.
        self._only_slots = (self._slots,)
        self._label = ServerName(f"{toolbox}/{config.name}", f"{toolbox}/{config.name}")
        self._pool = ConnectionPool(
            self._label, self._make_connection, config.idle_seconds or IDLE_SECONDS, remote=config.kind != "stdio"
        )
        self._start_timeout = INSTALL_SECONDS if config.kind == "stdio" and installs(config.command) else None
        self._callers: BoundedDict[int, _KnownCaller] = BoundedDict(MAX_CALLERS)
        self._supervisor = Supervisor(
            self._label,
            config,
            self._pool,
            self._tools,
            changed=lambda: on_change(self),
            updated=lambda uri: on_updated(self, uri),
            prepare=None if prepare is None else partial(prepare, self),
            start_timeout=self._start_timeout,
            installing=installing,
        )

    def reconfigure(self, config: ServerConfig) -> None:
        """Apply another configuration that leaves the connection as it is."""
        self.config = config
        self._slots.resize(config.concurrency)
        self._supervisor.reconfigure(config)

    def _end_session(self, version: str, seconds: float) -> None:
        if self._on_session_end is not None:
            self._on_session_end(self, version, seconds)

    def end_session(self, caller: Caller) -> None:
        """Close the connection that was only for this session."""
        key = self._key(caller)
        if self.config.share == "session" and key is not OWN_KEY:
            self._pool.drop(key)

    def drop_callers(self, principal: Principal | None = None) -> None:
        """Close the connections of a caller whose credentials for the server have changed, or of all callers."""
        for key in list(self._pool.connections):
            if isinstance(key, CallerKey) and (
                principal is None or (key.principal, key.issuer) == (principal.id, principal.issuer)
            ):
                self._pool.retire(key)

    @property
    def state(self) -> State:
        return self._supervisor.state

    @property
    def is_up(self) -> bool:
        """Whether it is connected, or stopped until it is needed."""
        return self.state == "ready" or (self.state == "idle" and (self.config.lazy or self.catalog is not None))

    @property
    def problem(self) -> str:
        return self._supervisor.problem

    @property
    def catalog(self) -> ServerCatalog | None:
        """The last catalog, kept through every failure; the same object as long as its content is the same."""
        return self._supervisor.catalog

    @property
    def spawns(self) -> int:
        """How many processes were started for this server so far."""
        return self._pool.spawns

    @property
    def output(self) -> str:
        """The end of what its process wrote to stderr."""
        connection = self._pool.connections.get(OWN_KEY)
        return "" if connection is None else connection.stderr_tail

    @property
    def breaker(self) -> CircuitBreaker | None:
        """The circuit breaker of the connection that callers share, if there is one."""
        connection = self._pool.connections.get(OWN_KEY)
        return None if connection is None else connection.breaker

    @property
    def in_flight(self) -> int:
        return self._slots.taken

    @property
    def waiting(self) -> int:
        return self._slots.waiting

    @property
    def pending(self) -> bool:
        """Whether the first attempt to connect has not ended, or not even begun."""
        return not self._supervisor.settled.is_set()

    @property
    def describe_problem(self) -> str:
        """Why the server cannot be used, for callers; nothing while it can, or may soon."""
        return _UNCONFIGURED if self.config.problem else _TOLD.get(self.state, "")

    def explain_unavailable(self) -> str:
        """Why its tools cannot be called, for callers."""
        return f"The server '{self.name}' {self.describe_problem or 'is still starting; try again in a moment'}."

    @property
    def asks_midway(self) -> bool:
        """Whether this is a legacy server, whose questions come while a request runs."""
        catalog = self._supervisor.catalog
        version = self.config.version if catalog is None else catalog.version
        return version is not None and REVISIONS[version].asks_midway

    def start(self) -> None:
        """Begin to connect, unless the server only starts when it is needed."""
        if not self.config.lazy:
            self._supervisor.start_when_needed()

    async def wait_connected(self) -> None:
        """Wait until the first attempt has succeeded or failed; this starts a server that only starts when needed."""
        self._supervisor.start_when_needed()
        await self._supervisor.settled.wait()

    def follow(self, uris: frozenset[str]) -> None:
        """Report changes of these resources from now on, and of no others."""
        self._supervisor.follow(uris)

    async def send(
        self,
        method: str,
        params: Mapping[str, Any],
        channel: Channel,
        caller: Caller | None = None,
        *,
        call: Call | None = None,
        wants_progress: bool = False,
        timeout: float | None = None,
    ) -> Mapping[str, Json]:
        """The result of a request on behalf of a caller; a Refusal if the server rejects it, else a ServerFault.

        Busy, which is a Refusal, if too many requests wait for this server. `call` is what it is forwarded for, which notes
        the time that it takes. `timeout` replaces the server's own.
        """
        config, supervisor, slots = self.config, self._supervisor, self._slots
        if not supervisor.is_running:
            supervisor.start_when_needed()
        key = OWN_KEY if caller is None or config.share == "all" else self._key(caller)
        connection = self._pool.connections.get(key) or self._pool.connection(key)
        turn = connection.serializes(method) if connection.unattributed.ambiguous else None
        held: Sequence[RequestSlots] = ()
        known = None if caller is None else self._callers.get(id(caller))
        if known is None or known.itself is not caller:
            known = self._introduce(caller)
        account = known.account
        quiet = config.timeout if timeout is None else timeout
        connection.users += 1
        began = perf_counter()
        try:
            if turn is None and slots.take_now(account):
                held = self._only_slots
            else:
                wanted = self._only_slots if turn is None else (turn, slots)
                held = await self._take_slots(wanted, account, call, quiet)
            if not connection.link.is_open:
                await connection.open(seconds=quiet)
                supervisor.note_healthy()
            out = OutgoingRequest(
                method=method,
                params=params,
                channel=channel,
                wants_progress=wants_progress,
                identity=known.identity,
                owner=known.owner,
                caller=known.shown,
                deadline=Deadline(quiet, max(config.max_timeout, quiet)),
                held=held,
                account=account,
            )
            return await connection.send(out)
        except BaseException as end:
            self._note_end(call, end, shared=key is OWN_KEY)
            raise
        finally:
            for taken in held:
                taken.free(account)
            connection.users -= 1
            connection.used_at = asyncio.get_running_loop().time()
            if call is not None:
                call._downstream_ms += (perf_counter() - began) * 1000
            if connection.retired:
                self._pool.close_retired(connection)
            elif key is not OWN_KEY and not connection.users and connection.breaker.is_open:
                # The supervisor does not watch a caller's own connection: the next call gets a new one.
                self._pool.drop(key)

    async def _take_slots(
        self, slots: Sequence[RequestSlots], account: str, call: Call | None, seconds: float
    ) -> Sequence[RequestSlots]:
        """Take all of these slots, as soon as they are free."""
        held: list[RequestSlots] = []
        try:
            for wanted in slots:
                if not wanted.take_now(account):
                    queued = perf_counter()
                    await wanted.take(seconds, account)
                    if call is not None:
                        call.note_wait("server", perf_counter() - queued)
                held.append(wanted)
        except BaseException:
            for taken in held:
                taken.free(account)
            raise
        return held

    def _note_end(self, call: Call | None, end: BaseException, *, shared: bool) -> None:
        """A request ended without a result."""
        if call is not None and isinstance(end, Exception):
            call._downstream_error = str(end.code) if isinstance(end, Refusal) else type(end).__name__
        # That one caller is not logged in says nothing about the gateway's own connection.
        if isinstance(end, ResponseTimeout) or (shared and isinstance(end, Unauthorized)):
            self._supervisor.note_suspect()

    def explain(self, fault: ServerFault) -> str:
        """What a caller may know about a fault, without the server's address, command or requests."""
        match fault:
            case Unauthorized() if self.config.of_each_user:
                reason = "did not accept the login of this user; the user has to connect it again"
            case Unauthorized() if self.config.exchanges:
                reason = "does not accept this caller: its authorization server refused to exchange the caller's token"
            case Unauthorized():
                reason = _TOLD["needs_login"]
            case ResponseTimeout():
                reason = "did not answer in time; the request was cancelled"
            case ConnectionLost():
                reason = "was lost before it answered; it may have processed the request"
            case MessageTooLong():
                reason = "sent a response that is too large; request less data at a time"
            case MalformedMessage():
                reason = "sent an invalid MCP message"
            case Unreachable(retry_after=float(seconds)):
                reason = f"cannot be reached now; try again in {max(1, round(seconds))} s"
            case _:
                reason = _TOLD["failed"]
        return f"The server '{self.name}' {reason}."

    async def stop(self) -> None:
        """Disconnect from the server: its processes, connections and tasks end within three seconds."""
        await self._supervisor.stop()
        await self._pool.close()

    def scopes_of(self, kind: str, name: str) -> frozenset[str]:
        """The scopes that an item of a board in this process requires; those of other servers are not known."""
        return self._board._scopes_of(kind, name) if isinstance(self._board, Board | LocalBoard) else frozenset()

    def _key(self, caller: Caller) -> Hashable:
        """The key of the callers that share a link."""
        if self.config.kind == "board":
            return OWN_KEY
        return key_of(caller, self.config)

    def _introduce(self, caller: Caller | None) -> _KnownCaller:
        """A caller as a board in this process and as other servers see it: with its capabilities, but not its identity."""
        if caller is None:
            return _OURS
        # Its transport stays: a board shows exceptions to callers on this machine only.
        shown = replace(caller, version=MODERN, credentials=None)
        identity = Identity(_CLIENT, caller.capabilities, caller.log_level)
        owner = (caller.principal.id, caller.session)
        known = self._callers[id(caller)] = _KnownCaller(caller, shown, identity, owner, caller.account)
        return known

    # Links.

    def _make_connection(self, key: Hashable) -> ServerConnection:
        caller = key if isinstance(key, CallerKey) else None
        try:
            return ServerConnection(
                self._label,
                lambda unattributed: self._make_link(unattributed, caller),
                self._tools,
                self._list_again,
                roots=self.config.roots,
                connect_timeout=self._supervisor.connect_timeout,
                start_timeout=self._start_timeout or 0.0,
                on_end=self._end_session,
            )
        except SetupError as problem:
            raise Unreachable(f"{self._label}: {problem}") from None

    async def _list_again(self) -> None:
        await self._supervisor.list_again()

    def _make_link(self, unattributed: Channel, caller: CallerKey | None) -> ServerLink:
        config = self.config
        if config.problem:
            raise SetupError(config.problem)
        if config.kind == "board":
            if self._board is None:
                raise SetupError(f"there is no board {config.board!r}")
            return InProcessLink(self._board, self._identity)
        options = LinkOptions(
            server=self._label,
            headers=config.own_headers if caller is None else {**config.headers, **dict(caller.headers)},
            env={**config.child_env(os.environ), **self._marks},
            cwd=config.cwd,
            confine=config.confine,
            resources=config.resources,
            version=config.version,
            connect_timeout=self._supervisor.connect_timeout,
            start_timeout=self._start_timeout,
            connections=config.concurrency + SPARE_CONNECTIONS,
            auth=None if self._login is None else self._login(config, caller),
            restarts=None,
        )
        return open_link(
            config.command if config.kind == "stdio" else config.url, self._identity, unattributed, options
        )


def _describe_credential(config: ServerConfig) -> str:
    """Which credential of the caller its requests carry, for the audit log; empty if they carry none."""
    if not config.is_personal:
        return ""
    kind = "header" if config.auth is None else config.auth.kind
    return f"{kind} of the caller at {config.name}"
