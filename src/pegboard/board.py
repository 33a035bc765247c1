"""The Board: tools, resources, prompts and middleware behind one Handler."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, Unpack, overload

from pegboard.asking.used_tickets import UsedTickets
from pegboard.call import Around, Call, Change, EncodedResult, Handler, Json
from pegboard.catalog.caching import Caching
from pegboard.catalog.caching import Scope as CacheScope
from pegboard.catalog.folder import Folder
from pegboard.catalog.prompt import Prompt, PromptCatalog
from pegboard.catalog.resource import Resource, ResourceCatalog
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import DeclarationError, SetupError
from pegboard.execution.call_resources import CallResources
from pegboard.execution.catalog_methods import CatalogMethods
from pegboard.execution.dispatch import Dispatcher
from pegboard.execution.preconditions import add_preconditions
from pegboard.execution.run import Runner, catch_errors
from pegboard.execution.services import Services
from pegboard.execution.threads import Threads
from pegboard.hooks.lifecycle import MiddlewareLifecycle
from pegboard.hooks.middleware import Middleware, check_middleware
from pegboard.hooks.pipeline import Attachment, choose_targets, compose, in_order
from pegboard.limits import Limits
from pegboard.seal import Seal, read_keys
from pegboard.server.hosting import Hosted
from pegboard.stores.cluster import SharedStore
from pegboard.stores.memory import MemoryRecords
from pegboard.stores.shared_key import shared_key
from pegboard.subscriptions.change_feed import ChangeFeed
from pegboard.subscriptions.change_log import ChangeLog, ListenMethod
from pegboard.tasks.task_methods import TaskMethods
from pegboard.tasks.task_store import TaskStore
from pegboard.tools.decorator import find_marked
from pegboard.tools.naming import check_name, snake_case
from pegboard.tools.tool import Tool, ToolOptions, name_of, tool_from_function

_log = logging.getLogger("pegboard.middleware")

F = TypeVar("F", bound=Callable[..., Any])


class NamedOptions(ToolOptions, total=False):
    """The options of a tool, its name among them."""

    name: str


class ToolRegistry(ABC):
    """Whatever tools can be hung on."""

    @abstractmethod
    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """Hang a Tool, or any callable with the options of `@board.tool`."""

    @overload
    def tool(self, name: F, /, **options: Unpack[NamedOptions]) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[NamedOptions]) -> Callable[[F], F]: ...
    def tool(self, name: Any = None, /, **options: Any) -> Any:
        """Hang a function, which stays the function it is: `@board.tool` or `@board.tool("name", title=…)`."""
        if name is not None and not isinstance(name, str):
            return self.tool(**options)(name)
        if name is not None:
            options["name"] = name

        def register(function: F) -> F:
            self.add(function, **options)
            return function

        return register


class Board(ToolRegistry, Hosted):
    """One board of tools, reached by every agent through one endpoint."""

    places: None = None

    def __init__(
        self,
        name: str = "pegboard",
        *,
        version: str = "0",
        title: str | None = None,
        instructions: str | None = None,
        arguments: Literal["lenient", "strict"] = "lenient",
        limits: Limits | None = None,
        page_size: int = 1000,
        ttl_ms: int = 0,
    ) -> None:
        """`ttl_ms` is how long clients may keep the lists of this board; 0: they ask again each time."""
        if page_size < 1:
            raise DeclarationError(f"page_size={page_size}: a page holds at least one item")
        if arguments not in ("lenient", "strict"):
            raise DeclarationError(f"arguments={arguments!r}; use 'lenient' or 'strict'")
        self.name = name
        self.version = str(version)
        self.limits = limits or Limits()
        self.services = Services()
        self.tools = ToolCatalog()
        self.resources = ResourceCatalog()
        self.prompts = PromptCatalog()
        self.changes = ChangeLog(self.limits.changes)
        self._title = title
        self._threads = Threads(self.limits.threads, self.limits.thread_queue, self.limits.threads_asking)
        self._attached: list[Attachment] = []
        self._numbers = count()
        self._lifetimes = MiddlewareLifecycle(lambda: in_order(self._attached, self.tools))
        self._missed: set[str] = set()
        secret = os.environ.get("PEGBOARD_SECRET")
        keys = read_keys(secret)
        call_resources = CallResources(
            tickets=Seal("requestState", keys, audience=name, secret=True), changes=self.changes
        )
        self._runner = Runner(self.services, self._threads, arguments, self.limits, call_resources)
        cursors = Seal("cursor", keys, audience=name)
        # With a key that is ours alone, until there is a store to have one in common with others.
        self._sealed_alone = () if secret else (call_resources.tickets, cursors)
        lists = self.tools.caching = Caching(ttl_ms, "public")
        self._catalog_methods = CatalogMethods(
            self.resources, self.prompts, self._runner, cursors, page_size, self.limits, lists
        )
        # After what keeps lists has let go of them: who hears of a change looks at once.
        self.tools.watch(partial(self._publish, Change("tools")))
        self.tools.watch_in_process(self._lifetimes.sync)
        self.resources.watch(partial(self._publish, Change("resources")))
        self.prompts.watch(partial(self._publish, Change("prompts")))
        listen = ListenMethod(
            self.changes,
            self._catalog_methods.capabilities,
            self.limits.subscribed_uris,
            self.limits.subscribed_uri_bytes,
        )
        records = MemoryRecords()
        self._tasks = TaskMethods(self.tools, TaskStore(records, self.limits), self.limits)
        self._used_tickets = UsedTickets(records, self.limits.used_tickets, self.limits.used_tickets_per_caller)
        self._preconditions = partial(
            add_preconditions, tickets=call_resources.tickets, used_tickets=self._used_tickets
        )
        self._feed: ChangeFeed | None = None
        self._dispatcher = Dispatcher(
            self.tools, self._runner.handler, self._surround, instructions, self._catalog_methods, listen, self._tasks
        )

    @property
    def info(self) -> Mapping[str, Json]:
        """Who this server is, as clients are told."""
        info = {"name": self.name, "version": self.version}
        return info if self._title is None else {**info, "title": self._title}

    @property
    def handler(self) -> Handler:
        """The board as a Handler: all that doors and clients need of it."""
        # The method itself: an object that can be called is called by way of its type, each time.
        return self._dispatcher.__call__

    def set_instructions(self, instructions: str | None) -> None:
        """Tell clients that come from now on something else about how to use this board."""
        self._dispatcher.instructions = instructions

    def choose_tools(self, choose: Callable[[Call], Coroutine[Any, Any, EncodedResult]]) -> None:
        """List for each caller what this says, in place of all tools; all of them can be called."""
        self._dispatcher.choose_tools = choose

    # -- hanging tools -----------------------------------------------------------------------------------------------

    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """Hang a Tool, or any callable with the options of `@board.tool`."""
        if isinstance(tool, Tool):
            made = tool.prepare(self.services.__contains__)
        else:
            made = tool_from_function(tool, is_injected=self.services.__contains__, **options)
        for one in made.hooks:
            check_middleware(one)
            if isinstance(one, Middleware):
                one._watch(self.tools.touch)
        self.tools.add(made)
        return made

    def remove(self, name: str) -> Tool:
        """Take a tool down."""
        return self.tools.remove(name)

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Mapping[str, Json] | None = None,
        icons: Sequence[Mapping[str, Json]] = (),
        meta: Mapping[str, Json] | None = None,
        ttl_ms: int = 0,
        cache_scope: CacheScope = "private",
    ) -> Callable[[F], F]:
        """Hang a function as a resource: `@board.resource("notes://{name}")`; one with braces is a template.

        `ttl_ms` is how long a client may keep what it read, `cache_scope` whether it may be kept for others too.
        """
        caching = Caching(ttl_ms, cache_scope)
        if not isinstance(uri, str):
            raise DeclarationError('@board.resource needs its URI: write @board.resource("notes://{name}")')

        def register(function: F) -> F:
            told: NamedOptions = {}
            if not name_of(function).isidentifier():
                # A lambda has no name; the last part of its URI has to do.
                told["name"] = re.sub(r"[^A-Za-z0-9_.-]+", "_", uri.rstrip("/").rpartition("/")[2]) or "resource"
            if title is not None:
                told["title"] = title
            if description is not None:
                told["description"] = description
            tool = tool_from_function(function, is_injected=self.services.__contains__, **told)
            self.resources.add(
                Resource(
                    uri,
                    tool,
                    name=name,
                    mime_type=mime_type,
                    size=size,
                    annotations=annotations,
                    icons=icons,
                    meta=meta,
                    caching=caching,
                )
            )
            return function

        return register

    def files(self, uri: str, folder: str | Path) -> None:
        """Let clients read the files below a folder, and nothing outside it: `board.files("docs://", "docs")`.

        They are listed as they are when a client asks for the list, which tells those who follow it of files that came
        or went since it was last asked for. What begins with a dot is neither listed nor read. A file that is larger than
        `Limits(result_bytes=…)` is refused, without being read.
        """
        found = Folder(uri, Path(folder), self.limits.listed_files, self.limits.result_bytes)
        self.resource(found.template, name="files")(found.read)
        self.resources.folders.append(found)

    @overload
    def prompt(self, name: F, /, **options: Unpack[NamedOptions]) -> F: ...
    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[NamedOptions]) -> Callable[[F], F]: ...
    def prompt(self, name: Any = None, /, **options: Any) -> Any:
        """Hang a function as a prompt; it returns text, content, messages, or a list of these."""
        if name is not None and not isinstance(name, str):
            return self.prompt(**options)(name)

        if name is not None:
            options["name"] = name

        def register(function: F) -> F:
            tool = tool_from_function(function, is_injected=self.services.__contains__, **options)
            self.prompts.add(Prompt(tool))
            return function

        return register

    def complete(self, owner: str, argument: str) -> Callable[[F], F]:
        """Hang a function that suggests values for an argument of a prompt (by name) or a template (by its URI)."""

        def register(function: F) -> F:
            self._catalog_methods.suggestions[owner, argument] = function
            return function

        return register

    def resource_changed(self, uri: str) -> None:
        """Tell those who follow this resource that it has another content now; from any thread."""
        self._publish(Change("updated", uri))

    def _publish(self, change: Change) -> None:
        self.changes.publish(change)

    def discover(self, package: str | ModuleType | object) -> list[Tool]:
        """Hang whatever is marked with `@tool` in a module, in every module of a package, or on an object."""
        owner = import_module(package) if isinstance(package, str) else package
        owners = [owner]
        if isinstance(owner, ModuleType):
            below = pkgutil.walk_packages(getattr(owner, "__path__", ()), owner.__name__ + ".")
            owners += [import_module(found.name) for found in below]
        made = [
            self.add(function, **({"name": mark.name} if mark.name else {}), **mark.options)
            for one in owners
            for function, mark in find_marked(one)
        ]
        if not made:
            raise DeclarationError(f"Nothing in {getattr(owner, '__name__', owner)!r} is marked with @tool")
        return made

    def group(self, name: str) -> Group:
        """Tools under a common first name: `board.group("a").group("b")` hangs `c` as `a.b.c`."""
        return Group(self, name)

    def export(
        self, form: str, *, strict: bool = True, description_tokens: int | None = None
    ) -> list[dict[str, Json]] | str:
        """The tools as a provider of models takes them (openai, anthropic, gemini, …), or as text for `markdown`."""
        return self.tools.export(form, strict=strict, description_tokens=description_tokens)

    def use(
        self,
        *middleware: Middleware | Around,
        toolbox: str | None = None,
        group: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tool: str | Iterable[str] | None = None,
        order: float | None = None,
    ) -> None:
        """Put middleware around the calls of all tools, or of a toolbox, a group, a category, a tag or named tools."""
        targets = choose_targets(tool, toolbox=toolbox, group=group, category=category, tag=tag)
        for one in middleware:
            check_middleware(one)
        for one in middleware:
            for scope, target in targets:
                self._attached.append(Attachment(one, scope, target, order, next(self._numbers)))
            if isinstance(one, Middleware):
                one._watch(self.tools.touch)
        self._tools_changed()

    def unuse(self, middleware: Middleware | Around) -> None:
        """Take middleware away from wherever it was put by `use`; calls that are under way keep it."""
        self._attached = [one for one in self._attached if one.middleware is not middleware]
        self._tools_changed()

    def _tools_changed(self) -> None:
        self.tools.touch()
        self._lifetimes.sync()

    def _add_capabilities(self, capabilities: Mapping[str, Json]) -> None:
        """Tell clients of these capabilities too, beside those that follow from what hangs here."""
        self._dispatcher.declared = capabilities

    def _surround(self, tool: Tool | None, inner: Handler) -> Handler:
        attached = self._attached if tool is None or tool.surrounded else ()
        chain = catch_errors(compose(attached, tool, inner))
        return chain if tool is None else self._preconditions(tool, self._tasks.handler(tool, chain))

    # -- serving -----------------------------------------------------------------------------------------------------

    async def start(self, shared: SharedStore | None = None) -> None:
        """Be ready for calls; there is nothing to wire, and starting twice does no harm.

        Tasks, used tickets, changes and the key of seals are kept where other processes have theirs, if there is such a
        place.
        """
        if shared is not None:
            if self._feed is not None:
                raise SetupError(f"{self.name}: a board has one store at a time, and this one has its own already")
            self._tasks.share(shared)
            self._used_tickets.use_store(shared.store.records)
            if self._sealed_alone:
                key = await shared_key(shared.store.records, self.name)
                for seal in self._sealed_alone:
                    seal.prefer(key)
            self._feed = ChangeFeed(self.changes, shared.store.changes(self.name), self.limits.changes)
            await self._feed.start()
        self._warn_unmatched()
        await self._lifetimes.start()

    def _warn_unmatched(self) -> None:
        """Say once of each name that middleware is attached to whether a tool has it; not where tools come later."""
        for one in self._attached if not self.resources.expected else ():
            if one.scope == "tool" and one.target not in self.tools and one.target not in self._missed:
                self._missed.add(one.target)
                close = self.tools.suggest(one.target)
                hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
                _log.warning(
                    "middleware is attached to the tool %r, and there is none of that name%s", one.target, hint
                )

    async def stop(self) -> None:
        """Interrupt the tasks that still run, stop middleware, clean up what lived with the application, end idle threads."""
        await self._tasks.close()
        await self._lifetimes.stop()
        await self.services.close()
        self._threads.release()
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.stop()


class Group(ToolRegistry):
    """Tools of a board under a common first name."""

    def __init__(self, board: Board, name: str) -> None:
        check_name(name, "group")
        self.board = board
        self.name = name

    def group(self, name: str) -> Group:
        """Return a group within this group."""
        return Group(self.board, f"{self.name}.{name}")

    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """As `board.add`, under the group's name."""
        if isinstance(tool, Tool):
            # The author's own object keeps its name: it may hang elsewhere too.
            tool = copy(tool)
            tool.name = f"{self.name}.{tool.name}"
        else:
            options["name"] = f"{self.name}.{options.get('name') or snake_case(name_of(tool))}"
        return self.board.add(tool, **options)

    def use(self, *middleware: Middleware | Around, order: float | None = None) -> None:
        """Put middleware around the calls of this group's tools."""
        self.board.use(*middleware, group=self.name, order=order)
