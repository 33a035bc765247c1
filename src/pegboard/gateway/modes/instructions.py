"""The instructions that describe the toolboxes to a client."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pegboard.call import Json
from pegboard.gateway.modes.meta_tool_definitions import OPEN, SEARCH, USE
from pegboard.gateway.modes.meta_tool_host import Toolbox, Visibility
from pegboard.gateway.modes.mode_choice import ShownMode
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.logs.printable import printable_lines
from pegboard.schema.validator import Validator
from pegboard.schema.wording import example

MAX_INSTRUCTIONS: Final = 2_000
"""The number of characters of one server's instructions that clients get."""
MAX_ALL_INSTRUCTIONS: Final = 8_000
"""The same for all servers of an endpoint together."""
_LONGEST_EXAMPLE: Final = 300
_PLACEHOLDERS: Final = "…"


def write_instructions(
    toolboxes: Sequence[Toolbox], directory: Directory, modes: Mapping[str, ShownMode], access: Visibility
) -> str:
    """The toolboxes, and how to reach their tools if they are not listed."""
    if not toolboxes:
        return "No toolboxes configured. There is nothing to call until one is added to the configuration."
    room = MAX_ALL_INSTRUCTIONS
    described = []
    for toolbox in toolboxes:
        # Those of hidden tools come with the toolbox when it is opened.
        shown = {entry.place.server for entry in directory.of_toolbox(toolbox.name) if access.admits(entry)}
        quoted = _quote_servers(toolbox, shown, room) if modes.get(toolbox.name) == "all" else ""
        room -= len(quoted)
        described.append(_describe_toolbox(toolbox) + quoted)
    listed = "\n\n".join(described)
    hidden = [toolbox for toolbox in toolboxes if modes.get(toolbox.name) != "all"]
    if not hidden:
        return f"Available Toolboxes:\n\n{listed}"
    written = msgspec.json.encode(_choose_example(hidden, directory, access)).decode("utf-8")
    return (
        f"Available Toolboxes:\n\n{listed}\n\n"
        f"Use {OPEN} to get the tools of a toolbox, or {SEARCH} to find them, then {USE} to invoke tools.\n\n"
        f"Example tool invocation:\n{written}"
    )


def _describe_toolbox(toolbox: Toolbox) -> str:
    count = len(toolbox.servers)
    line = f"{toolbox.name} ({count} server{'' if count == 1 else 's'})"
    # A description is one line here, whatever its line breaks.
    about = " ".join(toolbox.description.split())
    return f"{line}\n  Description: {about}" if about else line


def _quote_servers(toolbox: Toolbox, shown: Container[str], room: int) -> str:
    """The instructions of the `shown` servers, indented, so that none looks like another part of the text."""
    passage = ""
    for server in toolbox.servers:
        if server.instructions and server.name in shown:
            text = textwrap.indent(shorten_instructions(server.instructions), "    ")
            quoted = f"\n  Instructions of {server.name}:\n{text}"
            passage += quoted if len(passage) + len(quoted) <= room else f"\n  Instructions of {server.name}: too long"
    return passage


def shorten_instructions(text: str) -> str:
    """The instructions of a server as clients get them: of bounded length, without hidden characters."""
    shown = printable_lines(text[: MAX_INSTRUCTIONS + 1].strip())
    return shown if len(shown) <= MAX_INSTRUCTIONS else f"{shown[: MAX_INSTRUCTIONS - 1]}…"


def _choose_example(hidden: Sequence[Toolbox], directory: Directory, access: Visibility) -> Mapping[str, Json]:
    """A working example call: of a read-only tool, else one that opens a toolbox."""
    for toolbox in hidden:
        for entry in filter(access.admits, directory.of_toolbox(toolbox.name)):
            for arguments in _example_arguments(entry):
                call = {"name": USE, "arguments": {"tool_name": entry.name, "arguments": arguments}}
                if len(msgspec.json.encode(call)) <= _LONGEST_EXAMPLE:
                    return call
    return {"name": OPEN, "arguments": {"toolbox_name": hidden[0].name}}


def _example_arguments(entry: DirectoryEntry) -> Iterator[Json]:
    """Example arguments of a tool, if it is read-only and they can be made from its schema."""
    hints, schema = entry.definition.get("annotations"), entry.definition.get("inputSchema")
    if not isinstance(hints, Mapping) or hints.get("readOnlyHint") is not True or not isinstance(schema, Mapping):
        return
    made = example(schema, schema) if schema.get("required") else ({},)
    # A made-up text would fit the schema, but names nothing that exists.
    if made is not None and _PLACEHOLDERS not in str(made) and Validator(schema).is_valid(made[0]):
        yield made[0]
