"""The servers in the files of clients on this machine, in our own format."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.config.foreign.client_formats import translate
from pegboard.config.foreign.known_clients import CLIENTS, REFERENCE
from pegboard.config.mistakes import ConfigReport
from pegboard.config.source_file import ParsedSource, read_source
from pegboard.config.variables import INPUT, VariableSyntax
from pegboard.errors import SetupError
from pegboard.protocol.json_values import as_object

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^}]{0,255})\}|\$([A-Za-z_][A-Za-z0-9_]{0,200})")
_SYNTAX: Final = re.compile(r"[${}]")
_UPPER: Final = re.compile(r"[A-Z_][A-Z0-9_]*")


class FoundServer(Struct, frozen=True, kw_only=True):
    """A server of a client's file: its entry in our format, and the keys that only the client understands."""

    name: str
    entry: Mapping[str, Json]
    unread: tuple[str, ...] = ()

    def problems(self, environ: Mapping[str, str]) -> Iterator[str]:
        """Why it may not start here."""
        command = self.entry.get("command")
        program = command[0] if isinstance(command, list) and command else command
        if not program and not self.entry.get("url"):
            yield "has neither a command nor a URL"
        if isinstance(program, str) and program and "${" not in program and shutil.which(program) is None:
            yield f"no program {program!r} on this machine"
        missing = [name for name in dict.fromkeys(REFERENCE.findall(str(self.entry))) if name not in environ]
        if missing:
            yield f"not set: {', '.join(missing)}"


class FoundFile(Struct, frozen=True, kw_only=True):
    """A file of a client with its servers, or why it cannot be read."""

    client: str
    scope: str
    path: Path
    servers: tuple[FoundServer, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str = ""


def find_files(project: Path, environ: Mapping[str, str], only: str = "") -> Iterator[FoundFile]:
    """The files of all clients that exist here, or of one; in the home folder, a project's file may be the user's."""
    seen: set[tuple[str, Path]] = set()
    for name, client in CLIENTS.items():
        for scope in client.files if only in ("", name) else ():
            path = client.locate(scope, project, environ).path
            if path.is_file() and (name, path) not in seen:
                seen.add((name, path))
                yield from read_client_file(path, name, scope)


def read_client_file(path: Path, client: str = "file", scope: str = "") -> Iterator[FoundFile]:
    """The servers of a file; Claude Code keeps those of single projects in the user's file, too."""
    try:
        source = read_source(path)
    except SetupError as error:
        yield FoundFile(client=client, scope=scope, path=path, problem=str(error))
        return
    yield _read(path, client, scope, source)
    for folder, settings in as_object(as_object(source.tree).get("projects")).items():
        servers = as_object(settings).get("mcpServers")
        if isinstance(servers, dict) and servers:
            inner = Path(folder) / ".mcp.json"
            found = _read(inner, client, f"local {folder}", ParsedSource({"mcpServers": servers}, {}, []))
            yield FoundFile(
                client=client,
                scope=found.scope,
                path=path,
                servers=found.servers,
                warnings=found.warnings,
                problem=found.problem,
            )


def _read(path: Path, client: str, scope: str, source: ParsedSource) -> FoundFile:
    root = CLIENTS[client].root if client in CLIENTS else ""
    tree = as_object(source.tree)
    if root and root not in tree:
        return FoundFile(client=client, scope=scope, path=path)
    # Only the servers: other keys of a client's settings may look like ours.
    kept = {key: value for key, value in tree.items() if key in (root, "mcp", "inputs")} if root else tree
    notes = ConfigReport(str(path), source.lines)
    for place, first, second in source.twice:
        notes.add_mistake(place, f"is given twice, on lines {first} and {second}", fix="rename or remove one of them")
    translated = translate(kept, path, notes)
    problem = ""
    try:
        notes.raise_if_any()
    except SetupError as error:
        problem = str(error)
    servers = [
        FoundServer(
            name=name,
            entry=_absolute(as_object(portable(entry, translated.syntax, files=root == "mcp")), translated.folder),
            unread=notes.unread.get(("toolboxes", toolbox, "mcpServers", name), ()),
        )
        for toolbox, box in as_object(as_object(translated.tree).get("toolboxes")).items()
        for name, entry in as_object(as_object(box).get("mcpServers")).items()
        if isinstance(entry, dict)
    ]
    return FoundFile(
        client=client, scope=scope, path=path, servers=tuple(servers), warnings=notes.shown_warnings(), problem=problem
    )


def portable(value: Json, syntax: VariableSyntax, *, files: bool = False) -> Json:
    """The value with the variables of its program in our form; what is not a variable there stays text.

    Neither a command nor, without `files`, a file is read for an entry that another program would have used as it is.
    """

    def write(found: re.Match[str]) -> str:
        inside, bare = found[1], found[2]
        if bare:
            return _reference(bare) if syntax.bare else found[0]
        if inside is None:
            return found[0]
        if inside in syntax.fixed:
            return syntax.fixed[inside]
        if inside.startswith("input:") and syntax.inputs is not None:
            name = INPUT + re.sub(r"[^A-Z0-9]+", "_", inside[6:].upper())
            asked = syntax.inputs.get(inside[6:])
            default = "" if asked is None or _SYNTAX.search(asked.default or "") else asked.default
            return f"${{{name}:-{default}}}" if default else f"${{{name}}}"
        if inside.startswith("env:"):
            return _reference(inside[4:])
        if inside.startswith("cmd:") or (inside.startswith("file:") and not files):
            return f"$${{{inside}}}"
        return found[0]

    match value:
        case str():
            return _VARIABLE.sub(write, value)
        case list():
            return [portable(item, syntax, files=files) for item in value]
        case dict():
            return {key: portable(item, syntax, files=files) for key, item in value.items()}
    return value


def _reference(name: str) -> str:
    return f"${{{name}}}" if _UPPER.fullmatch(name.partition(":-")[0]) else f"${{env:{name}}}"


def _absolute(entry: Mapping[str, Json], folder: Path) -> dict[str, Json]:
    """The entry with paths that do not depend on its file's folder."""
    made = dict(entry)
    for key in ("command", "cwd", "envFile"):
        text = made.get(key)
        is_path = isinstance(text, str) and ("/" in text or key != "command") and not text.startswith(("~", "$"))
        if is_path and not Path(str(text)).is_absolute():
            made[key] = str(folder / str(text))
    args = made.get("args")
    relative = [word for word in args if str(word).startswith(("./", "../"))] if isinstance(args, list) else []
    if relative and "cwd" not in made:
        made["cwd"] = str(folder)
    return made
