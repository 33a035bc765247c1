"""`pegboard import [CLIENT|FILE …]`: put the servers of clients' files into one configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pegboard.call import Json
from pegboard.cli.arguments.config_argument import open_config
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.file_change import show_change_as_json, show_diff, write_change, write_change_as_json
from pegboard.cli.terminal.output import note
from pegboard.config.foreign.found_servers import FoundFile, find_files, read_client_file
from pegboard.config.foreign.known_clients import CLIENTS
from pegboard.errors import SetupError
from pegboard.middleware.observability.masking import mask_text
from pegboard.protocol.json_values import as_object
from pegboard.tools.naming import counted

_MOST_SERVERS: Final = 1000
"""Each one is added to the text on its own."""


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard import",
        description="Put the servers of clients' files into one configuration. Without --write, show what would change.",
        examples=(
            "pegboard import --into pegboard.json",
            "pegboard import cursor .vscode/mcp.json --into pegboard.toml --write",
        ),
    )
    parser.add_argument(
        "sources", metavar="CLIENT|FILE", nargs="*", help=f"{', '.join(CLIENTS)}, or a file; default: all clients"
    )
    parser.add_argument(
        "--into", metavar="CONFIG", help="the configuration; default: the one of `pegboard up`, or pegboard.json"
    )
    parser.add_argument("--toolbox", metavar="NAME", help="the toolbox; default: the first, or main")
    parser.add_argument("--write", action="store_true", help="write the configuration")
    parser.add_argument("--json", action="store_true", help="print the file, the action and its servers as JSON")
    chosen = parser.parse_intermixed_args(argv)
    config = open_config(chosen.into)
    place = config.toolbox(chosen.toolbox)
    merge = _Merge(config.servers(place))
    for file in _files(chosen.sources):
        if file.path.absolute() != config.file.path:
            merge.add(file)
    for line in merge.notes:
        note(line)
    if not merge.added:
        note("no new servers")
        if chosen.json:
            show_change_as_json(config.file, "import", [], written=False)
        return 0
    text = config.add(place, merge.added, f"The servers of {config.file.path.name}")
    if chosen.json:
        if chosen.write:
            write_change_as_json(config.file, text, "import", list(merge.added))
        else:
            show_change_as_json(config.file, "import", list(merge.added), written=False)
        return 0
    if chosen.write:
        write_change(config.file, text)
        return 0
    show_diff(config.file, text)
    note(f"{counted(len(merge.added), 'new server')}; --write writes {config.file.path}")
    return 0


def _files(sources: list[str]) -> Iterator[FoundFile]:
    if not sources:
        yield from find_files(Path.cwd(), os.environ)
    for source in sources:
        if source in CLIENTS:
            yield from find_files(Path.cwd(), os.environ, source)
        elif Path(source).is_file():
            yield from read_client_file(Path(source).absolute())
        else:
            raise SetupError(f"{source!r} is neither a file nor a client; the clients are {', '.join(CLIENTS)}")


class _Merge:
    """The servers of several files by name, beside those that a configuration has."""

    def __init__(self, known: Mapping[str, Json]) -> None:
        self.added: dict[str, Json] = {}
        self.notes: list[str] = []
        self._known = dict(known)
        self._sources: dict[str, Path] = {}

    def add(self, file: FoundFile) -> None:
        if file.problem:
            self.notes.append(f"{file.path}: {file.problem}")
        for warning in file.warnings:
            self.notes.append(f"{file.path}: {warning}")
        for server in file.servers:
            entry = {key: value for key, value in server.entry.items() if value not in ({}, [])}
            same = next(
                (name for name, old in self._known.items() if _address(as_object(old)) == _address(entry)), None
            )
            if same is not None:
                named = f" as {same!r}" if same != server.name else ""
                self.notes.append(
                    f"{file.path}: {server.name!r} is also in {self._sources[same]}{named}, and is imported once"
                    if same in self._sources
                    else f"{file.path}: {server.name!r} is already in the configuration{named}"
                )
                continue
            name = self._free(server.name, file.client)
            if name != server.name:
                self.notes.append(
                    f"{file.path}: {server.name!r} is another server than the one of that name, and becomes {name!r}"
                )
            for key in server.unread:
                self.notes.append(
                    f"{file.path}: {name}: {mask_text(key)!r} is a setting of its program and is not imported"
                )
            self.added[name] = self._known[name] = entry
            self._sources[name] = file.path
            if len(self.added) > _MOST_SERVERS:
                raise SetupError(f"{file.path}: more than {_MOST_SERVERS} servers to import; name fewer files")

    def _free(self, name: str, client: str) -> str:
        taken = {known.casefold() for known in self._known}
        candidates = (name, f"{name}-{client}", *(f"{name}-{number}" for number in range(2, 1000)))
        return next(candidate for candidate in candidates if candidate.casefold() not in taken)


def _address(entry: Mapping[str, Json]) -> tuple[str, ...]:
    """What two entries for the same server have in common."""
    command = entry.get("command") or ""
    args = entry.get("args")
    words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else ())]
    return (str(entry.get("url") or ""), str(entry.get("board") or ""), *map(str, words))
