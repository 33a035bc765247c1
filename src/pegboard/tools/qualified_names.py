"""Names of tools behind a gateway, `toolbox__server__tool`, and the text for unknown ones.

A qualified name is `{toolbox}__{server}__{tool}`. It is parsed by splitting at its first two `__`: toolboxes and
servers contain no `__` and neither start nor end with `_` (`check_part`), so any tool name survives the round trip.
Calls are routed by looking up the served name, never by parsing it; parsing is for the messages below and for people.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final

from msgspec import Struct

from pegboard.errors import SetupError
from pegboard.tools.naming import NameMap, NameRule, suggest

SEPARATOR: Final = "__"
BUDGET: Final = 64
"""The characters that every known client accepts in a tool name."""
SMALLEST_BUDGET: Final = 24
"""Below this, an alias has space for little more than its suffix."""

_PART: Final = re.compile(r"(?!_)[A-Za-z0-9_-]++(?<!_)\Z")
_ECHOED: Final = 256


class ToolName(Struct, frozen=True, order=True):
    """The toolbox, server and name of a tool; also used for prompts."""

    toolbox: str
    server: str
    tool: str

    @property
    def qualified(self) -> str:
        """The qualified name, `toolbox__server__tool`."""
        return join_name(self.toolbox, self.server, self.tool)


def join_name(toolbox: str, server: str, tool: str) -> str:
    """Join the names of a toolbox, a server and a tool: `dev__filesystem__read_file`."""
    return f"{toolbox}{SEPARATOR}{server}{SEPARATOR}{tool}"


def parse_name(name: str) -> ToolName | None:
    """The three parts of a qualified name, split at the first two `__`; None if there are not three."""
    parts = name.split(SEPARATOR, 2)
    return ToolName(*parts) if len(parts) == 3 and all(parts) else None


def check_part(name: str, what: str, where: str) -> None:
    """Reject names of toolboxes and servers that would make qualified names ambiguous."""
    if _PART.match(name) and SEPARATOR not in name:
        return
    if not name:
        raise SetupError(f"{where}: the name of the {what} is empty; use A-Z a-z 0-9 _ -")
    mended = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name)).strip("_")
    fix = f"; try {mended!r}" if mended.strip("-") else ""
    if SEPARATOR in name:
        wrong = f"contains {SEPARATOR!r}, which separates toolbox, server and tool"
    elif name.startswith("_") or name.endswith("_"):
        wrong = "starts or ends with '_', which would merge with the '__' beside it"
    else:
        wrong = "may contain only A-Z a-z 0-9 _ -"
    raise SetupError(f"{where}: the {what} name {name[:80]!r} {wrong}{fix}")


def dropped_because(name: object, seen: Container[str]) -> str | None:
    """Why a listed tool or prompt cannot be served; None if it can. `seen`: the other names of its server."""
    if not isinstance(name, str) or not name:
        return "it has no name"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return f"its name {name[:80]!r} contains a control character"
    if name in seen:
        return f"the server lists {name[:80]!r} twice; the first is kept"
    return None


def serve_names(
    tools: Iterable[ToolName], *, plain: Container[str] = (), reserved: Collection[str] = (), budget: int = BUDGET
) -> dict[ToolName, str]:
    """The names of all tools at an endpoint: unique, within the length limit, of characters that every client accepts.

    `plain` are the toolboxes whose tools keep their own names. A plain name is qualified if two servers have it, or if
    it is `reserved` or could be a qualified name. So adding or removing a server renames only tools with a shared name.
    Tools whose name is not allowed get an alias (`NameMap`), made from their name alone unless another tool of the same
    server would share it.
    """
    rule = NameRule(longest=budget)
    known = list(dict.fromkeys(tools))
    servers = {(name.toolbox, name.server) for name in known}
    claims: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for name in known:
        if name.toolbox in plain:
            claims[rule.replace_invalid(name.tool)].add((name.toolbox, name.server))

    def own(name: ToolName) -> bool:
        if name.toolbox not in plain:
            return False
        wanted = rule.replace_invalid(name.tool)
        posed = parse_name(wanted)
        return (
            len(claims[wanted]) == 1
            and wanted not in reserved
            and (posed is None or (posed.toolbox, posed.server) not in servers)
        )

    names = {name: name.tool if own(name) else name.qualified for name in known}
    aliases = NameMap([*reserved, *names.values()], rule)
    return {name: aliases.alias(whole) for name, whole in names.items()}


def invalid_format(name: str, known: Iterable[str] = ()) -> str:
    return (
        f"Invalid tool name format '{name[:_ECHOED]}'. Expected format: {{toolbox}}__{{server}}__{{tool}} "
        f"(note: double underscores between all components){_meant(name, known)}"
    )


def toolbox_not_found(toolbox: str, known: Iterable[str] = ()) -> str:
    return f"Toolbox '{toolbox[:_ECHOED]}' not found{_meant(toolbox, known)}"


def server_not_found(server: str, toolbox: str, known: Iterable[str] = ()) -> str:
    return f"Server '{server[:_ECHOED]}' not found in toolbox '{toolbox[:_ECHOED]}'{_meant(server, known)}"


def tool_not_found(tool: str, server: str, toolbox: str, known: Iterable[str] = ()) -> str:
    return (
        f"Tool '{tool[:_ECHOED]}' not found in server '{server[:_ECHOED]}' (toolbox '{toolbox[:_ECHOED]}')"
        f"{_meant(tool, known)}"
    )


def delegation_error(toolbox: str, server: str, tool: str, message: str) -> str:
    """An error of a server, or on the way to it, in the format for the caller of its tool."""
    return f"[{toolbox}/{server}/{tool}] Error: {message}"


def in_result(sentence: str) -> str:
    """One of the messages above as the text of an `isError` result."""
    return f"Error: {sentence}"


def explain_unknown(name: str, served: Mapping[str, ToolName], servers: Mapping[str, Collection[str]]) -> str:
    """Explain an unknown tool name: the format, the toolbox, the server or the tool is wrong.

    `served`: the tools by name; `servers`: each toolbox with the names of its servers. The suggestion replaces the
    unknown part, or is a whole name if the format is wrong.
    """
    parsed = parse_name(name)
    if parsed is None:
        return invalid_format(name, served)
    if parsed.toolbox not in servers:
        return toolbox_not_found(parsed.toolbox, servers)
    if parsed.server not in servers[parsed.toolbox]:
        return server_not_found(parsed.server, parsed.toolbox, servers[parsed.toolbox])
    own = {
        known.tool: whole
        for whole, known in served.items()
        if (known.toolbox, known.server) == (parsed.toolbox, parsed.server)
    }
    # Compared by the tool's part alone: all names of a server start alike.
    close = [own[tool] for tool in suggest(parsed.tool, own)]
    return tool_not_found(parsed.tool, parsed.server, parsed.toolbox) + _did_you_mean(close)


def _meant(name: str, known: Iterable[str]) -> str:
    return _did_you_mean(suggest(name, known))


def _did_you_mean(close: list[str]) -> str:
    return f". Did you mean {' or '.join(map(repr, close))}?" if close else ""
