"""What a board offers: adding tools, resources, prompts and middleware, switching them, and reporting changes."""

from __future__ import annotations

import logging
import secrets
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, Unpack

from pegboard.auth.principal import Principal
from pegboard.boards.registry import GroupedRegistry, NamedOptions
from pegboard.call import Around, Change, Json
from pegboard.call_target import KINDS, CalledItem, CalledTool, Kind
from pegboard.catalog.folder import Folder
from pegboard.catalog.prompt import Prompt, PromptCatalog
from pegboard.catalog.resource import Resource, ResourceCatalog
from pegboard.catalog.tool_catalog import ToolCatalog, ToolSelection
from pegboard.errors import DeclarationError
from pegboard.execution.lifespans import Lifespans
from pegboard.execution.services import Lifetime, Services
from pegboard.execution.visible_changes import ChangeVisibility
from pegboard.hooks.attached_middleware import AttachedMiddleware
from pegboard.hooks.lifecycle import Lifecycle, Startable
from pegboard.hooks.middleware import Middleware, check_middleware
from pegboard.limits import Limits
from pegboard.protocol.json_values import objects_in
from pegboard.protocol.revisions import METHODS, NOTIFICATIONS
from pegboard.rules.access_control import AccessControl
from pegboard.rules.rule import Item
from pegboard.rules.verdicts import Rules, Verdict
from pegboard.schema.plain_json import encode
from pegboard.subscriptions.change_log import ChangeLog
from pegboard.tools.tool import Tool, tool_from_function
from pegboard.tools.tool_discovery import MarkedTool, find_tools

MAX_NOTIFICATION: Final = 16 * 1024
"""The bytes of the params of an author's notification: the log of changes keeps many of them."""

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Callable[..., Any])


class BoardContent(GroupedRegistry):
    """The tools, resources, prompts, middleware, services and rules of a board, as its author declares them."""

    def __init__(self, limits: Limits, rules: Rules) -> None:
        self.limits = limits
        self.tools = ToolCatalog()
        self.resources = ResourceCatalog()
        self.prompts = PromptCatalog()
        self.services = Services(self._find_argument)
        self.changes = ChangeLog(limits.changes)
        self._access = AccessControl(rules)
        self._attached = AttachedMiddleware()
        self._lifecycle = Lifecycle(self._startable)
        self._lifespans = Lifespans(self.services, limits.start_seconds)
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

    def _find_argument(self, kind: object) -> str | None:
        """Where a tool, prompt or resource takes this type from its callers."""
        offered: tuple[Prompt | Resource, ...] = (*self.prompts.all, *self.resources.templates)
        own = (tool for tool in self.tools if not tool.mounted)
        for tool in (*own, *(offer.tool for offer in offered if offer.relay is None)):
            for name, wanted in tool.argument_types.items():
                if wanted == kind:
                    return f"{tool.source}: parameter {name!r} of {tool.name}"
        return None

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
            self._add_completion(owner, argument, tool)
            return function

        return register

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
        self._watch(middleware)
        self._attached.add(
            middleware,
            (kind,) if isinstance(kind, str) else kind,
            order,
            toolbox=toolbox,
            group=group,
            category=category,
            tag=tag,
            tool=tool,
            prompt=prompt,
            resource=resource,
        )
        self._tools_changed()

    def _use_in_group(self, group: str, middleware: tuple[Middleware | Around, ...], order: float | None) -> None:
        self.use(*middleware, group=group, order=order)

    def unuse(self, middleware: Middleware | Around) -> None:
        """Remove middleware wherever `use` added it; running calls keep it."""
        self._attached.remove(middleware)
        self._tools_changed()

    def _watch(self, hooks: Iterable[Middleware | Around]) -> None:
        """Check middleware, and compose chains again when its settings change."""
        for hook in hooks:
            check_middleware(hook)
        for hook in hooks:
            if isinstance(hook, Middleware):
                hook._watch(self.tools._touch)
                if hook.serves_resources is True:
                    self.resources.expected = True

    def _tools_changed(self) -> None:
        self.tools._touch()
        self._lifecycle.sync()

    def _startable(self) -> Iterator[Startable]:
        """What starts and stops with the board: middleware, then the tools that it runs around."""
        yield from self._attached.in_order(self._called())
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

    @abstractmethod
    def _add_completion(self, owner: str, argument: str, tool: Tool) -> None: ...

    def lifespan(self, function: L) -> L:
        """Open something before the first call and close it after the last: `@board.lifespan`.

        The function is an async generator that yields once, or returns an async context manager; it takes the board, or
        nothing. A mapping that it yields is `ctx.lifespan` in tools. Any other value is a service of the type that its
        annotation names, such as `AsyncIterator[Pool]`: declare it before the tools that take one.
        """
        self._lifespans.add(function)
        return function


def _select_tools(names: tuple[str, ...], tags: Iterable[str], category: str | None) -> ToolSelection:
    if isinstance(tags, str):
        raise DeclarationError(f"tags={tags!r}; use a set of texts, for example {{{tags!r}}}")
    chosen = ToolSelection(frozenset(names), frozenset(tags), frozenset(() if category is None else [category]))
    if not (chosen.names or chosen.tags or chosen.categories):
        raise DeclarationError(
            'name what to switch, for example board.disable("delete") or board.disable(tags={"admin"})'
        )
    return chosen
