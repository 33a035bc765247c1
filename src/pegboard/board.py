"""The Board: tools, resources, prompts and middleware behind one Handler."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import count, pairwise
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, Literal, TypeVar, Unpack, get_args

from pegboard.accounts.accounts import Accounts
from pegboard.accounts.quota import Quotas
from pegboard.approvals.approval_store import Approvals
from pegboard.asking.rounds import UsedTickets
from pegboard.auth.auth import Auth
from pegboard.auth.principal import Principal
from pegboard.call import Around, Call, Caller, Change, EncodedResult, Handler, Json, Reply
from pegboard.call_target import KINDS, UNKNOWN_ITEM, CalledItem, CalledTool, Kind
from pegboard.catalog.caching import Caching
from pegboard.catalog.folder import Folder
from pegboard.catalog.instructions_template import InstructionsTemplate, read_instructions
from pegboard.catalog.prompt import Prompt, PromptCatalog
from pegboard.catalog.resource import Resource, ResourceCatalog
from pegboard.catalog.tool_catalog import ToolCatalog, ToolSelection
from pegboard.config.rule_keys import read_rules
from pegboard.errors import DeclarationError, SetupError
from pegboard.execution.call_resources import CallResources
from pegboard.execution.catalog_methods import CatalogMethods
from pegboard.execution.debug_mode import DebugMode
from pegboard.execution.dispatch import Dispatcher
from pegboard.execution.lifespans import Lifespans
from pegboard.execution.run import Runner, answer_unknown, catch_errors, refuse_errors
from pegboard.execution.services import Lifetime, Services
from pegboard.execution.threads import Threads
from pegboard.execution.tool_conditions import add_preconditions
from pegboard.execution.visible_changes import ChangeVisibility, Shown
from pegboard.hooks.lifecycle import Lifecycle, Startable
from pegboard.hooks.middleware import Middleware, check_kinds, check_middleware
from pegboard.hooks.pipeline import Attachment, choose_targets, compose, in_order
from pegboard.limits import Limits
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink
from pegboard.middleware.limits.token_meter import TokenMeter
from pegboard.middleware.observability.metrics import Metrics
from pegboard.mounts import Mount
from pegboard.protocol.json_values import objects_in
from pegboard.protocol.revisions import METHODS, NOTIFICATIONS
from pegboard.registry import GroupedRegistry, NamedOptions
from pegboard.rules.access_control import AccessControl
from pegboard.rules.rule import Approval, Item, Rule
from pegboard.rules.verdicts import Rules, Verdict
from pegboard.schema.plain_json import encode
from pegboard.security.seal import Seal, read_keys
from pegboard.server.hosting import Hosted
from pegboard.stores.cluster import SharedStore
from pegboard.stores.memory import MemoryRecords
from pegboard.stores.shared_key import shared_key
from pegboard.subscriptions.change_feed import ChangeFeed
from pegboard.subscriptions.change_log import ChangeLog, ListenMethod
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tasks.task_store import TaskStore
from pegboard.tools.tool import Icons, Tool, read_icons, tool_from_function
from pegboard.tools.tool_discovery import MarkedTool, find_tools
from pegboard.tools.tool_result import RepairNotes

_log = logging.getLogger("pegboard.middleware")

MAX_NOTIFICATION: Final = 16 * 1024
"""The bytes of the params of an author's notification: the log of changes keeps many of them."""

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Callable[..., Any])


class Board(GroupedRegistry, Hosted):
    """An MCP server: tools, resources, prompts and middleware behind one endpoint."""

    places: None = None

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
        auth: Auth | None = None,
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
        self.limits = limits or Limits()
        self.accounts = Accounts(self.limits, quotas)
        self.debug_mode = self._debug_mode = DebugMode(on=debug)
        self.tools = ToolCatalog()
        self.resources = ResourceCatalog()
        self.prompts = PromptCatalog()
        self.services = Services(self._find_argument)
        self.changes = ChangeLog(self.limits.changes)
        shown = {
            "name": name,
            "version": self.version,
            "title": title,
            "description": description,
            "icons": list(read_icons(icons)),
            "websiteUrl": website_url,
        }
        self._info = {member: value for member, value in shown.items() if value}
        self._access = AccessControl(Rules(read_rules(rules)))
        self._threads = Threads(self.limits.threads, self.limits.thread_queue, self.limits.threads_asking)
        self._attached: list[Attachment] = []
        self._numbers = count()
        self._lifetimes = Lifecycle(self._startable)
        self._missed: set[tuple[str, str]] = set()
        self.mounts: list[Mount] = []
        secret = os.environ.get("PEGBOARD_SECRET")
        keys = read_keys(secret)
        self._lifespans = Lifespans(self.services, self.limits.start_seconds)
        call_resources = CallResources(
            tickets=Seal("requestState", keys, audience=name, secret=True),
            changes=self.changes,
            limits=self.limits,
            lifespan=MappingProxyType(self._lifespans.values),
            dispatch=self._dispatch,
        )
        self.custom_routes.lifespan = call_resources.lifespan
        self.custom_routes.run_in_thread = self._threads.run
        self._runner = Runner(self.services, self._threads, arguments, self.limits, call_resources, repair_notes)
        cursors = Seal("cursor", keys, audience=name)
        # A random key, until a store provides one that other processes share.
        self._sealed_alone = () if secret else (call_resources.tickets, cursors)
        lists = self.tools.caching = Caching(ttl_ms, "public")
        self._catalog_methods = CatalogMethods(
            self.resources,
            self.prompts,
            self._runner,
            cursors,
            page_size,
            self.limits,
            self._surround_item,
            lambda: self.tools.generation,
            self._access,
            lists,
        )
        self._visible = ChangeVisibility(
            self._access,
            {
                "tools": lambda view, _: objects_in(self.tools.listing("", view).value["tools"]),
                "prompts": lambda view, _: [prompt.definition() for prompt in self.prompts.shown(view)],
                "resources": lambda view, _: (
                    *self.resources.definitions(view),
                    *self.resources.template_definitions(view),
                ),
            },
            self.resources,
            lambda: self.changes.shared,
        )
        # Registered after the list caches, so that they are cleared before a watcher reads the lists.
        self.tools._watch(partial(self._publish, Change("tools")))
        self.tools._watch_in_process(self._lifetimes.sync)
        self.tools._watch_in_process(self._find_scopes)
        for catalog, change in ((self.resources, Change("resources")), (self.prompts, Change("prompts"))):
            catalog._watch(partial(self._publish, change))
            catalog._watch(self._lifetimes.sync)
        listen = ListenMethod(
            self.changes,
            self._catalog_methods.capabilities,
            self.limits.subscribed_uris,
            self.limits.subscribed_uri_bytes,
            self._visible.filter_for,
        )
        records = MemoryRecords()
        self._tasks = TaskMethods(self.tools, TaskStore(records, self.limits, accounts=self.accounts), self.limits)
        self._used_tickets = UsedTickets(
            records,
            self.limits.used_tickets,
            self.limits.used_tickets_per_caller,
            self.limits.ticket_seconds,
        )
        self._preconditions = partial(
            add_preconditions, tickets=call_resources.tickets, used_tickets=self._used_tickets
        )
        if self.accounts.counts_tokens:
            self.use(TokenMeter(self.accounts))
        self._feed: ChangeFeed | None = None
        self.approvals = Approvals(name, self.limits, find_audit=lambda: self.audit)
        self._owns_approvals = True
        self._dispatcher = Dispatcher(
            self.tools,
            self._handler_of,
            self._surround,
            self._access,
            None,
            self._catalog_methods,
            listen,
            self._tasks,
        )
        self.set_instructions(instructions)
        if self._access.rules.approve:
            self.serve_approvals()

    def _find_argument(self, kind: object) -> str | None:
        """Where a tool, prompt or resource takes this type from its callers."""
        offered: tuple[Prompt | Resource, ...] = (*self.prompts.all, *self.resources.templates)
        own = (tool for tool in self.tools if not tool.mounted)
        for tool in (*own, *(offer.tool for offer in offered if offer.relay is None)):
            for name, wanted in tool.argument_types.items():
                if wanted == kind:
                    return f"{tool.source}: parameter {name!r} of {tool.name}"
        return None

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

    # -- adding tools ------------------------------------------------------------------------------------------------

    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """Add a Tool, or any callable with the options of `@board.tool`."""
        if isinstance(tool, Tool):
            made = tool.prepare(self._is_injected)
        else:
            made = tool_from_function(tool, is_injected=self._is_injected, **options)
        self._watch(made.hooks)
        self.tools.add(made)
        for oversight in made.oversights:
            logging.getLogger("pegboard.tools").warning("%s: %s: %s", made.source, made.name, oversight)
        return made

    def mount(self, board: Board, prefix: str = "") -> None:
        """Serve the tools, prompts, resources and completions of another board here, too (docs/composition.md).

        They follow every later change of that board. Its middleware, services and lifespans apply to what is its own.

        board: the other board; it can still be served by itself.
        prefix: what their names begin with: `prefix.tool`, `scheme://prefix/…`; without it, names stay as they are.
        """
        if board.auth is not None or len(board._access.rules):
            raise DeclarationError(
                f"mount: {board.name!r} has {'auth' if board.auth is not None else 'rules'}, which would not apply here; "
                f"give them to {self.name!r}, which is served"
            )
        if self._lifespans.started:
            raise DeclarationError(f"mount: {self.name!r} is running; mount boards before it starts")
        self.mounts.append(Mount(self, board, prefix))

    def remote(self, name: str, server: str | Sequence[str] | Mapping[str, Any], *, prefix: str | None = None) -> None:
        """Serve what another MCP server offers here, too; it is connected when the board starts (docs/composition.md).

        A server that cannot be reached does not keep the board from starting; its tools appear once it is connected.

        name: the name of the server.
        server: its URL, the command that starts it as a list, or an entry with the keys of a gateway's file.
        prefix: what its names begin with; without it, the name of the server.
        """
        if self._lifespans.started:
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

    def _watch(self, hooks: Iterable[Middleware | Around]) -> None:
        """Check middleware, and compose chains again when its settings change."""
        for hook in hooks:
            check_middleware(hook)
        for hook in hooks:
            if isinstance(hook, Middleware):
                hook._watch(self.tools._touch)
                if hook.serves_resources is True:
                    self.resources.expected = True

    def remove(self, name: str) -> Tool:
        """Remove a tool."""
        return self.tools.remove(name)

    def disable(self, *names: str, tags: Iterable[str] = (), category: str | None = None) -> None:
        """Disable tools, now and if they are added later: they are neither listed nor found. Running calls go on.

        names: tools by name.
        tags: tools with any of these tags.
        category: the tools of this category.
        """
        self.tools.switch(_select_tools(names, tags, category), on=False)

    def enable(self, *names: str, tags: Iterable[str] = (), category: str | None = None) -> None:
        """Enable tools that were disabled, by the same options as `disable`; the latest of both counts.

        names: tools by name.
        tags: tools with any of these tags.
        category: the tools of this category.
        """
        self.tools.switch(_select_tools(names, tags, category), on=True)

    def _is_injected(self, kind: object) -> bool:
        return kind in self.services

    def _find_scopes(self) -> None:
        newest = self.tools.newest
        if newest is not None and newest.scopes:
            self._access.require_scopes()

    def _add_resource(self, resource: Resource) -> None:
        if resource.item.scopes:
            self._access.require_scopes()
        self.resources.add(resource)

    def _add_prompt(self, prompt: Prompt) -> None:
        if prompt.item.scopes:
            self._access.require_scopes()
        if prompt.relay is None:
            self._watch(prompt.tool.hooks)
        self.prompts.add(prompt)

    def _use_in_group(self, group: str, middleware: tuple[Middleware | Around, ...], order: float | None) -> None:
        self.use(*middleware, group=group, order=order)

    def files(self, uri: str, folder: str | Path) -> None:
        """Let clients read the files in a folder: `board.files("docs://", "docs")`.

        Each list request reads the folder again; if files were added or removed since the last one, subscribers are
        notified. Names that begin with a dot are neither listed nor readable. A file larger than
        `Limits(result_bytes=…)` is rejected without being read.
        """
        files = Folder(uri, Path(folder), self.limits.listed_files, self.limits.result_bytes)
        self.resource(files.template, name="files")(files.read)
        self.resources.folders.append(files)

    def complete(self, owner: str, argument: str) -> Callable[[F], F]:
        """Add a function that completes an argument of a prompt (by name) or of a template (by its URI).

        It takes the text typed so far, and services, and returns the values to choose from.
        """

        def register(function: F) -> F:
            tool = tool_from_function(function, "completion", is_injected=self.services.__contains__)
            self._catalog_methods.add_completion(owner, argument, tool)
            return function

        return register

    def resource_changed(self, uri: str) -> None:
        """Notify subscribers that the content of this resource has changed; from any thread."""
        self._publish(Change("updated", uri))

    def notify(self, method: str, params: Mapping[str, Json] | None = None) -> None:
        """Send a notification of your own to all clients; from any thread.

        method: its method, such as `notifications/orders/shipped`; those of the protocol are sent by other methods.
        params: its params, of up to 16 KiB as JSON.

        Clients of revisions before 2026-07-28 get it if they have an open stream. Clients of 2026-07-28 get it if they
        ask for `dev.pegboard/notifications` in `subscriptions/listen`, as `Client(on_notification=…)` does.
        """
        if not method or method in NOTIFICATIONS or method in METHODS:
            raise ValueError(
                f"{method!r} is a method of the protocol; resource_changed and changes of lists send theirs"
            )
        text = encode(dict(params or {})).decode()
        if len(text) > MAX_NOTIFICATION:
            raise ValueError(
                f"the params have {len(text)} bytes, the limit is {MAX_NOTIFICATION}; send a resource's URI"
            )
        self._publish(Change("notification", method, text, secrets.randbits(63)))

    def _publish(self, change: Change) -> None:
        self._visible.changed(change.kind)
        self.changes.publish(change)

    def verdicts(self, principal: Principal) -> Iterator[tuple[CalledTool, Verdict]]:
        """What a caller may do with each tool, prompt and resource, and which rule decided."""
        view = self._access.rules.view(principal)
        for called in self._called():
            yield called, view.of(called)

    def verdict(self, principal: Principal, item: Item) -> Verdict:
        """What a caller, `principal`, may do with an `item` that need not exist, and which rule decided."""
        return self._access.rules.verdict(principal, item)

    def _scopes_of(self, kind: str, name: str) -> frozenset[str]:
        """The scopes that a tool, a prompt, a resource or a template requires of its callers."""
        catalogs: Mapping[str, Callable[[str], Tool | Prompt | Resource | None]] = {
            "tool": self.tools.get,
            "prompt": self.prompts.get,
            "resource": self.resources.get,
        }
        found = catalogs[kind](name)
        called = found.item if isinstance(found, Prompt | Resource) else found
        return frozenset() if called is None else frozenset(called.scopes)

    def _unmatched_rules(self, items: Iterable[Item]) -> list[str]:
        """The patterns of the rules that match none of these items for any caller."""
        return self._access.rules.unmatched(items)

    def _replace_rules(self, rules: Rules) -> None:
        """Use other rules from now on; subscribers whose lists change are notified."""
        self._access.replace(rules)
        self.tools._touch()
        self._catalog_methods.forget_lists()
        for change in (Change("tools"), Change("prompts"), Change("resources")):
            self._publish(change)

    def discover(self, package: str | ModuleType | object, *, lifetime: Lifetime = "app") -> list[Tool]:
        """Add all tools of a module, of every module of a package, of a class, or of an object.

        These are the functions, methods, static and class methods marked with `@tool`, and the declared Tools. The
        constructor of a class gets its parameters from the services. An instance lives as long as `lifetime` says, or as
        its own factory does.
        """
        place = import_module(package) if isinstance(package, str) else package
        found = find_tools(place)
        if not found:
            raise DeclarationError(f"Nothing in {getattr(place, '__name__', place)!r} is a Tool or marked with @tool")
        for owner in dict.fromkeys(tool.owner for tool in found if isinstance(tool, MarkedTool)):
            if owner is not None:
                self.services.add_class(owner, lifetime)
        return [self.add(tool if isinstance(tool, Tool) else self._make_tool(tool)) for tool in found]

    def _make_tool(self, found: MarkedTool | type[Tool]) -> Tool:
        if isinstance(found, type):
            return self.services.construct(found)
        mark = found.mark
        return tool_from_function(
            found.function, mark.name or None, is_injected=self._is_injected, owner=found.owner, **mark.options
        )

    def export(
        self, form: str, *, strict: bool = True, description_tokens: int | None = None
    ) -> list[dict[str, Json]] | str:
        """Return the tools in the format of a model provider.

        form: openai, openai-responses, anthropic, gemini, ollama, microsoft-ai, mcp, json-schema, or markdown for text.
        strict: use the provider's strict mode where the schema allows it.
        description_tokens: shorten each description to about this many tokens.
        """
        return self.tools.export(form, strict=strict, description_tokens=description_tokens)

    def use(
        self,
        *middleware: Middleware | Around,
        toolbox: str | None = None,
        group: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tool: str | Iterable[str] | None = None,
        prompt: str | Iterable[str] | None = None,
        resource: str | Iterable[str] | None = None,
        kind: Kind | Collection[Kind] = KINDS,
        order: float | None = None,
    ) -> None:
        """Add middleware around all calls of tools and requests for prompts, resources and completions, or some of them.

        middleware: instances of Middleware, or async functions of (call, next).
        toolbox: only for what is in this toolbox of a gateway.
        group: only for what is in this group.
        category: only for the tools and prompts of this category.
        tag: only for the tools and prompts with this tag.
        tool: only for the tool of this name, or of these names.
        prompt: only for the prompt of this name, or of these names, and the completions of its arguments.
        resource: only for the resource with this URI or template, or with these, and the completions of its variables.
        kind: of these, only requests of this kind, or of these kinds: "tool", "prompt", "resource", "completion".
        order: the position, in place of the middleware's own; the lowest is outermost.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        check_kinds(kinds, "kind")
        targets = choose_targets(
            toolbox=toolbox, group=group, category=category, tag=tag, tool=tool, prompt=prompt, resource=resource
        )
        self._watch(middleware)
        for hook in middleware:
            for scope, target in targets:
                self._attached.append(Attachment(hook, scope, target, order, next(self._numbers), kinds))
        self._tools_changed()

    def find_metrics(self) -> Metrics | None:
        """The middleware that measures calls of this board, if it has one."""
        attached: Iterator[object] = (attachment.middleware for attachment in self._attached)
        return next((middleware for middleware in attached if isinstance(middleware, Metrics)), None)

    @property
    def audit(self) -> AuditSink:
        """Where decisions about this board are recorded: its first Audit middleware, if it has one."""
        attached: Iterator[object] = (attachment.middleware for attachment in self._attached)
        return next((middleware for middleware in attached if isinstance(middleware, AuditSink)), NO_AUDIT)

    def unuse(self, middleware: Middleware | Around) -> None:
        """Remove middleware wherever `use` added it; running calls keep it."""
        self._attached = [attached for attached in self._attached if attached.middleware is not middleware]
        self._tools_changed()

    def _tools_changed(self) -> None:
        self.tools._touch()
        self._lifetimes.sync()

    def _add_capabilities(self, capabilities: Mapping[str, Json]) -> None:
        """Declare these capabilities to clients, in addition to those that follow from the content of the board."""
        self._dispatcher.declared = capabilities

    def _startable(self) -> Iterator[Startable]:
        """What starts and stops with the board: middleware, then the tools that it runs around."""
        yield from in_order(self._attached, self._called())
        for tool in self.tools:
            own = tool
            while own.original is not None:
                own = own.original
            # A mounted board starts its own.
            if not own.mounted:
                yield own

    def _called(self) -> Iterator[Tool | CalledItem]:
        """Everything that middleware can be attached to."""
        yield from self.tools
        for prompt in self.prompts.all:
            yield prompt.item
        for resource in (*self.resources.fixed, *self.resources.templates):
            yield resource.item

    def _surround_item(self, kind: Kind, item: CalledItem, inner: Handler) -> Handler:
        attached = self._attached
        if kind == "resource" and item is UNKNOWN_ITEM:
            serving = [
                middleware for middleware in in_order(attached, self.tools) if middleware.serves_resources is True
            ]
            attached = [
                *attached,
                *(Attachment(middleware, "board", "", None, next(self._numbers)) for middleware in serving),
            ]
        chain = compose(attached, item, inner, kind)
        return refuse_errors(answer_unknown(chain, inner) if item is UNKNOWN_ITEM else chain)

    def _use_approvals(self, approvals: Approvals) -> None:
        """Share the approvals of a gateway, of which this board is an endpoint."""
        self.approvals, self._owns_approvals = approvals, False

    def _handler_of(self, tool: Tool, approval: Approval | None) -> Handler:
        """The Handler inside the board's middleware: that of the tool, inside the middleware of boards it is mounted from."""
        home, own = tool.mounted[-1] if tool.mounted else (self, tool)

        def find_verdict(principal: Principal) -> Verdict | None:
            view = self._access.view(principal)
            return None if view is None else view.of(tool)

        runner: Runner = home._runner
        gate = None if approval is None else runner.gate(tool, approval, self.approvals, find_verdict)
        handler = (
            runner.handler(own, gate)
            if own.original is None
            else runner.transformed(own, home._handler_of(own.original, None), gate)
        )
        for (outer, shown), (board, its_tool) in reversed([*pairwise([(self, tool), *tool.mounted])]):
            handler = compose(board._attached if its_tool.surrounded else (), its_tool, handler)
            handler = _relocating(outer.mounts, shown, handler)
        return handler

    def _surround(self, tool: Tool | CalledItem, inner: Handler) -> Handler:
        if isinstance(tool, CalledItem):
            return catch_errors(answer_unknown(compose(self._attached, tool, inner), inner), self._debug_mode)
        chain = catch_errors(compose(self._attached if tool.surrounded else (), tool, inner), self._debug_mode)
        home = tool.mounted[-1][0] if tool.mounted else self
        # The tickets of a tool are sealed by the board that runs it.
        return home._preconditions(tool, self._tasks.handler(tool, chain))

    # -- serving -----------------------------------------------------------------------------------------------------

    def lifespan(self, function: L) -> L:
        """Open something before the first call and close it after the last: `@board.lifespan`.

        The function is an async generator that yields once, or returns an async context manager; it takes the board, or
        nothing. A mapping that it yields is `ctx.lifespan` in tools. Any other value is a service of the type that its
        annotation names, such as `AsyncIterator[Pool]`: declare it before the tools that take one.
        """
        self._lifespans.add(function)
        return function

    @property
    def opens(self) -> bool:
        """Whether something has to be opened before the first request."""
        here = self.auth is not None or bool(self._lifespans) or self._lifetimes.has_hooks
        return here or any(mount.source.opens for mount in self.mounts)

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
            await self._share(shared)
        await self._open()
        if shared is not None:
            self._feed = ChangeFeed(self.changes, shared.store.feeds, self.name, self.limits.changes)
            await self._feed.start()
        self._warn_unmatched()
        await start_auth(self.auth, shared)
        await self.start_sign_in(shared)
        if (metrics := self.find_metrics()) is not None:
            metrics.add_source(self.measure)

    async def _share(self, shared: SharedStore) -> None:
        """Share with other processes what the tools of this board and of mounted ones need."""
        self._used_tickets.use_store(shared.store.records)
        if self._sealed_alone:
            key = await shared_key(shared.store.records, self.name)
            for seal in self._sealed_alone:
                seal.prefer(key)
        for attached in self._attached:
            if isinstance(attached.middleware, Middleware):
                attached.middleware.use_store(shared.store)
        for mount in self.mounts:
            await mount.source._share(shared)

    async def _open(self) -> None:
        """Open the lifespans, then those of mounted boards, then start middleware and tools."""
        await self._lifespans.start(self)
        opened: list[Any] = []
        try:
            for mount in self.mounts:
                await mount.source._open()
                opened.append(mount.source)
        except BaseException:
            await self._close_all(opened)
            await self._lifespans.stop()
            raise
        await self._lifetimes.start()

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

    async def _close(self) -> None:
        """Close in reverse."""
        await self._lifetimes.stop()
        await self._close_all([mount.source for mount in self.mounts])
        await self._lifespans.stop()
        self._threads.release()

    async def _close_all(self, boards: list[Any]) -> None:
        for board in reversed(boards):
            await board._close()

    def _warn_unmatched(self) -> None:
        """Log each name that middleware is attached to and that does not exist; skipped where tools are added later."""
        if self.resources.expected:
            return
        called = {(target.item if isinstance(target, CalledItem) else "tool", target.name) for target in self._called()}
        for attached in self._attached:
            wanted = attached.scope, attached.target
            if attached.scope in ("tool", "prompt", "resource") and wanted not in called | self._missed:
                self._missed.add(wanted)
                close = self.tools.suggest(attached.target) if attached.scope == "tool" else ()
                hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
                _log.warning("middleware is attached to the %s %r, which does not exist%s", *wanted, hint)

    async def stop(self) -> None:
        """Interrupt running tasks, stop middleware, close the application's services and end idle threads."""
        await self._tasks.close()
        if (metrics := self.find_metrics()) is not None:
            metrics.remove_source(self.measure)
        await self._close()
        if self.auth is not None:
            await self.auth.stop()
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.stop()


def _select_tools(names: tuple[str, ...], tags: Iterable[str], category: str | None) -> ToolSelection:
    if isinstance(tags, str):
        raise DeclarationError(f"tags={tags!r}; use a set of texts, for example {{{tags!r}}}")
    chosen = ToolSelection(frozenset(names), frozenset(tags), frozenset(() if category is None else [category]))
    if not (chosen.names or chosen.tags or chosen.categories):
        raise DeclarationError(
            'name what to switch, for example board.disable("delete") or board.disable(tags={"admin"})'
        )
    return chosen


def _relocating(mounts: Iterable[Mount], tool: Tool, inner: Handler) -> Handler:
    """The results of a mounted tool with the URIs that callers know; unchanged for one without a prefix."""
    mount = next((mount for mount in mounts if mount.shows(tool)), None)
    if mount is None or not mount.prefix or not mount.inner.resources.offered:
        return inner

    async def relocate(call: Call) -> Reply:
        return mount.relocated(await inner(call))

    return relocate


async def start_auth(auth: Auth | None, shared: SharedStore | None) -> None:
    """Start the authentication of a server, with its store."""
    if auth is not None:
        # The client's modules load only where an issuer can be asked.
        connect = import_module("pegboard.client.login.issuer_client").IssuerClient
        await auth.start(None if shared is None else shared.store.records, connect)
