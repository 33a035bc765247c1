"""The lock file: the accepted definitions of each server.

It is JSON with a line for each definition, sorted, so that version control shows what changed. The digest covers the
whole definition as the server sent it, including unknown members; the definition itself is stored beside it, so that
changes can be described.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.errors import SetupError
from pegboard.gateway.lock.definition_diff import describe_differences
from pegboard.gateway.lock.definition_scan import Finding, find_shadows, scan_definition
from pegboard.gateway.servers.server_catalog import Definition, ServerCatalog
from pegboard.security.ownership import open_trusted_file
from pegboard.tools.naming import suggest
from pegboard.tools.qualified_names import ToolName, parse_name

Kind: TypeAlias = Literal["tools", "prompts", "templates", "servers"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Server: TypeAlias = tuple[str, str]
"""A toolbox, and a server in it."""

_FORMAT: Final = 1
_MAX_BYTES: Final = 256 * 1024 * 1024
MEMBERS: Final[Mapping[Kind, str]] = {"tools": "name", "prompts": "name", "templates": "uriTemplate"}
"""The member that names a definition of each kind; a server's own description is named after the server."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Pin(Struct, frozen=True):
    """An accepted definition."""

    digest: str
    definition: dict[str, Json]

    @property
    def size(self) -> int:
        return len(_encode(self.definition))


Place: TypeAlias = tuple[Kind, str]
"""The kind of a pin, and `toolbox/server/name`."""
Pinned: TypeAlias = Mapping[Place, Pin]


class _File(Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    tools: dict[str, Pin] = {}
    prompts: dict[str, Pin] = {}
    templates: dict[str, Pin] = {}
    servers: dict[str, Pin] = {}


class Lock(Struct, frozen=True):
    """All accepted definitions."""

    pins: Pinned = {}

    def of_server(self, kind: Kind, toolbox: str, server: str) -> dict[str, Pin]:
        """The pins of one server, by the server's own names."""
        start = f"{toolbox}/{server}/"
        return {
            place[len(start) :]: pin for (a, place), pin in self.pins.items() if a == kind and place.startswith(start)
        }


class ChangedDefinition(Struct, frozen=True):
    """A definition that differs from the accepted one, with the changes."""

    place: Place
    words: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    """The differences from the accepted definitions; `flagged` are findings in new or changed ones."""

    changed: tuple[ChangedDefinition, ...] = ()
    added: tuple[Place, ...] = ()
    vanished: tuple[Place, ...] = ()
    renamed: tuple[tuple[Place, Place], ...] = ()
    flagged: tuple[tuple[Place, Finding], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.vanished or self.renamed)

    def as_json(self) -> dict[str, Json]:
        """The differences for programs."""

        def named(place: Place) -> dict[str, Json]:
            return {"kind": place[0], "name": place[1]}

        return {
            "changed": [{**named(change.place), "words": change.words} for change in self.changed],
            "renamed": [{**named(new), "before": old[1]} for old, new in self.renamed],
            "added": [named(place) for place in self.added],
            "vanished": [named(place) for place in self.vanished],
            "flagged": [
                {
                    **named(place),
                    "rule": finding.rule,
                    "where": finding.where,
                    "shown": finding.shown,
                    "reason": finding.reason,
                }
                for place, finding in self.flagged
            ],
        }


def digest(definition: Definition) -> str:
    """The digest of a definition, whatever the order of its members."""
    return f"sha256:{sha256(_encode(definition)).hexdigest()}"


def name_place(kind: Kind, toolbox: str, server: str, definition: Definition) -> Place:
    """The key of a definition in the lock file."""
    return kind, f"{toolbox}/{server}" + (f"/{definition[MEMBERS[kind]]}" if kind in MEMBERS else "")


def read_lock(path: str | Path) -> Lock | None:
    """Read a lock file; None if it does not exist."""
    file = Path(path)
    try:
        with open_trusted_file(file) as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise SetupError(f"{path} is larger than {_MAX_BYTES} bytes, the limit for a lock file")
    try:
        read = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise SetupError(
            f"{path} is not a lock file: {error}; restore it from version control, or remove it and run `pegboard lock`"
        ) from None
    if read.format != _FORMAT:
        raise SetupError(f"{path} has format {read.format}, and this version of pegboard reads format {_FORMAT}")
    pins: dict[Place, Pin] = {(kind, place): pin for kind in KINDS for place, pin in getattr(read, kind).items()}
    for (_, place), pin in pins.items():
        if digest(pin.definition) != pin.digest:
            raise SetupError(
                f"{path}: the digest of {place} does not match its definition, so the file was edited; restore it from "
                f"version control, or accept the current definition: pegboard lock CONFIG --accept {place}"
            )
    return Lock(pins)


def write_lock(lock: Lock, path: str | Path) -> None:
    """Replace the file atomically."""
    file = Path(path)
    lines = ["{", f'"format": {_FORMAT},']
    for kind in KINDS:
        own = sorted((place, pin) for (a, place), pin in lock.pins.items() if a == kind)
        lines.append(f'"{kind}": {{')
        lines += [f"{_encode(place).decode()}: {_line(pin)}," for place, pin in own]
        lines[-1] = lines[-1].removesuffix(",")
        lines.append("}," if kind != KINDS[-1] else "}")
    lines.append("}\n")
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                stream.write("\n".join(lines))
            # Created for its owner only; a lock file contains no secrets, and is shared like the configuration.
            Path(name).chmod(0o644)
            Path(name).replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror or error}") from None


def _line(pin: Pin) -> str:
    return f'{{"digest": {_encode(pin.digest).decode()}, "definition": {_encode(pin.definition).decode()}}}'


def pin_all(catalogs: Mapping[Server, ServerCatalog]) -> dict[Place, Pin]:
    """The current definitions of the servers, as pins."""
    return {
        place: Pin(digest(definition), dict(definition))
        for (toolbox, server), catalog in catalogs.items()
        for place, definition in _definitions(toolbox, server, catalog)
    }


def compare(lock: Lock, catalogs: Mapping[Server, ServerCatalog], unreached: Collection[Server] = ()) -> Report:
    """Compare the current definitions with the accepted ones; servers that could not be reached are left out."""
    now = pin_all(catalogs)
    before = {place: pin for place, pin in lock.pins.items() if _server(place) not in unreached}
    changed = [
        ChangedDefinition(place, describe_differences(before[place].definition, pin.definition))
        for place, pin in now.items()
        if place in before and before[place].digest != pin.digest
    ]
    added = {place: pin for place, pin in now.items() if place not in before}
    vanished = {place: pin for place, pin in before.items() if place not in now}
    renamed = tuple(_pair(vanished, added))
    for old, new in renamed:
        del vanished[old], added[new]
    fresh = {*added, *(change.place for change in changed), *(new for _, new in renamed)}
    return Report(
        changed=tuple(changed),
        added=tuple(added),
        vanished=tuple(vanished),
        renamed=renamed,
        flagged=tuple(_flag(now, fresh)),
    )


def accept(
    lock: Lock,
    catalogs: Mapping[Server, ServerCatalog],
    unreached: Collection[Server] = (),
    names: Collection[str] = (),
) -> Lock:
    """The lock with the current definitions of the servers in place of the accepted ones: all, or those named.

    A name is `toolbox/server/tool`, the tool's name at the gateway, or a toolbox or server for everything in it.
    """
    now = pin_all(catalogs)
    kept = {place: pin for place, pin in lock.pins.items() if _server(place) in unreached}
    if not names:
        return Lock({**kept, **now})
    chosen: set[Place] = set()
    known = [*dict.fromkeys([*lock.pins, *now])]
    for name in names:
        parsed = parse_name(name)
        meant = {name, f"{parsed.toolbox}/{parsed.server}/{parsed.tool}" if parsed else name}
        found = [
            place
            for place in known
            if any(place[1] == spelling or place[1].startswith(f"{spelling}/") for spelling in meant)
        ]
        if not found:
            close = suggest(name, dict.fromkeys(place for _, place in known))
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise SetupError(f"Nothing to accept is called {name!r}{hint}")
        chosen.update(found)
    # Both names of a renamed definition go together.
    pairs = _pair(
        {p: q for p, q in lock.pins.items() if p not in now}, {p: q for p, q in now.items() if p not in lock.pins}
    )
    for pair in pairs:
        if chosen & set(pair):
            chosen.update(pair)
    pins = {place: pin for place, pin in lock.pins.items() if place not in chosen or place in kept}
    return Lock({**pins, **{place: pin for place, pin in now.items() if place in chosen}})


def _definitions(toolbox: str, server: str, catalog: ServerCatalog) -> Iterator[tuple[Place, Definition]]:
    for kind in MEMBERS:
        for definition in getattr(catalog, kind):
            yield name_place(kind, toolbox, server, definition), definition
    if catalog.instructions is not None:
        instructions: Definition = {"instructions": catalog.instructions}
        yield name_place("servers", toolbox, server, instructions), instructions


def _server(place: Place) -> Server:
    toolbox, server = place[1].split("/", 2)[:2]
    return toolbox, server


def _pair(gone: Mapping[Place, Pin], come: Mapping[Place, Pin]) -> Iterator[tuple[Place, Place]]:
    """Definitions that changed only their name, within one server."""
    nameless: dict[tuple[Kind, Server, str], list[Place]] = {}
    for place, pin in gone.items():
        nameless.setdefault(_without_name(place, pin), []).append(place)
    for place, pin in come.items():
        alike = nameless.get(_without_name(place, pin))
        if alike:
            yield alike.pop(0), place


def _without_name(place: Place, pin: Pin) -> tuple[Kind, Server, str]:
    # A title is usually made from the name.
    names = {MEMBERS.get(place[0]), "title"}
    return place[0], _server(place), digest({key: value for key, value in pin.definition.items() if key not in names})


def _flag(now: Mapping[Place, Pin], fresh: Collection[Place]) -> Iterator[tuple[Place, Finding]]:
    tools = {ToolName(*place.split("/", 2)): pin.definition for (kind, place), pin in now.items() if kind == "tools"}
    shadows = find_shadows(tools)
    for place in now:
        if place in fresh:
            found = scan_definition(now[place].definition)
            if place[0] == "tools":
                found += shadows.get(ToolName(*place[1].split("/", 2)), [])
            yield from ((place, finding) for finding in found)
