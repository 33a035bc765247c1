"""The tools of a board, their encoded list, and the error for an unknown tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from pegboard import providers
from pegboard.call import EncodedResult, Json
from pegboard.catalog.caching import Caching
from pegboard.catalog.pagination import ShownLists
from pegboard.errors import DeclarationError, PegboardError, UnknownTool
from pegboard.protocol.json_values import objects_in
from pegboard.rules.verdicts import View
from pegboard.tools.naming import NameSuggestions, snake_case
from pegboard.tools.tool import TRANSPORTS, Tool, tool_from_function


def _order_versions(version: str) -> list[tuple[bool, int, str]]:
    """Numbers are compared as numbers, and come after texts."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"[._-]", version)]


class ToolSelection(Struct, frozen=True):
    """Tools by name, tag or category: each that any of these covers."""

    names: frozenset[str]
    tags: frozenset[str]
    categories: frozenset[str]

    def covers(self, tool: Tool) -> bool:
        """Whether a tool is one of them."""
        return (
            not self.names.isdisjoint((tool.name, tool.versioned))
            or tool.category in self.categories
            or not self.tags.isdisjoint(frozenset(tool.tags))
        )


class ToolCatalog:
    """Looks up tools by exact name; every change increments `generation` and notifies watchers.

    It works without a board too: `ToolCatalog([search, MemorySearch()])`, with functions and declared tools.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        # Those that are enabled, and all of them.
        self._tools: dict[str, Tool] = {}
        self._all: dict[str, Tool] = {}
        self._switches: dict[ToolSelection, bool] = {}
        self._by_words: dict[str, str] = {}
        self._listed: tuple[int, dict[str, EncodedResult], ShownLists[EncodedResult]] | None = None
        self._watchers: list[Callable[[], None]] = []
        self._near: list[Callable[[], None]] = []
        self._touched: list[Callable[[], None]] = []
        self._checks: list[Callable[[Tool], None]] = []
        self._suggestions = NameSuggestions()
        self.generation = 0
        self.caching = Caching(scope="public")
        self.explain_unknown: Callable[[str, View | None], PegboardError] | None = None
        for tool in tools:
            self.add(tool)

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def newest(self) -> Tool | None:
        """The tool that was added last."""
        return next(reversed(self._all.values()), None)

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool | None:
        """The tool with exactly that name."""
        return self._tools.get(name)

    def find(self, name: str) -> Tool:
        """The tool with exactly that name; UnknownTool with the closest names if there is none."""
        tool = self._tools.get(name)
        if tool is None:
            raise self.unknown(name)
        return tool

    def unknown(self, name: str, view: View | None = None) -> PegboardError:
        """The error for a name that is not in the catalog: UnknownTool, unless `explain_unknown` knows a better one.

        `view` is that of the caller, which learns nothing about tools that it does not see.
        """
        if self.explain_unknown is not None:
            return self.explain_unknown(name, view)
        close = self.suggest(name, view)
        hint = f", did you mean {' or '.join(map(repr, close))}?" if close else ""
        return UnknownTool(f"Unknown tool: {name[:128]!r}{hint}", {"suggestions": close} if close else None)

    def suggest(self, name: str, view: View | None = None) -> list[str]:
        """Up to three names that are close to an unknown one; none after too many unknown names."""
        listed = [tool for tool in tuple(self._tools.values()) if tool.listed] if view is None else self.shown(view)
        shown = [tool.name for tool in listed]
        return self._suggestions.suggest(name, shown)

    def shown(self, view: View) -> list[Tool]:
        """The tools that callers with this view see."""
        return [tool for tool in tuple(self._tools.values()) if tool.listed and view.of(tool).listed]

    def add(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Add a tool; a name that is in use, or has the same words as one in use, is rejected."""
        tool = tool.prepare() if isinstance(tool, Tool) else tool_from_function(tool)
        if tool.version and not tool.mounted and not tool.versioned:
            return self._add_version(tool)
        words = snake_case(tool.name)
        taken = self.taken(tool.name)
        if taken is not None:
            how = "is taken" if taken == tool.name else f"has the same words as {taken!r}"
            other = self._all[taken].source
            raise DeclarationError(
                f"{tool.source}: the tool name {tool.name!r} {how}"
                + (f" (declared at {other})" if other else "")
                + "; give one of them another name"
            )
        for check in self._checks:
            check(tool)
        self._all[tool.name] = tool
        self._by_words[words] = tool.name
        if self._is_enabled(tool):
            self._tools[tool.name] = tool
            self._changed()
        else:
            self._tools_changed()
        return tool

    def _add_version(self, tool: Tool) -> Tool:
        """Add one version of a tool: under a name with the version, and if it is the highest one under its own name."""
        latest = self._all.get(tool.name)
        if latest is not None and not latest.version:
            raise DeclarationError(
                f"{tool.source}: {tool.name!r} exists without a version (declared at {latest.source}); give it one, too"
            )
        pinned = self.add(tool.pinned())
        if latest is not None and _order_versions(latest.version) > _order_versions(tool.version):
            return pinned
        if latest is not None:
            self._drop(latest.name)
        plain = tool.renamed(tool.name)
        plain.versioned = tool.name
        return self.add(plain)

    def _drop(self, name: str) -> Tool:
        tool = self._all.pop(name)
        self._tools.pop(name, None)
        del self._by_words[snake_case(name)]
        return tool

    def taken(self, name: str) -> str | None:
        """The name of the tool that has the same words as this name."""
        return self._by_words.get(snake_case(name))

    def remove(self, name: str) -> Tool:
        """Remove a tool."""
        tool = self._all.get(name) or self.find(name)
        self._drop(name)
        if tool.version and tool.listed and not tool.mounted:
            self._remove_version(tool)
        self._changed()
        return tool

    def _remove_version(self, tool: Tool) -> None:
        """The listed version is removed: the next one takes its place."""
        self._drop(f"{tool.name}.v{tool.version}")
        others = [other for other in self._all.values() if other.versioned == tool.name]
        if others:
            latest = max(others, key=lambda other: _order_versions(other.version)).renamed(tool.name)
            latest.listed, latest.own_name = True, tool.own_name
            self.add(latest)

    def replace_all(self, tools: Iterable[Tool], *, tell: bool = True) -> None:
        """Replace all tools by these, in this order: prepared tools with different names.

        `tell` says whether the list that clients see has changed.
        """
        self._all = {tool.name: tool for tool in tools}
        self._tools = {name: tool for name, tool in self._all.items() if self._is_enabled(tool)}
        self._by_words = {snake_case(name): name for name in self._all}
        if tell:
            self._changed()
        else:
            self._tools_changed()

    def switch(self, selection: ToolSelection, *, on: bool) -> None:
        """Enable or disable the tools of a selection, also those that are added later; the latest switch counts."""
        for name in selection.names:
            if name not in self._all:
                self.find(name)
        self._switches.pop(selection, None)
        self._switches[selection] = on
        before = self._tools
        self._tools = {name: tool for name, tool in self._all.items() if self._is_enabled(tool)}
        if list(before) != list(self._tools):
            self._changed()

    def _is_enabled(self, tool: Tool) -> bool:
        for selection in reversed(self._switches):
            if selection.covers(tool):
                return self._switches[selection]
        return True

    def _touch(self) -> None:
        """The tools changed in a way that their list does not show: chains are composed again."""
        self.generation += 1
        for watcher in self._touched:
            watcher()

    def _watch_touches(self, watcher: Callable[[], None]) -> None:
        """Call back whenever chains have to be composed again although no tool was added or removed."""
        self._touched.append(watcher)

    def _watch(self, watcher: Callable[[], None]) -> None:
        """Call back after each change of the list that clients see."""
        self._watchers.append(watcher)

    def _watch_in_process(self, watcher: Callable[[], None]) -> None:
        """Call back whenever tools are added or removed, whether clients are notified or not."""
        self._near.append(watcher)

    def listing(self, transport: str = "", view: View | None = None) -> EncodedResult:
        """The result of tools/list for a transport and a view; the same object until a change."""
        listed = self._listed
        # Another thread may change the catalog now: the cached list has the generation that it is at least from.
        generation = self.generation
        if listed is None or listed[0] != generation:
            listed = self._listed = generation, self._list(), ShownLists()
        _, lists, shown = listed
        if transport not in lists:
            transport = ""
        if view is None:
            return lists[transport]
        return shown.get((view, transport)) or self._list_for(view, transport, lists[transport], shown)

    def _list_for(
        self, view: View, transport: str, whole: EncodedResult, shown: ShownLists[EncodedResult]
    ) -> EncodedResult:
        names = {tool.name for tool in self.shown(view)}
        tools = [definition for definition in objects_in(whole.value["tools"]) if definition["name"] in names]
        hints = self.caching.private().hints()
        content = tuple(definition["name"] for definition in tools)
        return shown.add((view, transport), content, lambda: EncodedResult({"tools": tools, **hints}))

    def _list(self) -> dict[str, EncodedResult]:
        """All lists: the whole one, and one for each transport that some tool excludes."""
        tools = tuple(self._tools.values())
        hints = self.caching.hints()
        tools = tuple(tool for tool in tools if tool.listed)
        lists = {"": EncodedResult({"tools": [tool.definition() for tool in tools], **hints})}
        for transport in TRANSPORTS:
            shown = [tool for tool in tools if not tool.transports or transport in tool.transports]
            if len(shown) < len(tools):
                lists[transport] = EncodedResult({"tools": [tool.definition() for tool in shown], **hints})
        return lists

    def export(
        self, form: str, *, strict: bool = True, description_tokens: int | None = None
    ) -> list[dict[str, Json]] | str:
        """The definitions in one of the formats of `pegboard.providers`, or the text for `markdown`.

        `strict` uses OpenAI's strict subset for every tool that it can express; `description_tokens` limits each
        description.
        """
        return providers.export(
            [tool for tool in self if tool.listed],
            form,
            providers.ExportOptions(strict=strict, description_tokens=description_tokens),
        )

    def _tools_changed(self) -> None:
        self.generation += 1
        for watcher in self._near:
            watcher()

    def _changed(self) -> None:
        self._tools_changed()
        for watcher in self._watchers:
            watcher()
