"""A board in another one: its tools, prompts and resources under a prefix, for as long as both exist.

Theory of operation. What is mounted are entries of their own in the catalogs of the outer board. The entry of a tool leads
to the tool of the inner board, so a call finds it in one lookup, and its chain has the middleware of the outer board around
that of the inner one, composed once. Prompts and resources are entries with a relay, which passes requests on with their
inner names. The outer entries follow every change of the inner catalogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, structs

from pegboard.boards.board_lifetime import MountedLifetime
from pegboard.call import Call, Change, Done, EncodedResult, Handler, Json, Reply
from pegboard.catalog.folder import Folder
from pegboard.catalog.prompt import Prompt, PromptCatalog, RelayedPrompt
from pegboard.catalog.resource import RelayedResource, Resource, ResourceCatalog
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import DeclarationError
from pegboard.protocol.json_values import as_object
from pegboard.subscriptions.change_log import ChangeLog
from pegboard.tools.naming import check_name
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.tools")

_FORWARDED: Final = frozenset({"updated", "notification"})


class MountedBoard(Protocol):
    """A board, as far as mounting it needs one."""

    name: str
    tools: ToolCatalog
    prompts: PromptCatalog
    resources: ResourceCatalog
    changes: ChangeLog

    @property
    def lifetime(self) -> MountedLifetime: ...

    @property
    def mounts(self) -> Iterable[Mount]: ...

    @property
    def item_methods(self) -> Mapping[str, Handler]:
        """The methods for prompts, resources and completions."""

    def _add_prompt(self, prompt: Prompt) -> None: ...

    def _add_resource(self, resource: Resource) -> None: ...


class Mount:
    """One board within another, under a prefix; an empty one changes no names."""

    def __init__(
        self,
        outer: MountedBoard,
        inner: MountedBoard,
        prefix: str,
        source: Any = None,
        accepts: Callable[[Tool], bool] | None = None,
    ) -> None:
        """`source` is a server that stands for the board, and is started and stopped in its place; with `accepts`, only these tools are shown.

        What another server offers may collide with something at any time: then it is left out and logged.
        """
        if prefix:
            check_name(prefix, "mount(prefix=…)")
        self.outer = outer
        self.inner = inner
        self.source: Any = inner if source is None else source
        self.lifetime: MountedLifetime = inner.lifetime if source is None else source
        self._accepts = accepts
        self.prefix = prefix
        self._tools: dict[str, Tool] = {}
        self._prompts: dict[str, tuple[Prompt, Prompt]] = {}
        self._resources: dict[str, tuple[Resource, Resource]] = {}
        self._check_cycle()
        self._check_collisions()
        if accepts is None:
            inner.tools._checks.append(self._check_tool)
        inner.tools._watch(self._sync_tools)
        inner.tools._watch_in_process(self._sync_tools)
        inner.tools._watch_touches(outer.tools._touch)
        inner.prompts._watch(self._sync_prompts)
        inner.resources._watch(self._sync_resources)
        inner.changes.forward_to(self._forward)
        inner.changes.followed_by(self._followed)
        outer.changes.watch_followed(inner.changes.uris_changed)
        self._sync_tools()
        self._sync_prompts()
        self._sync_resources()

    # -- names ---------------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        """The outer name of a tool or a prompt."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def to_outer(self, uri: str) -> str:
        """The outer URI of a resource or template: the prefix is the first part behind the scheme."""
        scheme, colon, rest = uri.partition(":")
        if not self.prefix or not colon or "{" in scheme:
            return uri
        slashes = "//" if rest.startswith("//") else ""
        return f"{scheme}:{slashes}{self.prefix}/{rest.removeprefix(slashes)}"

    def to_inner(self, uri: str) -> str:
        """The URI in the inner board."""
        scheme, _, rest = uri.partition(":")
        slashes = "//" if rest.startswith("//") else ""
        below = rest.removeprefix(slashes)
        if not self.prefix or not below.startswith(self.prefix + "/"):
            return uri
        return f"{scheme}:{slashes}{below.removeprefix(self.prefix + '/')}"

    def _check_cycle(self) -> None:
        inside = [self.inner]
        for board in inside:
            if board is self.outer:
                raise DeclarationError(
                    f"mount: {self.outer.name!r} cannot contain itself, which {self.inner.name!r} would lead to; "
                    "move what both need to a third board and mount that one"
                )
            inside.extend(mount.inner for mount in board.mounts)

    def _check_collisions(self) -> None:
        for tool in self.inner.tools if self._accepts is None else ():
            self._check_tool(tool)
        for prompt in self.inner.prompts.all:
            if self.outer.prompts.get(self.name(prompt.name)) is not None:
                raise self._taken("prompt", self.name(prompt.name))
        for resource in (*self.inner.resources.fixed, *self.inner.resources.templates):
            if self.outer.resources.get(self.to_outer(resource.uri)) is not None:
                raise self._taken("resource", self.to_outer(resource.uri))

    def _check_tool(self, tool: Tool) -> None:
        """Reject a tool whose outer name is in use, before it is added to the inner board."""
        name = self.name(tool.name)
        check_name(name, f"mount of {self.inner.name!r}")
        if self.outer.tools.taken(name) is not None:
            raise self._taken("tool", name)

    def _taken(self, kind: str, name: str) -> DeclarationError:
        how = "another prefix" if self.prefix else "a prefix"
        return DeclarationError(
            f"mount: {self.outer.name!r} already has the {kind} {name!r}, which {self.inner.name!r} would add; "
            f"mount it with {how}, or rename one of them"
        )

    # -- following the inner board -------------------------------------------------------------------------------------

    def _sync_tools(self) -> None:
        accepts = self._accepts
        wanted = {tool.name: tool for tool in self.inner.tools if accepts is None or accepts(tool)}
        for name, shown in list(self._tools.items()):
            if wanted.get(name) is not shown.mounted[0][1]:
                del self._tools[name]
                self.outer.tools.remove(shown.name)
        for name, tool in wanted.items():
            if name not in self._tools:
                with self._left_out("tool"):
                    self._tools[name] = self.outer.tools.add(self._show(tool))

    @contextmanager
    def _left_out(self, kind: str) -> Iterator[None]:
        """Log what another server offers and what cannot be added."""
        try:
            yield
        except DeclarationError as problem:
            if self._accepts is None:
                raise
            _log.warning("%s: a %s is left out: %s", self.prefix, kind, problem)

    def shows(self, tool: Tool) -> bool:
        """Whether this is an outer entry of this mount."""
        return self._tools.get(tool.mounted[0][1].name) is tool

    def _show(self, tool: Tool) -> Tool:
        shown = tool.renamed(self.name(tool.name))
        shown.mounted = ((self.inner, tool), *tool.mounted)
        # The inner board runs the middleware of the tool itself. The rules of the outer one know it by its outer name.
        shown.hooks, shown.own_name = (), self.name(tool.versioned) if tool.versioned else ""
        shown.versioned = shown.own_name
        return shown

    def _sync_prompts(self) -> None:
        wanted = {prompt.name: prompt for prompt in self.inner.prompts.all}
        for name, (prompt, shown) in list(self._prompts.items()):
            if wanted.get(name) is not prompt:
                del self._prompts[name]
                self.outer.prompts.remove(shown.name)
        for name, prompt in wanted.items():
            if name not in self._prompts:
                made = RelayedPrompt(
                    {**prompt.definition(), "name": self.name(name)},
                    self._relay,
                    source=self.inner.name,
                    toolbox=prompt.item.toolbox,
                    server=prompt.item.server,
                    scopes=frozenset(prompt.item.scopes),
                    category=prompt.item.category,
                    tags=prompt.item.tags,
                )
                with self._left_out("prompt"):
                    self.outer._add_prompt(made)
                    # Only what was added is removed again.
                    self._prompts[name] = prompt, made

    def _sync_resources(self) -> None:
        inner, outer = self.inner.resources, self.outer.resources
        wanted = {resource.uri: resource for resource in (*inner.fixed, *inner.templates)}
        for uri, (resource, shown) in list(self._resources.items()):
            if wanted.get(uri) is not resource:
                del self._resources[uri]
                outer.remove(shown.uri)
        for uri, resource in wanted.items():
            if uri not in self._resources:
                with self._left_out("resource"):
                    made = self._show_resource(resource)
                    self.outer._add_resource(made)
                    self._resources[uri] = resource, made
        shown_folders = {folder.template for folder in outer.folders}
        for folder in inner.folders:
            if self.to_outer(folder.template) not in shown_folders:
                outer.folders.append(MountedFolder(folder, self.to_outer))

    def _show_resource(self, resource: Resource) -> RelayedResource:
        if self.prefix and self.to_outer(resource.uri) == resource.uri:
            # It would match the URIs of all other boards and servers.
            raise DeclarationError(
                f"mount: {resource.uri!r:.200} of {self.inner.name!r} cannot get a prefix; begin it with a scheme, such as shop:"
            )
        definition = resource.definition()
        member = "uri" if resource.template is None else "uriTemplate"
        return RelayedResource(
            {**definition, member: self.to_outer(resource.uri), "name": self.name(resource.name)},
            self._relay,
            source=self.inner.name,
            toolbox=resource.item.toolbox,
            server=resource.item.server,
            scopes=frozenset(resource.item.scopes),
            category=resource.item.category,
            tags=resource.item.tags,
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _relay(self, call: Call) -> Reply:
        """Answer a request for a prompt, a resource or a completion by the inner board."""
        inner = structs.replace(call, _origin=call)
        if call.method == "completion/complete":
            asked = as_object(msgspec.json.decode(call.params))
            ref = dict(as_object(asked["ref"]))
            if "uri" in ref:
                ref["uri"] = self.to_inner(str(ref["uri"]))
            else:
                ref["name"] = self._inner_name(str(ref["name"]))
            inner.params = Raw(msgspec.json.encode({**asked, "ref": ref}))
        elif call.method == "prompts/get":
            inner.name = self._inner_name(call.name)
        else:
            inner.name = self.to_inner(call.name)
        return self.relocated(await self.inner.item_methods[call.method](inner))

    def _inner_name(self, name: str) -> str:
        return name.removeprefix(self.prefix + ".") if self.prefix else name

    def relocated(self, reply: Reply) -> Reply:
        """The reply with the outer URIs of the inner board's resources."""
        if not self.prefix or not isinstance(reply, Done) or not len(self.inner.resources):
            return reply
        result = reply.result.value if isinstance(reply.result, EncodedResult) else reply.result
        moved = {
            member: [self._move(item) for item in items]
            for member in ("content", "contents", "messages")
            if isinstance(items := result.get(member), list)
        }
        return structs.replace(reply, result={**result, **moved}) if moved else reply

    def _move(self, item: Json) -> Json:
        """A content block, a part of a resource, or a message, with outer URIs."""
        if not isinstance(item, Mapping):
            return item
        moved = dict(item)
        if isinstance(uri := item.get("uri"), str) and self._owns(uri):
            moved["uri"] = self.to_outer(uri)
        for member in ("resource", "content"):
            if isinstance(inside := item.get(member), list):
                moved[member] = [self._move(part) for part in inside]
            elif isinstance(inside, Mapping):
                moved[member] = self._move(inside)
        return moved

    def _owns(self, uri: str) -> bool:
        return self.inner.resources.get(uri) is not None or self.inner.resources.match(uri) is not None

    # -- changes of content --------------------------------------------------------------------------------------------

    def _forward(self, change: Change) -> None:
        if change.kind in _FORWARDED:
            uri = self.to_outer(change.uri) if change.kind == "updated" else change.uri
            self.outer.changes.publish(structs.replace(change, uri=uri))

    def _followed(self) -> Iterable[str]:
        """The inner resources that have subscribers at the outer board."""
        return [inner for uri in self.outer.changes.followed() if self._owns(inner := self.to_inner(uri))]


class MountedFolder(Folder):
    """A folder of a mounted board: its files under outer URIs."""

    def __init__(self, folder: Folder, to_outer: Callable[[str], str]) -> None:
        self.uri = to_outer(folder.uri)
        self._inner = folder
        self._to_outer = to_outer

    @property
    def seen(self) -> bool:
        return self._inner.seen

    def look(self) -> bool:
        return self._inner.look()

    def definitions(self) -> Iterator[dict[str, Json]]:
        for definition in self._inner.definitions():
            yield {**definition, "uri": self._to_outer(str(definition["uri"]))}
