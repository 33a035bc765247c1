"""One endpoint of a gateway: a board with the tools of its toolboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pegboard import __version__
from pegboard.accounts.accounts import Accounts
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.principal import Principal
from pegboard.board import Board
from pegboard.bounded_dict import BoundedDict
from pegboard.call import Call, Caller, EncodedResult, Handler, Json, Reply
from pegboard.catalog.caching import Caching
from pegboard.catalog.instructions_template import InstructionsTemplate
from pegboard.catalog.pagination import ShownLists
from pegboard.catalog.resource import Resource
from pegboard.config.gateway_config import (
    INSTRUCTION_VARIABLES,
    MAIN,
    EndpointConfig,
    GatewayConfig,
    ToolboxConfig,
)
from pegboard.errors import DeclarationError, PegboardError, ResourceNotFound, UnknownTool
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.modes.meta_tool_host import ServerStatus, Toolbox, Visibility
from pegboard.gateway.modes.meta_tools import META_NAMES, MetaTools
from pegboard.gateway.modes.mode_choice import ModeCosts
from pegboard.gateway.modes.opened_toolboxes import OpenedToolboxes
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.gateway.offers import Offers
from pegboard.gateway.servers.downstream import Downstream
from pegboard.gateway.servers.missing_tools import unavailable_tool, unknown_plain_tool, withheld_tool
from pegboard.gateway.uri_rewriter import unwrap_uri
from pegboard.gateway.withheld import WithheldDefinitions
from pegboard.limits import Limits
from pegboard.protocol.revisions import TASKS
from pegboard.rules.rule import Item, Rule
from pegboard.rules.verdicts import VIEWS_KEPT, Rules, View
from pegboard.stores.cluster import SharedStore
from pegboard.tools.qualified_names import ToolName, explain_unknown, parse_name, serve_names
from pegboard.tools.tool import Tool

SERVERS: Final = "dev.pegboard/servers"
"""The key under which a list names unavailable servers."""

_TEMPLATE_WITHHELD: Final = (
    "resource templates of its server are withheld; the operator of this gateway can review and accept them"
)
_EVERYTHING: Final = Visibility()
_AS_THE_REST: Final = EndpointConfig()
# What a shared cache may serve to others, and what not.
_SAME_FOR_ALL: Final = Caching(scope="public").hints()
_OF_ONE: Final = Caching(scope="private").hints()
_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_ABOUT_URIS: Final = frozenset({"resources/read", "resources/subscribe"})
_LISTS: Final = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})


class GatewayEndpoint:
    """A board for some toolboxes; the offers of its servers are added and removed as they change."""

    def __init__(
        self,
        name: str,
        config: GatewayConfig,
        toolboxes: Mapping[str, ToolboxConfig],
        limits: Limits,
        forwarder: Forwarder,
        follow: Callable[[GatewayEndpoint, Downstream, frozenset[str]], None],
        approvals: Approvals,
        accounts: Accounts,
    ) -> None:
        self._name = name
        self.board = Board(config.name if name == MAIN else f"{config.name}/{name}", version=__version__, limits=limits)
        self.board._use_approvals(approvals)
        self.board._use_accounts(accounts)
        self._dispatch = self.board.handler
        self._served: frozenset[str] = frozenset()
        self._forwarder = forwarder
        self._notify_followed = partial(follow, self)
        self.board.resources.expected = self.board.prompts.expected = True
        self.board.resources.elsewhere = self._route
        self.board.tools.explain_unknown = self._explain
        self.board.choose_tools(self._choose, self._choose_instructions, self._visible_tools)
        self.board.changes.on_uris_changed = self._uris_changed
        self._following: asyncio.Handle | None = None
        self._opened = OpenedToolboxes(limits.sessions)
        self.directory = Directory()
        self._offers: Mapping[tuple[str, str], Offers] = {}
        self._by_host: Mapping[tuple[str, str], Offers] = {}
        self._by_uri: dict[str, Offers] = {}
        self._places: Mapping[str, ToolName] = {}
        self._withheld: Mapping[ToolName, str] = {}
        self._without_instructions: Container[tuple[str, str]] = ()
        self._withheld_templates: Mapping[tuple[str, str], Container[str]] = {}
        self._lists: ShownLists[EncodedResult] = ShownLists()
        self._opens: BoundedDict[Visibility, bool] = BoundedDict(VIEWS_KEPT)
        self._instructions: BoundedDict[Visibility, str] = BoundedDict(VIEWS_KEPT)
        self._access = self.board._access
        self._ruled_by: tuple[Rule, ...] = ()
        self._statuses: tuple[Toolbox, ...] = ()
        self.reconfigure(config, toolboxes)

    def reconfigure(self, config: GatewayConfig, toolboxes: Mapping[str, ToolboxConfig]) -> None:
        """Switch to another configuration of the same endpoint."""
        self._toolboxes = toolboxes
        self.toolbox_names = frozenset(toolboxes)
        self.stale = True
        self._plain = frozenset(name for name, principal in toolboxes.items() if principal.names == "plain")
        own = config.endpoints.get(self._name, _AS_THE_REST)
        self._budget = own.name_budget or config.name_budget
        self._modes = {
            name: principal.mode for name, principal in config.principals.items() if principal.mode is not None
        }
        if config.rules != self._ruled_by:
            self._ruled_by = config.rules
            self.board._replace_rules(Rules(config.rules, located=True))
        self._list_wait = config.list_wait
        self._template = InstructionsTemplate(config.instructions or "{{toolboxes}}", INSTRUCTION_VARIABLES)
        self._meta = MetaTools(self, config.mode, config.auto_tokens, own.mode)
        self.refresh()

    @property
    def handler(self) -> Handler:
        """The endpoint as a Handler."""
        return self._handle

    @property
    def downstreams(self) -> Sequence[Downstream]:
        return [offers.downstream for offers in self._offers.values()]

    def _handle(self, call: Call) -> Coroutine[Any, Any, Reply]:
        method = call.method
        if method == "tools/call":
            if call.name not in self._served or (self._access.restricted and self._hides(call)):
                return self._call_unlisted(call)
            return self._dispatch(call)
        if method in _TASKS and (self._takes_tasks or self._forwarder.owns(call.name)):
            return self._forwarder.task(call)
        if method in _ABOUT_URIS:
            return self._answer_about_uri(call)
        if method in _LISTS and self._waits_for_servers(method):
            return self._answer_when_connected(call, self.downstreams, self._list_wait)
        return self._dispatch(call)

    def _hides(self, call: Call) -> bool:
        """Whether the tool does not exist for the caller."""
        view, tool = self._view(call.caller), self.board.tools.get(call.name)
        return view is not None and tool is not None and view.of(tool).effect == "hide"

    def _hides_uri(self, call: Call) -> bool:
        """Whether the resource does not exist for the caller."""
        view = self._view(call.caller)
        if view is None:
            return False
        try:
            return self.board.resources.find(call.name)[0].verdict(call.name, view).effect == "hide"
        except ResourceNotFound:
            return False

    def _view(self, caller: Caller) -> View | None:
        return self._access.view(caller.principal)

    def _call_unlisted(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """A client may call a known tool without listing it: its server may still be connecting."""
        place = parse_name(call.name)
        owner = None if place is None else self._offers.get((place.toolbox, place.server))
        if owner is not None:
            waited = [owner.downstream]
        else:
            # A name without a server may belong to any of them.
            waited = [
                downstream for downstream in self.downstreams if place is None or downstream.toolbox in self._plain
            ]
        waited = [downstream for downstream in waited if downstream.pending]
        return self._answer_when_connected(call, waited, None) if waited else self._dispatch(call)

    def _waits_for_servers(self, method: str) -> bool:
        if method == "tools/list" and not self._meta.shows_tools:
            return False
        return any(downstream.pending for downstream in self.downstreams)

    def _answer_about_uri(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Answer once the offers of the URI's server are known, if it has to be found or they have to be accepted."""
        owner = self._owner(call.name, is_listed=not (self._access.restricted and self._hides_uri(call)))
        waited: Sequence[Downstream] = ()
        if owner is None:
            # A URI without a server may belong to any of them.
            waited = [
                downstream
                for downstream in self.downstreams
                if downstream.pending and downstream.toolbox in self._plain
            ]
        elif owner.downstream.pending and owner.place in self._withheld_templates:
            waited = [owner.downstream]
        return self._answer_when_connected(call, waited, None) if waited else self._dispatch(call)

    def _uris_changed(self) -> None:
        """Subscriptions changed: notify the servers, once for many changes."""
        if self._following is None:
            self._following = asyncio.get_running_loop().call_soon(self._follow)

    def _follow(self) -> None:
        self._following = None
        followed = self.board.changes.followed()
        wanted: dict[tuple[str, str], set[str]] = {}
        for uri in followed:
            owner = self._owner(uri)
            if owner is not None and self._may_read(uri, owner):
                wanted.setdefault(owner.place, set()).add(owner.addresses.to_server(uri))
        for place, offers in self._offers.items():
            self._notify_followed(offers.downstream, frozenset(wanted.get(place, ())))

    async def _answer_when_connected(self, call: Call, waited: Sequence[Downstream], seconds: float | None) -> Reply:
        """Answer once these servers have connected for the first time, or have failed."""
        await self._wait_connected(waited, seconds)
        # Their offers are published in the next turn of the loop.
        await asyncio.sleep(0)
        return await self._dispatch(call)

    # -- what there is -----------------------------------------------------------------------------------------------

    def replace_all(self, offers: Sequence[Offers], withheld: WithheldDefinitions) -> None:
        """Publish the offers of these servers, and notify subscribers if they changed."""
        self._offers = {server_offers.place: server_offers for server_offers in offers}
        # The host of a URI is lower-case.
        self._by_host = {
            (toolbox.lower(), server.lower()): server_offers
            for (toolbox, server), server_offers in self._offers.items()
        }
        self.stale = False
        listed = [
            (server_offers, offer)
            for server_offers in offers
            for offer in server_offers.tools
            if offer.place not in withheld.tools
        ]
        names = self._serve(offer.place for _, offer in listed)
        tools: list[Tool] = []
        entries: list[DirectoryEntry] = []
        for owner, offer in listed:
            try:
                tool = offer.under(names[offer.place])
            except DeclarationError as problem:
                owner.notes.append(f"a tool is left out: {problem}")
                continue
            tools.append(tool)
            entries.append(DirectoryEntry(tool.name, offer.place, tool.definition(), offer.tags, tool))
        before = self._listed()
        self.directory = Directory(entries)
        self._places = {entry.name: entry.place for entry in entries}
        self._withheld = withheld.tools
        self._without_instructions = withheld.instructions
        self._forget_lists()
        tools += self._meta.tools
        if any(tool.scopes for tool in tools):
            self._access.require_scopes()
        self.board.tools.replace_all(tools, tell=before != self._listed())
        self._served = frozenset(tool.name for tool in tools)
        self._arrange_prompts(offers, withheld.prompts)
        self._withheld_templates = withheld.templates
        self._arrange_resources(offers)
        if self.board.changes.followed():
            self._uris_changed()
        self.refresh()

    def refresh(self) -> None:
        """A server changed its state, which lists report."""
        self._forget_lists()
        self._statuses = tuple(self._status(toolbox) for toolbox in self._toolboxes.values())
        extensions = self._extensions()
        self._takes_tasks = TASKS in extensions
        self.board._add_capabilities({"extensions": extensions} if extensions else {})

    def _forget_lists(self) -> None:
        self._lists = ShownLists()
        self._opens.clear()
        self._instructions.clear()

    def _extensions(self) -> Mapping[str, Json]:
        """Capabilities of servers beyond the protocol are passed on unchanged."""
        extensions: dict[str, Json] = {}
        for offer in self._offers.values():
            declared = {} if offer.catalog is None else offer.catalog.capabilities.get("extensions")
            if isinstance(declared, Mapping):
                extensions = {**declared, **extensions}
        return extensions

    def _serve(self, places: Iterable[ToolName], reserved: Collection[str] = META_NAMES) -> dict[ToolName, str]:
        return serve_names(places, plain=self._plain, reserved=reserved, budget=self._budget)

    def _arrange_prompts(self, offers: Sequence[Offers], withheld: Container[ToolName]) -> None:
        offered = [offer for server_offers in offers for offer in server_offers.prompts if offer.place not in withheld]
        names = self._serve((offer.place for offer in offered), ())
        prompts = [offer.under(names[offer.place]) for offer in offered]
        if any(prompt.item.scopes for prompt in prompts):
            self._access.require_scopes()
        self.board.prompts.replace_all(prompts)

    def _arrange_resources(self, offers: Sequence[Offers]) -> None:
        taken: set[str] = set()
        resources: list[Resource] = []
        self._by_uri = {}
        for server_offers in offers:
            withheld = self._withheld_templates.get(server_offers.place, ())
            for resource in server_offers.resources:
                if resource.template is not None and resource.uri in withheld:
                    continue
                # If two have one URI, the second is listed under its server's.
                shown = server_offers.qualified(resource) if resource.uri in taken else resource
                taken.add(shown.uri)
                resources.append(shown)
                self._by_uri.setdefault(shown.uri, server_offers)
        if any(resource.item.scopes for resource in resources):
            self._access.require_scopes()
        self.board.resources.replace_all(resources)

    def _route(self, uri: str) -> Resource | None:
        """The server behind an unlisted URI.

        A server with a withheld template gets no request for such a URI: only the server knows which of its URIs belong
        to that template.
        """
        owner = self._owner(uri)
        if owner is None:
            return None
        if owner.place in self._withheld_templates:
            raise ResourceNotFound(uri, _TEMPLATE_WITHHELD)
        return owner.unlisted(uri)

    def _may_read(self, uri: str, owner: Offers) -> bool:
        if owner.place in self._withheld_templates:
            try:
                self.board.resources.find(uri)
            except ResourceNotFound:
                return False
        return True

    def _owner(self, uri: str, *, is_listed: bool = True) -> Offers | None:
        """The owner of a resource, listed or not."""
        found = unwrap_uri(uri)
        if found is not None:
            return self._by_host.get((found[0], found[1]))
        listed = self._by_uri.get(uri) if is_listed else None
        if is_listed and listed is None and (template := self.board.resources.match(uri)) is not None:
            listed = self._by_uri.get(template[0].uri)
        if listed is not None:
            return listed
        plain = [offer for offer in self._offers.values() if offer.serves_resources and offer.plain]
        return plain[0] if len(plain) == 1 else None

    def _explain(self, name: str, view: View | None) -> PegboardError:
        withheld, places, downstreams = self._withheld, self._places, self.downstreams
        toolboxes = {downstream.name: list(downstream.servers) for downstream in self._toolboxes.values()}
        if view is not None:
            # A caller learns nothing about what it does not see.
            withheld = {place: reason for place, reason in withheld.items() if view.verdict(_item_at(place)).listed}
            places = {entry.name: entry.place for entry in self.directory if view.of(entry.tool).listed}
            downstreams = [
                downstream for downstream in downstreams if view.may_see(downstream.toolbox, downstream.name)
            ]
            toolboxes = {
                toolbox: [server for server in servers if view.may_see(toolbox, server)]
                for toolbox, servers in toolboxes.items()
                if view.may_see(toolbox)
            }
        if reason := withheld_tool(name, withheld, self._toolboxes):
            return UnknownTool(f"Tool '{name}' is withheld: {reason}")
        if unavailable := unavailable_tool(name, downstreams):
            return unavailable
        place = parse_name(name)
        if self._plain and (place is None or place.toolbox not in toolboxes):
            close = [known for known in self.board.tools.suggest(name, view) if known in places]
            plain = [downstream for downstream in downstreams if downstream.toolbox in self._plain]
            return unknown_plain_tool(name, close, plain)
        return UnknownTool(explain_unknown(name, places, toolboxes))

    # -- what is listed ----------------------------------------------------------------------------------------------

    def _listed(self) -> Any:
        """The list of a client that has opened everything: if it changes, some client sees a change."""
        return self._meta.listed(_EVERYTHING, self.toolbox_names)

    async def _choose(self, call: Call) -> EncodedResult:
        access = self.visibility(call.caller)
        if access not in self._opens:
            self._opens[access] = "dynamic" in self._meta.modes(access).values()
        # If nothing can be opened, all sessions see the same list, without a lookup.
        opened = await self.opened(call.caller) if self._opens[access] else None
        return self._lists.get((access, opened)) or self._list(access, opened)

    def _list(self, access: Visibility, opened: frozenset[str] | None) -> EncodedResult:
        tools, down = self._meta.listed(access, opened), self._down(access)
        is_same_for_all = opened is None and not self._modes and not self._access.restricted
        listing: dict[str, Json] = {"tools": tools, **(_SAME_FOR_ALL if is_same_for_all else _OF_ONE)}
        if down:
            listing["_meta"] = {SERVERS: down}
        content = (*(tool["name"] for tool in tools), None, *down)
        return self._lists.add((access, opened), content, lambda: EncodedResult(listing))

    def _visible_tools(self, view: View, principal: Principal) -> Iterable[Mapping[str, Json]]:
        """What a caller sees that has opened everything."""
        return self._meta.listed(Visibility(view, self._modes.get(principal.id)), self.toolbox_names)

    def _choose_instructions(self, call: Call) -> str:
        access = self.visibility(call.caller)
        written = self._instructions.get(access)
        if written is None:
            variables = {"name": self.board.name, "toolboxes": self._meta.instructions(access)}
            tools = [entry.definition for entry in self.directory if access.admits(entry)]
            written = self._instructions[access] = self._template.render(tools, variables)
        return written

    def _down(self, access: Visibility) -> dict[str, Json]:
        """The servers that are not ready; a list without their tools says so."""
        return {
            f"{toolbox.name}/{server.name}": {"state": server.state}
            | ({"problem": server.problem} if server.problem else {})
            for toolbox in self._statuses
            for server in toolbox.servers
            if (server.problem or server.state == "connecting") and access.admits_server(toolbox.name, server.name)
        }

    # -- for the meta-tools (MetaToolHost)
    # -------------------------------------------------------------------------------

    @property
    def toolboxes(self) -> Sequence[Toolbox]:
        return self._statuses

    def _status(self, toolbox: ToolboxConfig) -> Toolbox:
        servers = []
        for name in toolbox.servers:
            offers = self._offers.get((toolbox.name, name))
            if offers is None:
                servers.append(ServerStatus(name, "idle" if toolbox.servers[name].enabled else "stopped"))
                continue
            downstream = offers.downstream
            withheld = downstream.catalog is None or offers.place in self._without_instructions
            instructions = None if withheld or downstream.catalog is None else downstream.catalog.instructions
            servers.append(ServerStatus(name, downstream.state, downstream.describe_problem, instructions or ""))
        return Toolbox(toolbox.name, toolbox.description, tuple(servers), toolbox.mode)

    def visibility(self, caller: Caller) -> Visibility:
        mode = self._modes.get(caller.principal.id) if caller.principal.id else None
        return _EVERYTHING if mode is None and not self._access.restricted else Visibility(self._view(caller), mode)

    async def wait_connected(self, toolbox: str | None) -> None:
        if toolbox is None:
            wanted = [
                downstream for downstream in self.downstreams if downstream.pending and not downstream.config.lazy
            ]
        else:
            wanted = [downstream for downstream in self.downstreams if downstream.toolbox == toolbox]
        if wanted:
            await self._wait_connected(wanted, None)
            # Their offers are published in the next turn of the loop.
            await asyncio.sleep(0)

    async def _wait_connected(self, downstreams: Sequence[Downstream], seconds: float | None) -> None:
        waits = [asyncio.ensure_future(downstream.wait_connected()) for downstream in downstreams]
        if not waits:
            return
        try:
            await asyncio.wait(waits, timeout=seconds)
        finally:
            for wait in waits:
                wait.cancel()

    def call(self, call: Call) -> Coroutine[Any, Any, Reply]:
        return self._dispatch(call)

    async def opened(self, caller: Caller) -> frozenset[str] | None:
        await self._opened.recall(caller)
        return self._opened.of(caller)

    async def change_opened(self, caller: Caller, opened: frozenset[str]) -> None:
        await self._opened.change(caller, opened)

    def costs(self) -> ModeCosts:
        """The cost of each mode for a model."""
        return self._meta.costs()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, shared: SharedStore | None = None) -> None:
        await self.board.start(shared)
        if shared is not None:
            self._opened.use_store(shared.store.records)

    async def stop(self) -> None:
        await self.board.stop()


def _item_at(place: ToolName) -> Item:
    return Item(kind="tool", toolbox=place.toolbox, server=place.server, name=place.tool)
