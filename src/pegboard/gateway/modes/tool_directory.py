"""The tools of an endpoint by every name they can be requested by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.modes.tool_search import MAX_FIELD_LENGTH, SearchDocument, SearchIndex
from pegboard.tools.qualified_names import ToolName


class DirectoryEntry(Struct, frozen=True):
    """A tool of the endpoint: the name it goes by, where it is from, and its definition as tools/list shows it."""

    name: str
    place: ToolName
    definition: Mapping[str, Json]
    tags: tuple[str, ...] = ()


class Directory:
    """What is on an endpoint at one time; whatever changes, a new one is made. The index of words is made when needed."""

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
        """The tool that goes by this name, or whose qualified name it is."""
        return self._by_name.get(name) or self._by_qualified.get(name)

    def find_at(self, place: ToolName) -> DirectoryEntry | None:
        """The tool that this server calls so."""
        return self._by_place.get(place)

    def of_toolbox(self, toolbox: str) -> tuple[DirectoryEntry, ...]:
        return tuple(self._toolboxes.get(toolbox, ()))

    def search(self, query: str, admits: Callable[[DirectoryEntry], bool]) -> list[DirectoryEntry]:
        """The tools that have to do with the query, the best first; those that are not admitted leave no trace."""
        entries = self.entries
        return [entry for number in self.index.search(query) if admits(entry := entries[number])]

    @cached_property
    def _by_qualified(self) -> Mapping[str, DirectoryEntry]:
        """Where the served name is an alias, or plain, the qualified one is still understood."""
        return {entry.place.qualified: entry for entry in self.entries}

    @cached_property
    def index(self) -> SearchIndex:
        """All that can be searched; numbered as the entries are."""
        return SearchIndex(_page(entry) for entry in self.entries)


def _page(entry: DirectoryEntry) -> SearchDocument:
    definition, place = entry.definition, entry.place
    return SearchDocument(
        name=place.tool,
        title=_text(definition.get("title")),
        owner=f"{place.toolbox} {place.server}",
        # The owner has a field of its own, and would count twice for tools that are shown with it.
        description=_text(definition.get("description")).removeprefix(f"[{place.toolbox}/{place.server}]"),
        arguments=arguments_text(definition.get("inputSchema")),
        tags=" ".join(entry.tags),
    )


def arguments_text(schema: Json) -> str:
    """The names and descriptions of a tool's arguments."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return ""
    said, room = [], MAX_FIELD_LENGTH
    for name, about in properties.items():
        told = f"{name} {_text(about.get('description'))}" if isinstance(about, Mapping) else str(name)
        said.append(told)
        room -= len(told)
        if room < 0:
            break
    return "\n".join(said)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
