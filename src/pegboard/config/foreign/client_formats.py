"""The configuration files of other programs in our own format: one toolbox `main` with their servers.

    mcpServers      Claude Desktop, Claude Code, Cursor and similar; Gemini, if the file shows it
    servers         VS Code
    mcp_servers     Codex
    context_servers Zed
    mcp             opencode, which also has its servers under mcp.servers

Our own keys may be used in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pegboard.call import Json
from pegboard.config.config_keys import ROOT
from pegboard.config.foreign.entry_formats import (
    CODEX_KEYS,
    PROTECTIVE_ROOTS,
    EntryFormat,
    ForeignEntry,
    claude_format,
    codex_format,
    find_root_typos,
    gemini_format,
    opencode_format,
    unknown_format,
    vscode_format,
    zed_format,
)
from pegboard.config.mistakes import ConfigReport, UnresolvedText, did_you_mean
from pegboard.config.source_file import KeyPath
from pegboard.config.variables import VariableSyntax
from pegboard.protocol.json_values import as_object

MAIN: Final = "main"

_SERVERS: Final = ("toolboxes", MAIN, "mcpServers")
_PROJECT_FOLDERS: Final = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".zed", ".opencode"})
_GEMINI: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})


class TranslatedFile(NamedTuple):
    """A file or an entry in our own format, its variable syntax, and the folder that its relative paths start at."""

    tree: Json
    syntax: VariableSyntax
    folder: Path


def translate(tree: Json, file: Path, notes: ConfigReport) -> TranslatedFile:
    """The tree of a file in our own format; from here on `notes` reports paths as the file has them."""
    own = TranslatedFile(tree, VariableSyntax(), file.parent)
    if not isinstance(tree, dict):
        return own
    if "toolboxes" in tree:
        loose = [key for key in ("mcpServers", "servers", "mcp_servers") if key in tree]
        for key in loose:
            notes.add_mistake(
                (key,), "cannot be used together with 'toolboxes'", fix="move these servers into a toolbox"
            )
        return own._replace(tree={key: value for key, value in tree.items() if key not in loose})
    settings = tree.get("mcp")
    if "mcp_servers" in tree:
        return _translate_file(tree, ("mcp_servers",), codex_format(), file, notes)
    if "context_servers" in tree:
        return _translate_file(tree, ("context_servers",), zed_format(), file, notes)
    if "servers" in tree:
        return _translate_file(tree, ("servers",), vscode_format(tree, _project(file)), file, notes)
    if "mcpServers" in tree:
        is_gemini = _is_gemini(tree["mcpServers"], file)
        entry_format = gemini_format(settings) if is_gemini else claude_format(_project(file))
        return _translate_file(tree, ("mcpServers",), entry_format, file, notes)
    if isinstance(settings, dict) and _is_opencode(settings):
        return _translate_file(tree, ("mcp",), opencode_format(), file, notes)
    if isinstance(settings, dict) and _is_opencode(as_object(settings.get("servers"))):
        return _translate_file(tree, ("mcp", "servers"), opencode_format(), file, notes)
    if isinstance(settings, dict) and "servers" in settings:
        return _translate_file(tree, ("mcp", "servers"), vscode_format(settings, _project(file)), file, notes)
    return own._replace(tree=_explain(tree, notes))


def translate_entry(entry: Mapping[str, Json], folder: Path, notes: ConfigReport) -> TranslatedFile:
    """One server entry of any of these programs, recognized by its keys; relative paths start at `folder`."""
    if not entry.keys().isdisjoint(CODEX_KEYS):
        entry_format = codex_format()
    elif not entry.keys().isdisjoint(_GEMINI):
        entry_format = gemini_format({})
    else:
        entry_format = unknown_format(folder)
    made = ForeignEntry("", entry, entry_format.keys, (), (), notes)
    entry_format.convert(made)
    return TranslatedFile(made.made, entry_format.syntax, folder)


def _explain(tree: dict[str, Json], notes: ConfigReport) -> Json:
    """Guess what a file without any known key was meant to be; keys that were reported are removed."""
    if tree and all(isinstance(item, dict) and ("command" in item or "url" in item) for item in tree.values()):
        notes.refuse("the file: these look like servers; put them into an object under the key 'mcpServers'")
        return {"toolboxes": UnresolvedText()}
    guessed = {}
    for key in tree:
        hint = did_you_mean(key, ["toolboxes", "mcpServers", "mcp_servers"])
        if key not in ROOT.fields and hint.startswith("did"):
            notes.add_mistake((key,), "is not a configuration key", fix=hint)
            guessed["toolboxes"] = UnresolvedText()
    return {key: value for key, value in tree.items() if not guessed or key in ROOT.fields} | guessed


def _translate_file(
    tree: dict[str, Json], root: KeyPath, entry_format: EntryFormat, file: Path, notes: ConfigReport
) -> TranslatedFile:
    """Convert a foreign file with the servers under `root`; `notes` gets the origin of each key."""
    notes.origins |= {_SERVERS: root, _SERVERS[:2]: (), _SERVERS[:1]: ()}
    raw: Json = tree
    for key in root:
        raw = as_object(raw)[str(key)]
    servers = _translate_servers(raw, root, entry_format, notes) if isinstance(raw, dict) else raw
    toolbox: dict[str, Json] = {"description": _describe(servers, file), "mcpServers": servers}
    if "names" in tree:
        toolbox["names"] = tree["names"]
        notes.origins[(*_SERVERS[:2], "names")] = ("names",)
    for key, meant in find_root_typos(tree, str(root[0])).items():
        if meant in PROTECTIVE_ROOTS:
            notes.add_mistake((key,), "is unknown", fix=f"did you mean {meant!r}, which limits what callers may do?")
        else:
            notes.warn((key,), f"is unknown and ignored; did you mean {meant!r}?")
    ours = {key: tree[key] for key in ROOT.fields if key in tree and key != "$schema"}
    return TranslatedFile({**ours, "toolboxes": {MAIN: toolbox}}, entry_format.syntax, _project(file))


def _translate_servers(
    raw: dict[str, Json], root: KeyPath, entry_format: EntryFormat, notes: ConfigReport
) -> dict[str, Json]:
    servers: dict[str, Json] = {}
    for name, entry in raw.items():
        mended = _fix_name(name)
        place, origin = (*_SERVERS, mended), (*root, name)
        if mended != name:
            notes.origins[place] = origin
            notes.warn(place, f"is served as {mended!r}: names contain only A-Z a-z 0-9 _ -, and no '__'")
        if mended in servers:
            notes.add_mistake(place, f"another server is also served as {mended!r}", fix="rename one of them")
        if not isinstance(entry, dict):
            servers[mended] = entry
            continue
        made = ForeignEntry(name, entry, entry_format.keys, place, origin, notes)
        entry_format.convert(made)
        servers[mended] = made.made
    return servers


def _is_gemini(servers: Json, file: Path) -> bool:
    entries = servers.values() if isinstance(servers, dict) else ()
    return file.parent.name == ".gemini" or any(isinstance(entry, dict) and _GEMINI & entry.keys() for entry in entries)


def _is_opencode(servers: Mapping[str, Json]) -> bool:
    return any(isinstance(entry, dict) and entry.get("type") in ("local", "remote") for entry in servers.values())


def _fix_name(name: str) -> str:
    """A valid name for a server with any name."""
    mended = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name)).strip("_")
    return mended if mended.strip("-") else name


def _describe(servers: Json, file: Path) -> str:
    names = list(servers) if isinstance(servers, dict) else []
    more = ", …" if len(names) > 12 else ""
    return f"The servers of {file.name}: {', '.join(names[:12])}{more}"


def _project(file: Path) -> Path:
    """The project folder of a file: the parent of an editor's own folder."""
    return file.parent.parent if file.parent.name in _PROJECT_FOLDERS else file.parent
