"""The Gateway: many servers as one board."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from pegboard import __version__
from pegboard.call import Around, Change, Handler, Json
from pegboard.client.direct import Served
from pegboard.execution.hooks import Middleware
from pegboard.gateway.attaching import Made
from pegboard.gateway.configuration.config import MAIN, GatewayConfig, Mode, ServerConfig, ToolboxConfig, read_config
from pegboard.gateway.configuration.mistakes import hide
from pegboard.gateway.configuration.watch import Watch, compare
from pegboard.gateway.endpoint import Endpoint
from pegboard.gateway.nesting import mark_within
from pegboard.gateway.offers import Offers
from pegboard.gateway.passage.destination import Destination
from pegboard.gateway.passage.passage import Passage
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.local import LocalBoard
from pegboard.gateway.servers.logins import Logins, token_storage
from pegboard.gateway.trust.discretion import Discretion
from pegboard.gateway.trust.pin_watch import watch_pins
from pegboard.gateway.trust.pins import Pins, read_pins
from pegboard.gateway.trust.scanner import Scanner
from pegboard.gateway.withheld import withhold
from pegboard.hosting import Hosted
from pegboard.limits import Limits
from pegboard.seal import read_keys
from pegboard.stores.corner import corner
from pegboard.stores.crew import Shared
from pegboard.stores.keys import common_key

_log = logging.getLogger("pegboard.gateway")

_STOP_SECONDS: Final = 5.0

Key = tuple[str, str]
"""A toolbox, and a server in it."""


class Gateway(Hosted):
    """Serves the tools, resources and prompts of many servers at one endpoint, and each toolbox at its own.

    `config` is a file or what was read from one; `boards` are boards of this process by the names that entries of kind
    `board` use for them. What middleware is put around is the same for local and downstream tools.
    """

    _started = False

    def __init__(
        self,
        config: GatewayConfig | str | Path,
        *,
        mode: Mode | None = None,
        watch: bool = False,
        limits: Limits | None = None,
        environ: Mapping[str, str] | None = None,
        boards: Mapping[str, Served] | None = None,
        logins: Logins | None = None,
    ) -> None:
        """`mode` goes before that of the file; `watch` takes over edits of the file while it is served."""
        self._environ = os.environ if environ is None else environ
        self._mode = mode
        self.config = self._told(config if isinstance(config, GatewayConfig) else read_config(config, self._environ))
        self._marks = mark_within(self.config.path, self._environ)
        self._discretion = Discretion()
        self._discretion.learn(self.config.secrets)
        self.limits = limits or Limits()
        self._boards = boards or {}
        self._logins = logins or Logins(token_storage())
        self._watches = watch
        self._tasks: set[asyncio.Task[None]] = set()
        self._followed: WeakKeyDictionary[Downstream, dict[Endpoint, frozenset[str]]] = WeakKeyDictionary()
        self._secret = os.environ.get("PEGBOARD_SECRET")
        self.passage = Passage(self.config.name, read_keys(self._secret), self._find)
        self._downstreams: dict[Key, Downstream] = {}
        self._offers: dict[Key, Offers] = {}
        self._noted: set[str] = set()
        self._rearranging: asyncio.Handle | None = None
        self._shared: Shared | None = None
        self._made = Made(self.config)
        self._used: list[tuple[tuple[Middleware | Around, ...], dict[str, Any]]] = []
        self._pins = read_pins(self.config)
        self._scanner = Scanner()
        self.main = Endpoint(MAIN, self.config, self.config.toolboxes, self.limits, self.passage, self._follow)
        self._toolboxes: dict[str, Endpoint] = {}
        self.places: Mapping[str, Handler] = Places(self._toolboxes)
        self._take_up(self.config, frozenset())
        self._attach()

    def _told(self, config: GatewayConfig) -> GatewayConfig:
        return config if self._mode is None else replace(config, mode=self._mode)

    # -- what is served ------------------------------------------------------------------------------------------------

    @property
    def info(self) -> Mapping[str, Json]:
        """Who this server is, as clients are told."""
        return {"name": self.config.name, "version": __version__}

    @property
    def handler(self) -> Handler:
        """The gateway as a Handler: everything at once."""
        return self.main.handler

    @property
    def downstreams(self) -> Sequence[Downstream]:
        """The servers, in the order of the configuration."""
        return tuple(self._downstreams.values())

    @property
    def pinned(self) -> bool:
        """Whether what servers say of their tools is compared with what was accepted."""
        return self.config.lock == "off" or not self._pins.is_empty

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return (self.main, *self._toolboxes.values())

    def use(
        self,
        *middleware: Middleware | Around,
        toolbox: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tool: str | Iterable[str] | None = None,
        order: float | None = None,
    ) -> None:
        """Put middleware around the calls of all tools, or of a toolbox, a category, a tag or named tools."""
        scope: dict[str, Any] = {"toolbox": toolbox, "category": category, "tag": tag, "tool": tool, "order": order}
        for endpoint in self.endpoints:
            endpoint.board.use(*middleware, **scope)
        # For the toolboxes that an edit of the configuration adds.
        self._used.append((middleware, scope))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, shared: Shared | None = None) -> None:
        """Begin to connect the servers, all at once; whoever lists before they have answered waits for a moment."""
        if self._started:
            return
        self._started = True
        self._discretion.begin()
        self._shared = shared
        for warning in self.config.warnings:
            self._note(f"{self.config.path}: {warning}")
        if shared is not None:
            self.passage.share(shared)
            if not self._secret:
                key = await common_key(shared.store.records, f"{self.config.name}:passage")
                for seal in self.passage.seals:
                    seal.prefer(key)
        await self.main.start(shared)
        for name, endpoint in self._toolboxes.items():
            await self._start_endpoint(name, endpoint)
        for downstream in self._downstreams.values():
            downstream.start()
        self._rearrange()
        if self._watches:
            edits = Watch(self.config, self.reload, environ=self._environ)
            self.hold(asyncio.create_task(edits.run()))
            self.hold(asyncio.create_task(watch_pins(lambda: self.config, self._take_pins)))

    def _take_pins(self, pins: Pins) -> None:
        """Let through what was accepted while we serve."""
        self._pins = pins
        for endpoint in self.endpoints:
            endpoint.stale = True
        self._rearrange()

    def hold(self, task: asyncio.Task[None]) -> None:
        """Keep a task while the gateway is served; it ends with it at the latest."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, seconds: float | None = None, *, lazy: bool = False) -> None:
        """Wait until every server has answered or failed for the first time, or time is up; `lazy` ones only if told."""
        wanted = [one for one in self._downstreams.values() if lazy or not one.config.lazy]
        waits = [asyncio.ensure_future(one.settled()) for one in wanted]
        if waits:
            await asyncio.wait(waits, timeout=seconds)
        for wait in waits:
            wait.cancel()
        # What they have said is shown from the next turn of the loop on.
        await asyncio.sleep(0)

    async def _start_endpoint(self, name: str, endpoint: Endpoint) -> None:
        await endpoint.start(None if self._shared is None else corner(self._shared, f"/toolboxes/{name}"))

    async def stop(self) -> None:
        """End the parked calls, then the servers, then the boards."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._rearranging is not None:
            self._rearranging.cancel()
            self._rearranging = None
        await self.passage.close()
        await _stop_all(self._downstreams.values())
        for endpoint in self.endpoints:
            await endpoint.stop()
        self._discretion.end()
        self._started = False

    def __del__(self) -> None:
        if self._started:
            warnings.warn(f"unclosed gateway {self.config.name!r}", ResourceWarning, source=self, stacklevel=2)

    async def reload(self, _before: GatewayConfig, config: GatewayConfig) -> None:
        """Serve another configuration: what is not in it ends, what is new or changed connects, the rest goes on."""
        config = self._told(config)
        self._discretion.learn(config.secrets)
        changes = compare(self.config, config)
        # What can fail comes first: an edit is taken over whole or not at all.
        pins, made = read_pins(config), Made(config)
        self._detach()
        self.config, self._pins, self._made = config, pins, made
        ended = self._take_up(config, frozenset(changes.changed))
        self._attach()
        if self._started:
            for downstream in self._downstreams.values():
                downstream.start()
        self._rearrange()
        await _stop_all(ended)

    def _take_up(self, config: GatewayConfig, changed: frozenset[Key]) -> list[Downstream]:
        """Have a Downstream for each server and an endpoint for each toolbox; those that are not needed any more."""
        wanted = {
            (toolbox.name, server.name): (toolbox, server)
            for toolbox in config.toolboxes.values()
            for server in toolbox.servers.values()
            if server.enabled
        }
        before, self._downstreams = self._downstreams, {}
        for key, (toolbox, server) in wanted.items():
            if key in before and key not in changed:
                self._downstreams[key] = before.pop(key)
                self._downstreams[key].config = server
            else:
                self._downstreams[key] = self._make(toolbox.name, server)
        self._offers.clear()
        self.main.reconfigure(config, config.toolboxes)
        for name in [name for name in self._toolboxes if name not in config.toolboxes]:
            del self._toolboxes[name]
        for name, toolbox in config.toolboxes.items():
            self._take_up_toolbox(config, name, toolbox)
        return list(before.values())

    def _take_up_toolbox(self, config: GatewayConfig, name: str, toolbox: ToolboxConfig) -> None:
        endpoint = self._toolboxes.get(name)
        if endpoint is not None:
            endpoint.reconfigure(config, {name: toolbox})
            return
        endpoint = self._toolboxes[name] = Endpoint(
            name, config, {name: toolbox}, self.limits, self.passage, self._follow
        )
        for middleware, scope in self._used:
            endpoint.board.use(*middleware, **scope)
        if self._started:
            self.hold(asyncio.get_running_loop().create_task(self._start_endpoint(name, endpoint)))

    def _make(self, toolbox: str, server: ServerConfig) -> Downstream:
        board: Served | None = None
        if server.kind == "board":
            board = self._boards.get(server.board) or LocalBoard(server.board)
        return Downstream(
            toolbox,
            server,
            on_change=self._changed,
            on_updated=self._updated,
            login=self._logins.auth,
            board=board,
            marks=self._marks,
        )

    # -- changes ---------------------------------------------------------------------------------------------------------

    def _changed(self, _downstream: Downstream) -> None:
        """A server has other things to offer, or another state; many at once are looked at once."""
        if self._rearranging is None:
            self._rearranging = asyncio.get_running_loop().call_soon(self._rearrange)

    def _updated(self, downstream: Downstream, uri: str) -> None:
        offers = self._offers.get((downstream.toolbox, downstream.name))
        if offers is not None:
            for endpoint in self._showing(downstream.toolbox):
                endpoint.board.changes.publish(Change("updated", offers.addresses.here(uri)))

    def _follow(self, endpoint: Endpoint, downstream: Downstream, uris: frozenset[str]) -> None:
        """Resources are followed at several endpoints; their server is told of all of them."""
        followed = self._followed.setdefault(downstream, {})
        if followed.get(endpoint, frozenset()) != uris:
            followed[endpoint] = uris
            downstream.follow(frozenset().union(*followed.values()))

    def _showing(self, toolbox: str) -> Iterator[Endpoint]:
        yield self.main
        if toolbox in self._toolboxes:
            yield self._toolboxes[toolbox]

    def _rearrange(self) -> None:
        self._rearranging = None
        changed: set[str] = set()
        for key, downstream in self._downstreams.items():
            offers = self._offers.get(key)
            if offers is None or offers.catalogue is not downstream.catalogue:
                self._offers[key] = self._read_offers(downstream)
                changed.add(downstream.toolbox)
        for endpoint in self.endpoints:
            shown = [offers for key, offers in self._offers.items() if key[0] in endpoint.toolbox_names]
            if changed & endpoint.toolbox_names or endpoint.stale:
                endpoint.arrange(shown, withhold(shown, self._pins))
            else:
                endpoint.refresh()
        self._tell_notes()
        if changed and self.config.lock != "off":
            self.hold(asyncio.get_running_loop().create_task(self._scan()))

    def _read_offers(self, downstream: Downstream) -> Offers:
        toolbox = self.config.toolboxes[downstream.toolbox]
        middleware = self._made.own.get((toolbox.name, downstream.name), ())
        return Offers(downstream, toolbox, self.passage, middleware, self.limits.result_bytes)

    async def _scan(self) -> None:
        """Tell what a person should look at in what servers say of themselves."""
        catalogues = {key: offers.catalogue for key, offers in self._offers.items() if offers.catalogue is not None}
        for found in await self._scanner.scan_all(catalogues, self._pins):
            self._note(found)

    def _tell_notes(self) -> None:
        """Log what was left out, and why, once."""
        for offers in self._offers.values():
            for note in offers.notes:
                self._note(note)

    def _note(self, note: str) -> None:
        if note not in self._noted:
            self._noted.add(note)
            _log.warning("%s", hide(note, self.config.secrets))

    def _find(self, toolbox: str, server: str, tool: str) -> Destination | None:
        """Where a call that was interrupted by a question goes on."""
        offers = self._offers.get((toolbox, server))
        if offers is None:
            return None
        return offers.destinations.get(tool) if tool else offers.anything

    # -- middleware of the configuration ---------------------------------------------------------------------------------

    def _attach(self) -> None:
        for endpoint in self.endpoints:
            for middleware, toolbox in self._made.shared:
                endpoint.board.use(middleware, toolbox=toolbox)

    def _detach(self) -> None:
        for endpoint in self.endpoints:
            for middleware, _ in self._made.shared:
                endpoint.board.unuse(middleware)


class Places(Mapping[str, Handler]):
    """The toolboxes as places of their own, as they come and go."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints

    def __getitem__(self, name: str) -> Handler:
        return self._endpoints[name].handler

    def __iter__(self) -> Iterator[str]:
        return iter(self._endpoints)

    def __len__(self) -> int:
        return len(self._endpoints)


async def _stop_all(downstreams: Iterable[Downstream]) -> None:
    ending = [asyncio.ensure_future(one.stop()) for one in downstreams]
    if ending:
        await asyncio.wait(ending, timeout=_STOP_SECONDS)
