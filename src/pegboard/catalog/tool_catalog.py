"""The tools of a board, their encoded list, and the error for an unknown tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pegboard.call import EncodedResult, Json
from pegboard.catalog.caching import Caching
from pegboard.errors import DeclarationError, UnknownTool
from pegboard.providers.export import ExportOptions, export
from pegboard.tools.naming import fold_case, suggest
from pegboard.tools.tool import TRANSPORTS, Tool, tool_from_function


class ToolCatalog:
    """Looks tools up by exact name; every change moves `generation` and is told to those who watch.

    It works without a board too: `ToolCatalog([search, MemorySearch()])`, of functions and declared tools alike.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._folded: dict[str, str] = {}
        self._listed: tuple[int, dict[str, EncodedResult]] | None = None
        self._watchers: list[Callable[[], None]] = []
        self._near: list[Callable[[], None]] = []
        self.generation = 0
        self.caching = Caching(scope="public")
        self.explain_unknown: Callable[[str], tuple[str, Json]] | None = None
        for tool in tools:
            self.add(tool)

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool | None:
        """The tool of exactly that name."""
        return self._tools.get(name)

    def find(self, name: str) -> Tool:
        """The tool of exactly that name; UnknownTool with the closest ones if there is none."""
        tool = self._tools.get(name)
        if tool is None:
            raise self.unknown(name)
        return tool

    def unknown(self, name: str) -> UnknownTool:
        """The refusal of a name we do not have."""
        if self.explain_unknown is not None:
            return UnknownTool(*self.explain_unknown(name))
        close = self.suggest(name)
        hint = f", did you mean {' or '.join(map(repr, close))}?" if close else ""
        return UnknownTool(f"Unknown tool: {name[:128]!r}{hint}", {"suggestions": close} if close else None)

    def suggest(self, name: str) -> list[str]:
        """Up to three names that are close to one we do not have."""
        return suggest(name, self._tools)

    def add(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Hang a tool; a name that is taken, or differs from one only by case or punctuation, is refused."""
        tool = tool.prepare() if isinstance(tool, Tool) else tool_from_function(tool)
        folded = fold_case(tool.name)
        taken = self._folded.get(folded)
        if taken is not None:
            how = "is taken" if taken == tool.name else f"differs from {taken!r} only by case or punctuation"
            other = self._tools[taken].source
            raise DeclarationError(
                f"{tool.source}: the tool name {tool.name!r} {how}"
                + (f" (declared at {other})" if other else "")
                + "; give one of them another name"
            )
        self._tools[tool.name] = tool
        self._folded[folded] = tool.name
        self._changed()
        return tool

    def remove(self, name: str) -> Tool:
        """Take a tool down."""
        tool = self.find(name)
        del self._tools[name]
        del self._folded[fold_case(name)]
        self._changed()
        return tool

    def replace_all(self, tools: Iterable[Tool], *, tell: bool = True) -> None:
        """Have these and no others, in this order: prepared tools, whose names differ.

        `tell` says whether what clients are shown has changed.
        """
        self._tools = {tool.name: tool for tool in tools}
        self._folded = {fold_case(name): name for name in self._tools}
        if tell:
            self._changed()
        else:
            self._tools_changed()

    def touch(self) -> None:
        """Something about the tools changed that their list does not show: chains are made anew."""
        self.generation += 1

    def watch(self, watcher: Callable[[], None]) -> None:
        """Be called after each change that clients are told of."""
        self._watchers.append(watcher)

    def watch_in_process(self, watcher: Callable[[], None]) -> None:
        """Be called whenever other tools hang here than before, whether clients are told or not."""
        self._near.append(watcher)

    def listing(self, transport: str = "") -> EncodedResult:
        """What tools/list answers to who comes that way; the same object until something changes."""
        listed = self._listed
        # Another thread may change the catalog meanwhile: what is kept says of which generation it is at least.
        generation = self.generation
        if listed is None or listed[0] != generation:
            listed = self._listed = generation, self._list()
        lists = listed[1]
        return lists[transport if transport in lists else ""]

    def _list(self) -> dict[str, EncodedResult]:
        """All lists there are: the whole one, and one for each transport that some tool is not for."""
        tools = tuple(self._tools.values())
        hints = self.caching.hints()
        lists = {"": EncodedResult({"tools": [tool.definition() for tool in tools], **hints})}
        for transport in TRANSPORTS:
            shown = [tool for tool in tools if not tool.transports or transport in tool.transports]
            if len(shown) < len(tools):
                lists[transport] = EncodedResult({"tools": [tool.definition() for tool in shown], **hints})
        return lists

    def export(
        self, form: str, *, strict: bool = True, description_tokens: int | None = None
    ) -> list[dict[str, Json]] | str:
        """The definitions in one of the forms of `pegboard.providers`, or the text for `markdown`.

        `strict` asks OpenAI's strict subset of every tool that can be said in it; `description_tokens` is the most
        each description may cost.
        """
        return export(self, form, ExportOptions(strict=strict, description_tokens=description_tokens))

    def _tools_changed(self) -> None:
        self.generation += 1
        for watcher in self._near:
            watcher()

    def _changed(self) -> None:
        self._tools_changed()
        for watcher in self._watchers:
            watcher()
