"""What a board and its groups share: decorators that add tools, resources and prompts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, TypeVar, Unpack, overload

from pegboard.call import Around, Json
from pegboard.catalog.caching import Caching
from pegboard.catalog.caching import Scope as CacheScope
from pegboard.catalog.prompt import Prompt
from pegboard.catalog.resource import Resource
from pegboard.errors import DeclarationError
from pegboard.hooks.middleware import Middleware
from pegboard.tools.naming import check_name, snake_case
from pegboard.tools.tool import Icons, Tool, ToolOptions, name_of, tool_from_function

F = TypeVar("F", bound=Callable[..., Any])


class NamedOptions(ToolOptions, total=False):
    """The options of a tool, including its name."""

    name: str


class Registry(ABC):
    """Anything that tools, resources and prompts can be added to."""

    @abstractmethod
    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """Add a Tool, or any callable with the options of `@board.tool`."""

    @abstractmethod
    def _is_injected(self, kind: object) -> bool:
        """Whether a parameter of this type is a service."""

    @abstractmethod
    def _add_resource(self, resource: Resource) -> None: ...

    @abstractmethod
    def _add_prompt(self, prompt: Prompt) -> None: ...

    def _full_name(self, name: str) -> str:
        """The name under which clients see what is added here as `name`."""
        return name

    @overload
    def tool(self, name: F, /, **options: Unpack[NamedOptions]) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[NamedOptions]) -> Callable[[F], F]: ...
    def tool(self, name: Any = None, /, **options: Any) -> Any:
        """Add a function, which stays callable as before: `@board.tool` or `@board.tool("name", title=…)`."""
        return _decorate(self.add, name, options)

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
        icons: Icons = (),
        meta: Mapping[str, Json] | None = None,
        ttl_ms: int = 0,
        cache_scope: CacheScope = "private",
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Add a function as a resource: `@board.resource("notes://{name}")`. A URI with braces is a template.

        uri: the URI, or the template, whose variables are the parameters of the function.
        name: the name for programs; without it, the name of the function.
        title: the name for people.
        description: what it contains; without it, the docstring.
        mime_type: its media type.
        size: its size in bytes.
        annotations: audience, priority and lastModified, as in the protocol.
        icons: URLs, or icons as in the protocol.
        meta: its `_meta`.
        ttl_ms: how long a client may cache the content, in milliseconds.
        cache_scope: "public" if the cached content may be served to other users, too.
        scopes: the scopes that a caller needs, all of them.
        """
        caching = Caching(ttl_ms, cache_scope)
        if not isinstance(uri, str):
            raise DeclarationError('@board.resource needs a URI, for example @board.resource("notes://{name}")')

        def register(function: F) -> F:
            options: NamedOptions = {}
            if not name_of(function).isidentifier():
                # A lambda has no name: use the last part of its URI.
                options["name"] = re.sub(r"[^A-Za-z0-9_.-]+", "_", uri.rstrip("/").rpartition("/")[2]) or "resource"
            options["scopes"] = scopes
            if title is not None:
                options["title"] = title
            if description is not None:
                options["description"] = description
            tool = tool_from_function(function, is_injected=self._is_injected, **options)
            self._add_resource(
                Resource(
                    uri,
                    tool,
                    name=self._full_name(name or tool.name),
                    mime_type=mime_type,
                    size=size,
                    annotations=annotations,
                    icons=icons,
                    meta=meta,
                    caching=caching,
                    scopes=tool.scopes,
                )
            )
            return function

        return register

    @overload
    def prompt(self, name: F, /, **options: Unpack[NamedOptions]) -> F: ...
    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[NamedOptions]) -> Callable[[F], F]: ...
    def prompt(self, name: Any = None, /, **options: Any) -> Any:
        """Add a function as a prompt; it returns text, content, messages, or a list of these."""

        def add(function: Callable[..., Any], **named: Any) -> None:
            named["name"] = self._full_name(named.get("name") or snake_case(name_of(function)))
            self._add_prompt(Prompt(tool_from_function(function, is_injected=self._is_injected, **named)))

        return _decorate(add, name, options)


def _decorate(add: Callable[..., object], name: Any, options: dict[str, Any]) -> Any:
    """What a decorator returns: the function if it is used without arguments, else one that adds a function."""

    def register(function: F) -> F:
        add(function, **(options if name is None or name is function else {**options, "name": name}))
        return function

    return register if name is None or isinstance(name, str) else register(name)


class GroupedRegistry(Registry):
    """A registry in which groups can use middleware: a board."""

    @abstractmethod
    def _use_in_group(self, group: str, middleware: tuple[Middleware | Around, ...], order: float | None) -> None: ...

    def group(self, name: str) -> Group:
        """A group with a common prefix: `board.group("a").group("b")` adds the tool or prompt `c` as `a.b.c`."""
        return Group(self, name)


class Group(Registry):
    """Tools, prompts and resources of a board whose names have a common prefix; URIs stay as they are."""

    def __init__(self, board: GroupedRegistry, name: str) -> None:
        check_name(name, "group")
        self.board = board
        self.name = name

    def group(self, name: str) -> Group:
        """Return a group within this group."""
        return Group(self.board, self._full_name(name))

    def add(self, tool: Tool | Callable[..., Any], **options: Unpack[NamedOptions]) -> Tool:
        """As `board.add`, with the group's prefix."""
        if isinstance(tool, Tool):
            # Copied, since the author may add the same Tool elsewhere under its own name.
            tool = copy(tool)
            tool.name = self._full_name(tool.name)
        else:
            options["name"] = self._full_name(options.get("name") or snake_case(name_of(tool)))
        return self.board.add(tool, **options)

    def use(self, *middleware: Middleware | Around, order: float | None = None) -> None:
        """Add middleware around the calls of this group's tools, and the requests for its prompts and resources."""
        self.board._use_in_group(self.name, middleware, order)

    def _full_name(self, name: str) -> str:
        return f"{self.name}.{name}"

    def _is_injected(self, kind: object) -> bool:
        return self.board._is_injected(kind)

    def _add_resource(self, resource: Resource) -> None:
        self.board._add_resource(resource)

    def _add_prompt(self, prompt: Prompt) -> None:
        self.board._add_prompt(prompt)
