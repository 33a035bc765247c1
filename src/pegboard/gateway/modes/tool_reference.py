"""Which tool a call of a meta-tool means.

A tool is named by a string (`tool_name`, `tool` or `name`) or by its location: {toolbox, server, name}, as an object
under one of these names or beside the arguments. `toolbox_name` beside a string must match the tool's location. The
tool's own arguments may also stand beside its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.errors import ToolError
from pegboard.gateway.modes.meta_tool_host import Toolbox, Visibility
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.repair.repair_messages import write
from pegboard.schema.problems import MAX_SHOWN, fit_message, format_path
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.naming import suggest
from pegboard.tools.qualified_names import (
    ToolName,
    explain_unknown,
    in_result,
    server_not_found,
    tool_not_found,
    toolbox_not_found,
)

NAMES: Final = ("tool_name", "tool", "name")
GATHERED: Final = "fields_gathered_into_object"
UNKNOWN: Final = "unknown_parameter"
_OWN: Final = frozenset({"toolbox_name", "toolbox", "server", "arguments"})
# Other names that callers use for the arguments.
_ALIASES: Final = frozenset(
    {"args", "argument", "params", "parameters", "input", "tool_args", "tool_arguments", "tool_input"}
)
_WHAT: Final = {"toolbox": "Toolbox name", "server": "Server name", "name": "Tool name"}


class ToolReference(Struct, frozen=True):
    """A requested tool: by its served name, or by toolbox, server and name."""

    name: str = ""
    place: ToolName | None = None
    toolbox: str = ""

    @property
    def describe(self) -> str:
        """The name for records of the call."""
        return self.name if self.place is None else self.place.qualified


def read_tool_reference(arguments: Mapping[str, Json]) -> ToolReference:
    """The tool that the arguments of a meta-tool name; ToolError with everything that is missing."""
    key, given = next(((key, arguments[key]) for key in NAMES if arguments.get(key)), ("tool_name", ""))
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = _read_object(given)
    toolbox = arguments.get("toolbox_name") or arguments.get("toolbox") or ""
    if isinstance(given, Mapping):
        return _read_place(given, f"{key}.")
    if "server" in arguments:
        return _read_place({"toolbox": toolbox, "server": arguments["server"], "name": given}, "")
    if not isinstance(given, str):
        raise _invalid(f"{key}: Expected a name or {{toolbox, server, name}}")
    if not given:
        raise _invalid(f"{key}: Tool name cannot be empty")
    return ToolReference(given, None, toolbox if isinstance(toolbox, str) else "")


def gather_arguments(parsed: ParsedArguments) -> ParsedArguments:
    """Move arguments for the other tool that were put beside its name to where they belong, with a warning.

    If some are in place already, the meaning of the others is unclear.
    """
    sent = parsed.arguments
    name = next((key for key in NAMES if sent.get(key)), "")
    strays = {
        key: value
        for key, value in sent.items()
        if key not in _OWN and not (key in NAMES and (not value or value == sent[name]))
    }
    given = sent.get("arguments")
    if given:
        beside = {format_path((None, key)): value for key, value in strays.items() if key not in NAMES}
        errors = [
            ParseError(place, UNKNOWN, fit_message(place, "unknown argument", "; put it into `arguments`"), value)
            for place, value in islice(beside.items(), MAX_SHOWN)
        ]
        return ParsedArguments(parsed.value, parsed.warnings, (*parsed.errors, *errors)) if errors else parsed
    if not strays or parsed.errors:
        return parsed
    only = next(iter(strays)) if len(strays) == 1 else ""
    inside = strays[only] if only in _ALIASES and isinstance(strays[only], Mapping) else strays
    value = {**{key: value for key, value in sent.items() if key not in strays}, "arguments": inside}
    kept = (warning for warning in parsed.warnings if warning.code != UNKNOWN)
    return ParsedArguments(value, (*kept, write(((None, "arguments"), GATHERED, given, inside))))


def _read_object(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _read_place(given: Mapping[str, Json], where: str) -> ToolReference:
    parts = {
        "toolbox": given.get("toolbox", given.get("toolbox_name")),
        "server": given.get("server"),
        "name": next((given[key] for key in ("name", "tool", "tool_name") if key in given), None),
    }
    wrong = [
        f"{where}{part}: {_WHAT[part]} {'must be a string' if value else 'cannot be empty'}"
        for part, value in parts.items()
        if not isinstance(value, str) or not value
    ]
    if wrong:
        raise _invalid("; ".join(wrong))
    return ToolReference(place=ToolName(*map(str, parts.values())))


def _invalid(what: str) -> ToolError:
    return ToolError(f"Invalid tool invocation parameters: {what}")


def find_tool(wanted: ToolReference, directory: Directory, access: Visibility) -> DirectoryEntry | None:
    """The tool, unless it is hidden from this caller: then it counts as unknown."""
    place = wanted.place
    if place is None:
        entry = directory.find(wanted.name)
    else:
        # The name beside toolbox and server may be the qualified one.
        entry = directory.find_at(place) or directory.find(place.tool)
        if entry is not None and (entry.place.toolbox, entry.place.server) != (place.toolbox, place.server):
            entry = None
    return None if entry is None or access.hides(entry) else entry


def explain_missing(
    wanted: ToolReference, directory: Directory, toolboxes: Mapping[str, Toolbox], access: Visibility
) -> str:
    """The error for a tool that is unknown to this caller, with suggestions."""
    seen = {entry.name: entry.place for entry in directory if access.admits(entry)}
    servers = {name: [server.name for server in toolbox.servers] for name, toolbox in toolboxes.items()}
    place = wanted.place
    if place is None:
        return in_result(explain_unknown(wanted.name, seen, servers))
    if place.toolbox not in servers:
        why = toolbox_not_found(place.toolbox, servers)
    elif place.server not in servers[place.toolbox]:
        why = server_not_found(place.server, place.toolbox, servers[place.toolbox])
    else:
        own = [at.tool for at in seen.values() if (at.toolbox, at.server) == (place.toolbox, place.server)]
        why = tool_not_found(place.tool, place.server, place.toolbox, suggest(place.tool, own))
    return f"Error executing tool '{place.tool}' in server '{place.server}' (toolbox '{place.toolbox}'): {why}"
