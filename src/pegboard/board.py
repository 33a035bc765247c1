"""The Board: puts its parts together, and serves them as one Handler."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from pegboard import auth as authentication
from pegboard import config, middleware, server
from pegboard.accounts.accounts import Accounts
from pegboard.accounts.quota import Quotas
from pegboard.approvals.approval_store import Approvals
from pegboard.asking.rounds import UsedTickets
from pegboard.boards.board_content import BoardContent
from pegboard.boards.board_lifetime import BoardLifetime
from pegboard.boards.handler_chains import HandlerChains
from pegboard.boards.mounts import Mount
from pegboard.call import Call, Caller, Change, EncodedResult, Handler, Json, Reply
from pegboard.catalog.caching import Caching
from pegboard.catalog.instructions_template import InstructionsTemplate, read_instructions
from pegboard.errors import DeclarationError, SetupError
from pegboard.execution.call_resources import CallResources
from pegboard.execution.catalog_methods import CatalogMethods
from pegboard.execution.debug_mode import DebugMode
from pegboard.execution.dispatch import Dispatcher
from pegboard.execution.run import Runner
from pegboard.execution.threads import Threads
from pegboard.execution.tool_conditions import add_preconditions
from pegboard.execution.visible_changes import Shown
from pegboard.hooks.middleware import Middleware
from pegboard.limits import Limits
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink
from pegboard.protocol.json_values import objects_in
from pegboard.rules.rule import Rule
from pegboard.rules.verdicts import Rules
from pegboard.schema.plain_json import encode
from pegboard.security.seal import Seal, read_keys
from pegboard.server.hosting import Hosted
from pegboard.stores.cluster import SharedStore
from pegboard.stores.memory import MemoryRecords
from pegboard.stores.shared_key import shared_key
from pegboard.subscriptions.change_feed import ChangeFeed
from pegboard.subscriptions.change_log import ListenMethod
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tasks.task_store import TaskStore
from pegboard.tools.tool import Icons, Tool, read_icons
from pegboard.tools.tool_result import RepairNotes


class Board(BoardContent, Hosted):
    """An MCP server: tools, resources, prompts and middleware behind one endpoint."""

    places: None = None
    debug_mode: DebugMode

    def __init__(
        self,
        name: str = "pegboard",
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        icons: Icons = (),
        website_url: str | None = None,
        instructions: str | Path | None = None,
        arguments: Literal["lenient", "strict"] = "lenient",
        repair_notes: RepairNotes = "text",
        auth: authentication.Auth | None = None,
        limits: Limits | None = None,
        quotas: Quotas | None = None,
        page_size: int = 1000,
        ttl_ms: int = 0,
        rules: Iterable[Rule | Mapping[str, Json]] = (),
        debug: bool = False,
    ) -> None:
        """Create an empty board.

        name: the name that clients see.
        version: the version of your server.
        title: the name for people.
        description: what your server is for, for people.
        icons: URLs of its icons, or icons as in the protocol.
        website_url: the address of its website.
        instructions: how a model should use this server: a text, or the path of a file with it; it may contain tags such as
            `{{tools}}` (docs/tools.md).
        arguments: "lenient" repairs arguments that have one clear reading; "strict" rejects them.
        repair_notes: where results report the repairs of arguments: "text" in a block for the model and in `_meta`,
            "meta" in `_meta` alone, "off" nowhere.
        auth: which credentials callers need over HTTP (docs/security.md); without it, all callers are anonymous.
        limits: sizes, counts and times (docs/limits.md).
        quotas: what each caller may use: for everyone, by role, by principal (docs/limits.md#quotas).
        page_size: items on one page of a list.
        ttl_ms: how long clients may cache the lists, in milliseconds; with 0 they request them each time.
        rules: what each caller may see and use (docs/rules.md); without rules, everything.
        debug: whether callers on this machine see the exceptions of tools that fail (docs/serving.md).
        """
        if page_size < 1:
            raise DeclarationError(f"page_size={page_size}: must be at least 1")
        if arguments not in ("lenient", "strict"):
            raise DeclarationError(f"arguments={arguments!r}; use 'lenient' or 'strict'")
        if repair_notes not in get_args(RepairNotes):
            raise DeclarationError(f"repair_notes={repair_notes!r}; use 'text', 'meta' or 'off'")
        self.name = name
        self.version = str(version)
        self.auth = auth
        super().__init__(limits or Limits(), Rules(() if rules == () else config.read_rules(rules)))
        self.accounts = Accounts(self.limits, quotas)
        self.debug_mode = DebugMode(on=debug)
        shown = {
            "name": name,
            "version": self.version,
            "title": title,
            "description": description,
            "icons": list(read_icons(icons)),
            "websiteUrl": website_url,
        }
        self._info = {member: value for member, value in shown.items() if value}
        self._threads = Threads(self.limits.threads, self.limits.thread_queue, self.limits.threads_asking)
        self.mounts: list[Mount] = []
        secret = os.environ.get("PEGBOARD_SECRET")
        keys = read_keys(secret)
        self.lifetime = BoardLifetime(
            self,
            self._lifespans,
            self._lifecycle,
            self._threads,
            lambda: [mount.lifetime for mount in self.mounts],
            self._share_own,
        )
        call_resources = CallResources(
            tickets=Seal("requestState", keys, audience=name, secret=True),
            changes=self.changes,
            limits=self.limits,
            lifespan=MappingProxyType(self._lifespans.values),
            dispatch=self._dispatch,
        )
        runner = Runner(self.services, self._threads, arguments, self.limits, call_resources, repair_notes)
        records = MemoryRecords()
        self._tasks = TaskMethods(self.tools, TaskStore(records, self.limits, accounts=self.accounts), self.limits)
        self._used_tickets = UsedTickets(
            records,
            self.limits.used_tickets,
            self.limits.used_tickets_per_caller,
            self.limits.ticket_seconds,
        )
        self.approvals = Approvals(name, self.limits, find_audit=lambda: self.audit)
        self._owns_approvals = True
        self.chains = HandlerChains(
            self.tools,
            self._attached,
            self.mounts,
            runner,
            self._access,
            self.approvals,
            self._tasks,
            self.debug_mode,
            partial(add_preconditions, tickets=call_resources.tickets, used_tickets=self._used_tickets),
        )
        cursors = Seal("cursor", keys, audience=name)
        # A random key, until a store provides one that other processes share.
        self._sealed_alone = () if secret else (call_resources.tickets, cursors)
        lists = self.tools.caching = Caching(ttl_ms, "public")
        self._catalog_methods = CatalogMethods(
            self.resources,
            self.prompts,
            runner,
            cursors,
            page_size,
            self.limits,
            self.chains.around_item,
            lambda: self.tools.generation,
            self._access,
            lists,
        )
        # Registered after the list caches, so that they are cleared before a watcher reads the lists.
        self.tools._watch(partial(self._publish, Change("tools")))
        self.tools._watch_in_process(self._lifecycle.sync)
        self.tools._watch_in_process(self._find_scopes)
        for catalog, change in ((self.resources, Change("resources")), (self.prompts, Change("prompts"))):
            catalog._watch(partial(self._publish, change))
            catalog._watch(self._lifecycle.sync)
        listen = ListenMethod(
            self.changes,
            self._catalog_methods.capabilities,
            self.limits.subscribed_uris,
            self.limits.subscribed_uri_bytes,
            self._visible.filter_for,
        )
        if self.accounts.counts_tokens:
            self.use(import_module("pegboard.middleware.limits.token_meter").TokenMeter(self.accounts))
        self._feed: ChangeFeed | None = None
        self._dispatcher = Dispatcher(
            self.tools,
            self.chains.of_tool,
            self.chains.around_tool,
            self._access,
            None,
            self._catalog_methods,
            listen,
            self._tasks,
        )
        self.set_instructions(instructions)
        if self._access.rules.approve:
            self.serve_approvals()

    @cached_property
    def custom_routes(self) -> server.CustomRoutes:
        return server.CustomRoutes(MappingProxyType(self._lifespans.values), self._threads.run)

    @property
    def info(self) -> Mapping[str, Json]:
        """The name and version of this server, and what else clients see of it."""
        return self._info

    @property
    def handler(self) -> Handler:
        """The board as a Handler, which transports and clients call."""
        # The bound method itself: calling an object with `__call__` costs a type lookup each time.
        return self._dispatcher.__call__

    def set_instructions(self, instructions: str | Path | None) -> None:
        """Set the `instructions` that clients get from now on: a text with or without tags, or the path of a file."""
        text = read_instructions(instructions) if isinstance(instructions, Path) else instructions
        template = InstructionsTemplate(text or "", ("name", "version"))
        self._dispatcher.instructions = text and template.render((), {}) if template.is_plain else None

        def render(call: Call) -> str:
            listing = self.tools.listing(call.transport, self._access.view(call.caller.principal))
            return template.render(objects_in(listing.value["tools"]), {"name": self.name, "version": self.version})

        self._dispatcher.choose_instructions = None if template.is_plain else render

    def choose_tools(
        self,
        choose: Callable[[Call], Coroutine[Any, Any, EncodedResult]],
        choose_instructions: Callable[[Call], str | None] | None = None,
        visible: Shown | None = None,
    ) -> None:
        """Set the callback that chooses the tools each caller sees; tools that are not listed stay callable.

        choose_instructions: chooses the instructions of each caller, too.
        visible: what a caller sees at most: a change of it is a change of its list. For boards with rules.
        """
        self._dispatcher.choose_tools = choose
        self._dispatcher.choose_instructions = choose_instructions
        if visible is not None:
            self._visible.shown["tools"] = visible

    # -- composition -------------------------------------------------------------------------------------------------

    def mount(self, board: Board, prefix: str = "") -> None:
        """Serve the tools, prompts, resources and completions of another board here, too (docs/composition.md).

        They follow every later change of that board. Its middleware, services and lifespans apply to what is its own.

        board: the other board; it can still be served by itself.
        prefix: what their names begin with: `prefix.tool`, `scheme://prefix/…`; without it, names stay as they are.
        """
        if not isinstance(board, Board):
            raise DeclarationError(
                f"mount: expected a Board, got {board!r:.80}; use board.mount(other, 'prefix'), or board.remote(name, url) "
                "for a server"
            )
        if board.auth is not None or len(board._access.rules):
            raise DeclarationError(
                f"mount: {board.name!r} has {'auth' if board.auth is not None else 'rules'}, which would not apply here; "
                f"give them to {self.name!r}, which is served"
            )
        if self.lifetime.is_open:
            raise DeclarationError(f"mount: {self.name!r} is running; mount boards before it starts")
        self.mounts.append(Mount(self, board, prefix))

    def remote(self, name: str, server: str | Sequence[str] | Mapping[str, Any], *, prefix: str | None = None) -> None:
        """Serve what another MCP server offers here, too; it is connected when the board starts (docs/composition.md).

        A server that cannot be reached does not keep the board from starting; its tools appear once it is connected.

        name: the name of the server.
        server: its URL, the command that starts it as a list, or an entry with the keys of a gateway's file.
        prefix: what its names begin with; without it, the name of the server.
        """
        if self.lifetime.is_open:
            raise DeclarationError(f"remote: {self.name!r} is running; add servers before it starts")
        # The gateway's modules load only where there is a server.
        made = import_module("pegboard.gateway.remote_server").RemoteServer(name, server, self.limits)
        self.mounts.append(Mount(self, made.board, name if prefix is None else prefix, made, made.accepts))

    def end_session(self, caller: Caller, seconds: float) -> None:
        """A session has ended: connections of remote servers that were only for it end, too."""
        super().end_session(caller, seconds)
        for mount in self.mounts:
            mount.source.end_session(caller, seconds)

    def _dispatch(self, call: Call) -> Coroutine[Any, Any, Reply]:
        return self._dispatcher(call)

    @property
    def item_methods(self) -> Mapping[str, Handler]:
        """The methods for prompts, resources and completions."""
        return self._catalog_methods.methods

    def _add_completion(self, owner: str, argument: str, tool: Tool) -> None:
        self._catalog_methods.add_completion(owner, argument, tool)

    def _replace_rules(self, rules: Rules) -> None:
        """Use other rules from now on; subscribers whose lists change are notified."""
        self._access.replace(rules)
        self.tools._touch()
        self._catalog_methods.forget_lists()
        for change in (Change("tools"), Change("prompts"), Change("resources")):
            self._publish(change)

    def find_metrics(self) -> middleware.Metrics | None:
        """The middleware that measures calls of this board, if it has one."""
        return next((attached for attached in self._attached if isinstance(attached, middleware.Metrics)), None)

    @property
    def audit(self) -> AuditSink:
        """Where decisions about this board are recorded: its first Audit middleware, if it has one."""
        return self._attached.find(AuditSink) or NO_AUDIT

    def _add_capabilities(self, capabilities: Mapping[str, Json]) -> None:
        """Declare these capabilities to clients, in addition to those that follow from the content of the board."""
        self._dispatcher.declared = capabilities

    def _use_approvals(self, approvals: Approvals) -> None:
        """Share the approvals of a gateway, of which this board is an endpoint."""
        self.approvals = self.chains.approvals = approvals
        self._owns_approvals = False

    # -- serving -----------------------------------------------------------------------------------------------------

    @property
    def opens(self) -> bool:
        """Whether something has to be opened before the first request."""
        return self.auth is not None or self.lifetime.opens

    def _use_accounts(self, accounts: Accounts) -> None:
        """Count callers in the accounts of a gateway that this board is part of."""
        self.accounts = self._tasks.store.accounts = accounts

    async def start(self, shared: SharedStore | None = None) -> None:
        """Prepare for calls; calling it twice has no effect.

        With a store, tasks, used tickets, changes and the sealing key are shared with other processes.
        """
        if shared is not None:
            if self._feed is not None:
                raise SetupError(f"{self.name}: the board already uses another store")
            self._tasks.share(shared)
            if self._owns_approvals:
                self.approvals.use_store(shared.store)
            await self.lifetime.share(shared)
        await self.lifetime.open()
        try:
            await self._start_serving(shared)
        except BaseException:
            await self.stop()
            raise

    async def _start_serving(self, shared: SharedStore | None) -> None:
        await self.lifetime.wait_connected()
        if shared is not None:
            self._feed = ChangeFeed(self.changes, shared.store.feeds, self.name, self.limits.changes)
            await self._feed.start()
        if not self.resources.expected:
            # Otherwise tools are added later.
            self._attached.warn_unmatched(self._called(), self.tools)
        await start_auth(self.auth, shared)
        await self.start_pages(shared)
        if (metrics := self.find_metrics()) is not None:
            metrics.add_source(self.measure)

    async def _share_own(self, shared: SharedStore) -> None:
        self._used_tickets.use_store(shared.store.records)
        if self._sealed_alone:
            key = await shared_key(shared.store.records, self.name)
            for seal in self._sealed_alone:
                seal.prefer(key)
        for attached in self._attached:
            if isinstance(attached, Middleware):
                attached.use_store(shared.store)

    def list_digests(self) -> Mapping[str, str]:
        """A digest of the tools, the prompts and the resources."""
        lists: dict[str, object] = {
            "tools": [tool.definition() for tool in self.tools],
            "prompts": [prompt.definition() for prompt in self.prompts.all],
            "resources": [item.definition() for item in (*self.resources.fixed, *self.resources.templates)],
        }
        return {kind: sha256(encode(value)).hexdigest() for kind, value in lists.items()}

    async def announce_changes(self, kinds: Iterable[str]) -> None:
        """Publish in the store that these lists have changed."""
        for change in (Change("tools"), Change("prompts"), Change("resources")):
            if self._feed is not None and change.kind in kinds:
                await self._feed.publish(change)

    async def catch_up(self) -> None:
        """Read the changes that other processes have published, so that subscribers here learn them."""
        await self.changes.catch_up_to(self.changes.last + 1)

    async def stop(self) -> None:
        """Interrupt running tasks, stop middleware, close the application's services and end idle threads."""
        await self._tasks.close()
        if (metrics := self.find_metrics()) is not None:
            metrics.remove_source(self.measure)
        await self.lifetime.close()
        if self.auth is not None:
            await self.auth.stop()
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.stop()


async def start_auth(auth: authentication.Auth | None, shared: SharedStore | None) -> None:
    """Start the authentication of a server, with its store."""
    if auth is not None:
        # The client's modules load only where an issuer can be asked.
        connect = import_module("pegboard.client.login.issuer_client").IssuerClient
        await auth.start(None if shared is None else shared.store.records, connect)
