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
from pegboard.tools.aliases import NameMap, NameRule
from pegboard.tools.naming import suggest

SEPARATOR: Final = "__"
BUDGET: Final = 64
"""The letters that every client we know of takes in a tool's name."""
SMALLEST_BUDGET: Final = 24
"""Below this an alias has room for little more than its tail."""

_PART: Final = re.compile(r"(?!_)[A-Za-z0-9_-]++(?<!_)\Z")
_ECHOED: Final = 256


class ToolName(Struct, frozen=True, order=True):
    """A tool by where it is and what its own server calls it; prompts go by the same."""

    toolbox: str
    server: str
    tool: str

    @property
    def qualified(self) -> str:
        """The qualified name, `toolbox__server__tool`."""
        return join_name(self.toolbox, self.server, self.tool)


def join_name(toolbox: str, server: str, tool: str) -> str:
    """`dev`, `filesystem`, `read_file` → `dev__filesystem__read_file`."""
    return f"{toolbox}{SEPARATOR}{server}{SEPARATOR}{tool}"


def parse_name(name: str) -> ToolName | None:
    """The three parts of a qualified name, split at the first two `__`; None if there are not three."""
    parts = name.split(SEPARATOR, 2)
    return ToolName(*parts) if len(parts) == 3 and all(parts) else None


def check_part(name: str, what: str, where: str) -> None:
    """Refuse what cannot be the name of a toolbox or server, because qualified names could not be read again."""
    if _PART.match(name) and SEPARATOR not in name:
        return
    if not name:
        raise SetupError(f"{where}: the name of the {what} is empty; use A-Z a-z 0-9 _ -")
    mended = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name)).strip("_")
    fix = f"; {mended!r} would do" if mended.strip("-") else ""
    if SEPARATOR in name:
        wrong = f"has {SEPARATOR!r} in it, which separates toolbox, server and tool"
    elif name.startswith("_") or name.endswith("_"):
        wrong = "begins or ends with '_', which would run into the '__' beside it"
    else:
        wrong = "may have only A-Z a-z 0-9 _ -"
    raise SetupError(f"{where}: the {what} name {name[:80]!r} {wrong}{fix}")


def dropped_because(name: object, seen: Container[str]) -> str | None:
    """Why a listed tool or prompt cannot be served under any name; None if it can. `seen`: its server's others."""
    if not isinstance(name, str) or not name:
        return "it has no name"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return f"its name {name[:80]!r} has a control character in it"
    if name in seen:
        return f"the server lists {name[:80]!r} twice; the first is kept"
    return None


def serve_names(
    tools: Iterable[ToolName], *, plain: Container[str] = (), reserved: Collection[str] = (), budget: int = BUDGET
) -> dict[ToolName, str]:
    """The name each tool goes by at an endpoint: unique, within the budget, of letters that every client takes.

    `plain` are the toolboxes whose tools keep their own names; where two servers' tools would go by the same, or one
    by a `reserved` name or what could be another's qualified name, these are qualified. So a server that comes or
    goes renames no other's tools but those that it shares a name with. Tools that cannot be served under their name
    are under an alias (`NameMap`), made from their name alone unless another of the same server would share it.
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
    """A failure on the way to a server or in it, as the caller of its tool is told."""
    return f"[{toolbox}/{server}/{tool}] Error: {message}"


def in_result(sentence: str) -> str:
    """A sentence of the above as the text of an `isError` result has it."""
    return f"Error: {sentence}"


def explain_unknown(name: str, served: Mapping[str, ToolName], servers: Mapping[str, Collection[str]]) -> str:
    """What is wrong with a name that no tool goes by: the format, the toolbox, the server or the tool.

    `served`: the tools by the names they go by; `servers`: each toolbox with the names of its servers. A suggestion is
    the missing part in its own place, or a whole name where the format is wrong.
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
    # Compared by the tool alone: all of a server's names begin alike.
    close = [own[tool] for tool in suggest(parsed.tool, own)]
    return tool_not_found(parsed.tool, parsed.server, parsed.toolbox) + _did_you_mean(close)


def _meant(name: str, known: Iterable[str]) -> str:
    return _did_you_mean(suggest(name, known))


def _did_you_mean(close: list[str]) -> str:
    return f". Did you mean {' or '.join(map(repr, close))}?" if close else ""
