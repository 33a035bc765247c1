"""The Gateway: many servers as one board."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import replace

from pegboard import __version__
from pegboard.accounts.accounts import Accounts
from pegboard.accounts.quota import Quotas
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.auth import Auth
from pegboard.background_tasks import OwnedTasks, end_tasks
from pegboard.board import start_auth
from pegboard.call import Around, Caller, Change, Handler, Json
from pegboard.call_target import KINDS, Kind
from pegboard.client.links.in_process import InProcessServer
from pegboard.config.config_keys import ToolOverride
from pegboard.config.config_watch import ConfigWatch, compare
from pegboard.config.gateway_config import (
    GatewayConfig,
    Mode,
    ServerConfig,
    ToolboxConfig,
    read_config,
)
from pegboard.config.inbound_auth import InboundAuthConfig
from pegboard.config.mistakes import redact
from pegboard.errors import InvalidParams, SetupError
from pegboard.gateway.configured_middleware import ConfiguredMiddleware
from pegboard.gateway.connections.user_connections import UserConnections
from pegboard.gateway.endpoint_set import EndpointSet, start_toolbox
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.forwarding.outcome import Destination
from pegboard.gateway.gateway_endpoint import GatewayEndpoint
from pegboard.gateway.lock.accepted_definitions import AcceptedDefinitions
from pegboard.gateway.lock.lock_file import Report
from pegboard.gateway.lock.pins import Pins, read_pins, watch_lock_file
from pegboard.gateway.log_redaction import LogRedaction
from pegboard.gateway.nesting import mark_nested
from pegboard.gateway.offer_reader import OfferReader
from pegboard.gateway.offers import Offers
from pegboard.gateway.server_set import ServerKey, ServerSet, stop_servers
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.local_board import LocalBoard
from pegboard.gateway.servers.server_catalog import ServerCatalog
from pegboard.gateway.servers.server_figures import SessionDurations, measure_servers
from pegboard.gateway.servers.server_logins import Logins, token_storage
from pegboard.gateway.user_access import UserAccess
from pegboard.gateway.withheld import withhold
from pegboard.hooks.middleware import Middleware
from pegboard.limits import Limits
from pegboard.logs.audit_sink import AuditSink
from pegboard.middleware.limits.token_meter import TokenMeter
from pegboard.middleware.observability.metric_families import MetricFamily
from pegboard.middleware.observability.metrics import Metrics
from pegboard.security.seal import read_keys
from pegboard.server.hosting import Hosted
from pegboard.stores.cluster import SharedStore
from pegboard.stores.shared_key import shared_key

_log = logging.getLogger("pegboard.gateway")

_MAX_NOTED: Final = 10_000
MAX_INSTALLING: Final = 4


class Gateway(Hosted):
    """Serves the tools, resources and prompts of many servers at one endpoint, and each toolbox at its own.

    Middleware applies to local and downstream tools alike.
    """

    _started = False

    def __init__(
        self,
        config: GatewayConfig | str | Path | Mapping[str, Any],
        *,
        mode: Mode | None = None,
        watch: bool = False,
        limits: Limits | None = None,
        quotas: Quotas | None = None,
        environ: Mapping[str, str] | None = None,
        boards: Mapping[str, InProcessServer] | None = None,
        logins: Logins | None = None,
        auth: Auth | None = None,
    ) -> None:
        """Create a gateway; it connects to its servers when it starts.

        config: the path of a configuration file, a mapping with the keys of one, or a loaded configuration. In a
            mapping, the `board` of an entry may be a board itself.
        mode: which tools clients see, in place of the mode in the file.
        watch: reload the file when it changes.
        limits: sizes, counts and times (docs/limits.md).
        quotas: what each caller may use, in place of the `quotas` in the file.
        environ: the variables that the file can refer to; without it, those of this process.
        boards: boards of this process, by the names that entries of kind `board` use.
        logins: how servers are logged in to.
        auth: which credentials callers need over HTTP, in place of the `auth` in the file.
        """
        self._environ = os.environ if environ is None else environ
        self._mode = mode
        self._boards = dict(boards or {})
        if isinstance(config, Mapping):
            config = cast(Mapping[str, Any], name_boards(config, self._boards))
        self.config = self._with_mode(
            config if isinstance(config, GatewayConfig) else read_config(config, self._environ, self._boards)
        )
        if watch and not self.config.path:
            raise SetupError("watch=True needs a configuration file: a mapping cannot change")
        self._marks = mark_nested(self.config.path, self._environ)
        self._redaction = LogRedaction()
        self._redaction.learn(self.config.secrets)
        self.limits = limits or Limits()
        self._own_quotas = quotas
        self.accounts = Accounts(self.limits, quotas or self.config.quotas)
        self._token_meter = TokenMeter(self.accounts)
        self._own_auth = auth is not None
        self.auth = self.config.auth.make() if auth is None and self.config.auth is not None else auth
        self._watches = watch
        self._tasks = OwnedTasks()
        self._secret = os.environ.get("PEGBOARD_SECRET")
        self._session_durations = SessionDurations()
        self._forwarder = Forwarder(self.config.name, read_keys(self._secret), self._find, self.limits, self.accounts)
        self._reader = OfferReader(self._forwarder, self.limits.result_bytes)
        self._servers = ServerSet(self._make)
        self._users = UserAccess(
            self, logins or Logins(token_storage()), self._forwarder, lambda: self.downstreams, self._secret or ""
        )
        self._users.check(self.config)
        self._offers: dict[ServerKey, Offers] = {}
        self._noted: set[str] = set()
        self._rearranging: asyncio.Handle | None = None
        self._shared: SharedStore | None = None
        self._edits: ConfigWatch | None = None
        self._installing = asyncio.Semaphore(MAX_INSTALLING)
        self._made = ConfiguredMiddleware(self.config)
        self._definitions = AcceptedDefinitions(self.config, self._catalogs)
        self.approvals = Approvals(self.config.name, self.limits, find_audit=lambda: self.audit)
        self._endpoints = self.places = EndpointSet(self.config, self._make_endpoint)
        self._apply_config(self.config, frozenset())
        self._attach()

    def _with_mode(self, config: GatewayConfig) -> GatewayConfig:
        return config if self._mode is None else replace(config, mode=self._mode)

    # -- what is served ------------------------------------------------------------------------------------------------

    @property
    def info(self) -> Mapping[str, Json]:
        """The name and version of this server, as clients see them."""
        return {"name": self.config.name, "version": __version__}

    @property
    def handler(self) -> Handler:
        """The gateway as a Handler: the endpoint of all toolboxes."""
        return self._endpoints.main.handler

    @property
    def downstreams(self) -> Sequence[Downstream]:
        """The servers, in the order of the configuration."""
        return tuple(self._servers)

    @property
    def connections(self) -> UserConnections | None:
        """The connections of users to servers; None unless users connect some server themselves."""
        return self._users.connections

    @property
    def pinned(self) -> bool:
        """Whether definitions of servers are compared with the lock file."""
        return self._definitions.pinned

    @property
    def endpoints(self) -> Sequence[GatewayEndpoint]:
        """The endpoint of everything, then one for each toolbox."""
        return self._endpoints.all

    def readiness(self) -> tuple[bool, Mapping[str, Json]]:
        """Whether all required servers are up, and the state of each server."""
        return self._servers.readiness()

    def find_metrics(self) -> Metrics | None:
        """The middleware that measures calls: that of the configuration, or one that was added."""
        return self._made.metrics or self._endpoints.main.board.find_metrics()

    def measure(self) -> Iterator[MetricFamily]:
        """The figures of this process and of the servers."""
        yield from super().measure()
        yield from measure_servers(self.downstreams, len(self._forwarder.parking_lot))
        yield from self._session_durations.measure()

    @property
    def audit(self) -> AuditSink:
        """Where decisions about this gateway are recorded: the Audit middleware of its configuration, if it has one."""
        return self._endpoints.main.board.audit

    def end_session(self, caller: Caller, seconds: float) -> None:
        """A session has ended: the connections to servers that were only for it end too."""
        super().end_session(caller, seconds)
        self._servers.end_session(caller)

    def use(
        self,
        *middleware: Middleware | Around,
        toolbox: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tool: str | Iterable[str] | None = None,
        prompt: str | Iterable[str] | None = None,
        resource: str | Iterable[str] | None = None,
        kind: Kind | Collection[Kind] = KINDS,
        order: float | None = None,
    ) -> None:
        """Add middleware around all calls, or around some of them; the options are those of `Board.use`.

        toolbox: only for what is in this toolbox.
        category: only for the tools of this category.
        tag: only for the tools with this tag.
        tool: only for the tool of this name, or of these names.
        prompt: only for the prompt of this name, or of these names, and the completions of its arguments.
        resource: only for the resource with this URI or template, or with these, and the completions of its variables.
        kind: of these, only requests of this kind, or of these kinds: "tool", "prompt", "resource", "completion".
        order: the position, in place of the middleware's own; the lowest is outermost.
        """
        scope: dict[str, Any] = {
            "toolbox": toolbox,
            "category": category,
            "tag": tag,
            "tool": tool,
            "prompt": prompt,
            "resource": resource,
            "kind": kind,
            "order": order,
        }
        self._endpoints.use(middleware, scope)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, shared: SharedStore | None = None) -> None:
        """Start connecting all servers; list requests before they have responded wait for a moment."""
        if self._started:
            return
        self._shared = shared
        # What can fail comes first.
        await self._users.start(self.config, shared)
        self._started = True
        try:
            await self._start_serving(shared)
        except BaseException:
            await self.stop()
            raise

    async def _start_serving(self, shared: SharedStore | None) -> None:
        self._redaction.begin()
        for warning in self.config.warnings:
            self._note(f"{self.config.path}: {warning}")
        if shared is not None:
            self._forwarder.share(shared)
            self.approvals.use_store(shared.store)
            if not self._secret:
                key = await shared_key(shared.store.records, f"{self.config.name}:passage")
                for seal in self._forwarder.seals:
                    seal.prefer(key)
        await start_auth(self.auth, shared)
        await self.start_pages(shared)
        await self._endpoints.start(shared)
        self._servers.start()
        if (metrics := self.find_metrics()) is not None:
            metrics.add_source(self.measure)
        self._rearrange()
        self._edits = ConfigWatch(self.config, self.reload, environ=self._environ, boards=self._boards)
        if self._watches:
            self._tasks.start(self._edits.run())
            self._tasks.start(watch_lock_file(lambda: self.config, self._apply_pins))

    def _apply_pins(self, pins: Pins) -> None:
        """Serve definitions that are accepted while the gateway runs."""
        self._definitions.configure(self.config, pins)
        for endpoint in self.endpoints:
            endpoint.stale = True
        self._rearrange()

    async def wait_connected(self, seconds: float | None = None, *, lazy: bool = False) -> None:
        """Wait until every server has responded or failed for the first time, or the time is up; `lazy` ones only on
        request."""
        await self._servers.wait_connected(seconds, lazy=lazy)
        # Their offers are published in the next turn of the loop.
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the parked calls, then the servers, then the boards."""
        await end_tasks(*(task for task in self._tasks if task is not asyncio.current_task()))
        if self._rearranging is not None:
            self._rearranging.cancel()
            self._rearranging = None
        await self._forwarder.close()
        if self.auth is not None:
            await self.auth.stop()
        await stop_servers(self._servers)
        await self._users.stop()
        for endpoint in self.endpoints:
            await endpoint.stop()
        if (metrics := self.find_metrics()) is not None:
            metrics.remove_source(self.measure)
        self._redaction.end()
        self._started = False

    def __del__(self) -> None:
        if self._started:
            warnings.warn(f"unclosed gateway {self.config.name!r}", ResourceWarning, source=self, stacklevel=2)

    def reload_file(self) -> None:
        """Read the configuration file of a started gateway again; a file with an error changes nothing."""
        if self._edits is not None:
            self._tasks.start(self._edits.reload())

    async def reload(self, _before: GatewayConfig, config: GatewayConfig) -> None:
        """Switch to another configuration: removed servers end, new and changed ones connect, the others continue."""
        config = self._with_mode(config)
        self._redaction.learn(config.secrets)
        changes = compare(self.config, config)
        # What can fail comes first: an edit is applied completely or not at all.
        pins, made = read_pins(config), ConfiguredMiddleware(config)
        self._users.check(config)
        if self._started:
            await self._users.start(config, self._shared)
        auth = None if config.auth is None or config.auth == self.config.auth else config.auth.make()
        self._detach()
        if self._own_quotas is None:
            self.accounts.configure(config.quotas)
        before = self.config.auth
        self.config, self._made = config, made
        self._definitions.configure(config, pins)
        ended = self._apply_config(config, frozenset(changes.changed))
        self._attach()
        if self._started:
            self._servers.start()
        self._rearrange()
        await self.start_pages(self._shared)
        await self._change_auth(before, auth)
        await stop_servers(ended)

    async def _change_auth(self, before: InboundAuthConfig | None, auth: Auth | None) -> None:
        """Accept other credentials; whether any are needed is decided when the gateway starts."""
        if self._own_auth or before == self.config.auth:
            return
        if self.auth is not None and auth is not None:
            await self.auth.change(auth)
        elif self.auth is not None:
            _log.warning("%s: authentication is still on; restart the gateway to turn it off", self.config.path)
        elif auth is not None:
            _log.warning(
                "%s: authentication is still off, every caller is accepted; restart the gateway to turn it on",
                self.config.path,
            )

    async def restart_server(self, toolbox: str, server: str) -> None:
        """Stop a server and connect to it again; its running calls fail."""
        self._server_config(toolbox, server)
        await self._replace_servers(frozenset({(toolbox, server)}))

    async def enable_server(self, toolbox: str, server: str, *, on: bool) -> None:
        """Connect to a server, or stop it, until the configuration file changes or the gateway restarts."""
        await self._set_server(toolbox, replace(self._server_config(toolbox, server), enabled=on))

    async def enable_tool(self, toolbox: str, server: str, tool: str, *, on: bool) -> None:
        """Serve a tool, or stop serving it, until the configuration file changes or the gateway restarts.

        toolbox, server, tool: where it is, by the names in the configuration and at its own server.
        on: whether it is served.
        """
        config = self._server_config(toolbox, server)
        override = replace(config.tools.get(tool, ToolOverride()), enabled=on)
        await self._set_server(toolbox, replace(config, tools={**config.tools, tool: override}))

    async def _set_server(self, toolbox: str, config: ServerConfig) -> None:
        box = self.config.toolboxes[toolbox]
        box = replace(box, servers={**box.servers, config.name: config})
        self.config = replace(self.config, toolboxes={**self.config.toolboxes, toolbox: box})
        await self._replace_servers(frozenset())

    async def compare_with_lock(self) -> Report | None:
        """How the definitions of the connected servers differ from the accepted ones; None without a lock file."""
        return await self._definitions.compare()

    async def accept_definitions(self, names: Collection[str]) -> None:
        """Accept the current definitions of these tools, servers or toolboxes, and serve them; of all without a name."""
        self._apply_pins(await self._definitions.accept(names))

    def _server_config(self, toolbox: str, server: str) -> ServerConfig:
        box = self.config.toolboxes.get(toolbox)
        if box is None or server not in box.servers:
            raise InvalidParams(f"The configuration has no server {toolbox}/{server}")
        return box.servers[server]

    async def _replace_servers(self, changed: frozenset[ServerKey]) -> None:
        ended = self._apply_config(self.config, changed)
        self._servers.start()
        self._rearrange()
        await stop_servers(ended)

    def _apply_config(self, config: GatewayConfig, changed: frozenset[ServerKey]) -> list[Downstream]:
        """Have a Downstream for each server and an endpoint for each toolbox; returns those no longer needed."""
        if any(rule.approve for rule in config.rules):
            self.serve_approvals()
        ended = self._servers.apply(config, changed)
        self._offers.clear()
        for name, endpoint in self._endpoints.apply(config).items():
            if self._started:
                self._tasks.start(start_toolbox(name, endpoint, self._shared))
        return ended

    def _make_endpoint(
        self, name: str, config: GatewayConfig, toolboxes: Mapping[str, ToolboxConfig]
    ) -> GatewayEndpoint:
        return GatewayEndpoint(
            name, config, toolboxes, self.limits, self._forwarder, self._servers.follow, self.approvals, self.accounts
        )

    def _make(self, toolbox: str, server: ServerConfig) -> Downstream:
        board: InProcessServer | None = None
        if server.kind == "board":
            board = self._boards.get(server.board) or LocalBoard(server.board)
        return Downstream(
            toolbox,
            server,
            on_change=self._changed,
            on_updated=self._updated,
            prepare=self._prepare,
            login=self._users.log_in,
            board=board,
            marks=self._marks,
            limits=self.limits,
            installing=self._installing,
            on_session_end=self._session_durations.add,
        )

    # -- changes ---------------------------------------------------------------------------------------------------------

    def _changed(self, _downstream: Downstream) -> None:
        """A server has changed its offers or its state; many changes are handled together."""
        if self._rearranging is None:
            self._rearranging = asyncio.get_running_loop().call_soon(self._rearrange)

    def _updated(self, downstream: Downstream, uri: str) -> None:
        offers = self._offers.get((downstream.toolbox, downstream.name))
        if offers is not None:
            for endpoint in self._endpoints.showing(downstream.toolbox):
                endpoint.board.changes.publish(Change("updated", offers.addresses.to_gateway(uri)))

    def _rearrange(self) -> None:
        self._rearranging = None
        changed: set[str] = set()
        for key, downstream in self._servers.items():
            offers = self._offers.get(key)
            if offers is None or offers.catalog is not downstream.catalog:
                self._offers[key] = self._read_offers(downstream)
                changed.add(downstream.toolbox)
        for endpoint in self.endpoints:
            shown = [offers for key, offers in self._offers.items() if key[0] in endpoint.toolbox_names]
            if changed & endpoint.toolbox_names or endpoint.stale:
                endpoint.replace_all(shown, withhold(shown, self._definitions.pins))
            else:
                endpoint.refresh()
        self._log_notes()
        if changed and self.config.lock != "off":
            self._tasks.start(self._scan())

    def _read_offers(self, downstream: Downstream) -> Offers:
        return self._reader.read(downstream, *self._settings_of(downstream))

    async def _prepare(self, downstream: Downstream, catalog: ServerCatalog) -> None:
        """Read a new catalog of a server before it is shown."""
        if downstream in self._servers:
            await self._reader.prepare(downstream, catalog, *self._settings_of(downstream))

    def _settings_of(self, downstream: Downstream) -> tuple[ToolboxConfig, Sequence[Any]]:
        key = downstream.toolbox, downstream.name
        return self.config.toolboxes[downstream.toolbox], self._made.own.get(key, ())

    async def _scan(self) -> None:
        """Log what an operator should review in the definitions of servers."""
        for finding in await self._definitions.scan():
            self._note(finding)

    def _catalogs(self) -> dict[ServerKey, ServerCatalog]:
        return {key: offers.catalog for key, offers in self._offers.items() if offers.catalog is not None}

    def _log_notes(self) -> None:
        """Log what was left out, and why, once."""
        for offers in self._offers.values():
            for note in offers.notes:
                self._note(note)

    def _note(self, note: str) -> None:
        if note not in self._noted:
            if len(self._noted) >= _MAX_NOTED:
                self._noted.clear()
            self._noted.add(note)
            _log.warning("%s", redact(note, self.config.secrets))

    def _find(self, toolbox: str, server: str, tool: str) -> Destination | None:
        """Where a call continues that was interrupted by a question."""
        offers = self._offers.get((toolbox, server))
        if offers is None:
            return None
        return offers.destinations.get(tool) if tool else offers.anything

    # -- middleware of the configuration ---------------------------------------------------------------------------------

    def _attach(self) -> None:
        for endpoint in self.endpoints:
            if self.accounts.counts_tokens:
                endpoint.board.use(self._token_meter)
            for middleware, toolbox in self._made.shared:
                endpoint.board.use(middleware, toolbox=toolbox)

    def _detach(self) -> None:
        for endpoint in self.endpoints:
            if self.accounts.counts_tokens:
                endpoint.board.unuse(self._token_meter)
            for middleware, _ in self._made.shared:
                endpoint.board.unuse(middleware)


def name_boards(tree: Any, boards: dict[str, InProcessServer]) -> Any:
    """A configuration with names in place of the boards in it, which are added to `boards`."""
    if isinstance(tree, Mapping):
        return {key: name_boards(value, boards) for key, value in tree.items()}
    if isinstance(tree, Hosted):
        name = f"(board {len(boards) + 1})"
        boards[name] = tree
        return name
    return tree
