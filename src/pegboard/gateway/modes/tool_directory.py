"""The tools of an endpoint by every name they can be requested by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from pegboard.call import Json
from pegboard.call_target import UNKNOWN_ITEM, CalledTool
from pegboard.gateway.modes.tool_search import MAX_FIELD_LENGTH, SearchDocument, SearchIndex
from pegboard.tools.qualified_names import ToolName


class DirectoryEntry(Struct, frozen=True):
    """A tool of the endpoint: its served name, its server, its definition as tools/list shows it, and the tool itself."""

    name: str
    place: ToolName
    definition: Mapping[str, Json]
    tags: tuple[str, ...] = ()
    tool: CalledTool = UNKNOWN_ITEM


class Directory:
    """The tools of an endpoint at one time; replaced after each change. The search index is built on demand."""

    def __init__(self, entries: Iterable[DirectoryEntry] = ()) -> None:
        self.entries = tuple(entries)
        self._by_name = {entry.name: entry for entry in self.entries}
        self._by_place = {entry.place: entry for entry in self.entries}
        self._toolboxes: dict[str, list[DirectoryEntry]] = {}
        for entry in self.entries:
            self._toolboxes.setdefault(entry.place.toolbox, []).append(entry)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[DirectoryEntry]:
        return iter(self.entries)

    def find(self, name: str) -> DirectoryEntry | None:
        """The tool with this served or qualified name."""
        return self._by_name.get(name) or self._by_qualified.get(name)

    def find_at(self, place: ToolName) -> DirectoryEntry | None:
        """The tool with this name at this server."""
        return self._by_place.get(place)

    def of_toolbox(self, toolbox: str) -> tuple[DirectoryEntry, ...]:
        return tuple(self._toolboxes.get(toolbox, ()))

    def search(self, query: str, admits: Callable[[DirectoryEntry], bool]) -> list[DirectoryEntry]:
        """The tools that match the query, best first; tools that the caller may not see have no effect."""
        entries = self.entries
        return [entry for number in self.index.search(query) if admits(entry := entries[number])]

    @cached_property
    def _by_qualified(self) -> Mapping[str, DirectoryEntry]:
        """If the served name is an alias or plain, the qualified name works too."""
        return {entry.place.qualified: entry for entry in self.entries}

    @cached_property
    def index(self) -> SearchIndex:
        """Everything that can be searched; numbered like the entries."""
        return SearchIndex(_page(entry) for entry in self.entries)


def _page(entry: DirectoryEntry) -> SearchDocument:
    definition, place = entry.definition, entry.place
    return SearchDocument(
        name=place.tool,
        title=_text(definition.get("title")),
        owner=f"{place.toolbox} {place.server}",
        # The server has its own field, and would count twice for tools that are shown with it.
        description=_text(definition.get("description")).removeprefix(f"[{place.toolbox}/{place.server}]"),
        arguments=arguments_text(definition.get("inputSchema")),
        tags=" ".join(entry.tags),
        changes=_changes(definition.get("annotations")),
    )


def _changes(annotations: Json) -> bool | None:
    hint = annotations.get("readOnlyHint") if isinstance(annotations, Mapping) else None
    return None if hint is None else hint is not True


def arguments_text(schema: Json) -> str:
    """The names and descriptions of a tool's arguments."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return ""
    texts, room = [], MAX_FIELD_LENGTH
    for name, about in properties.items():
        text = f"{name} {_text(about.get('description'))}" if isinstance(about, Mapping) else str(name)
        texts.append(text)
        room -= len(text)
        if room < 0:
            break
    return "\n".join(texts)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
