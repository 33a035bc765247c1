"""The definitions of the meta-tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
from msgspec import Raw

from pegboard.call import Json
from pegboard.gateway.modes.tool_reference import gather_arguments
from pegboard.limits import Limits
from pegboard.repair.repairer import LIMITS
from pegboard.tools.argument_parser import Mode, ParsedArguments, SchemaParser
from pegboard.tools.relayed_tool import CheckedSchemas, Relay, RelayedTool, check_schemas

LIST: Final = "workbench_list_toolboxes"
OPEN: Final = "workbench_open_toolbox"
CLOSE: Final = "workbench_close_toolbox"
SEARCH: Final = "search_tools"
USE: Final = "workbench_use_tool"
DETAILS: Final = "get_tool_details"

SPELLINGS: Final[Mapping[str, str]] = {
    **{name: name for name in (LIST, OPEN, CLOSE, SEARCH, USE, DETAILS)},
    "open_toolbox": OPEN,
    "use_tool": USE,
    "call_tool": USE,
}
"""Every name of a meta-tool, with the tool that it means."""

_TEXT: Final[Mapping[str, Json]] = {"type": "string"}
_USES: Final[Mapping[str, Json]] = {"readOnlyHint": True, "openWorldHint": False}
_OPENS: Final[Mapping[str, Json]] = {
    "readOnlyHint": False,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": True,
}
_TOOLBOX: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {"toolbox_name": _TEXT},
    "required": ["toolbox_name"],
}

_DEFINITIONS: Final[Mapping[str, Mapping[str, Json]]] = {
    LIST: {
        "description": "List toolboxes, each a set of tools, with their descriptions.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": _USES,
    },
    OPEN: {
        "description": "Get the names and input schemas of all tools in a toolbox.",
        "inputSchema": _TOOLBOX,
        "annotations": _OPENS,
    },
    CLOSE: {
        "description": "Remove the tools of an open toolbox from the tool list.",
        "inputSchema": _TOOLBOX,
        "annotations": {**_OPENS, "openWorldHint": False},
    },
    SEARCH: {
        "description": "Find tools by what they do.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to do"},
                "detail": {
                    "type": "string",
                    "enum": ["name", "brief", "full"],
                    "description": "full (default) includes input schemas",
                },
                "limit": {"type": "integer", "minimum": 1},
                "toolbox_name": _TEXT,
            },
            "required": ["query"],
        },
        "annotations": _USES,
    },
    USE: {
        "description": f"Call a tool found with {SEARCH} or {OPEN}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "description": "Its exact name"},
                "arguments": {"type": "object", "description": "Arguments that fit its input schema"},
            },
            "required": ["tool_name"],
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    },
    DETAILS: {
        "description": "Get the definition of a tool.",
        "inputSchema": {"type": "object", "properties": {"tool_name": _TEXT}, "required": ["tool_name"]},
        "annotations": _USES,
    },
}

# Models that know meta-tools from elsewhere name a tool in other ways, which tool_reference.py reads.
_NAMING_TOOLS: Final = dict.fromkeys(("tool_name", "tool", "name", "toolbox_name", "toolbox", "server"), True)
_ANSWERED: Final[Mapping[str, Mapping[str, Json]]] = {
    USE: {"type": "object", "properties": {**_NAMING_TOOLS, "arguments": {"type": "object"}}},
    DETAILS: {"type": "object", "properties": _NAMING_TOOLS},
}
_RENAMED: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    OPEN: {"toolbox_name": ("toolbox", "name")},
    CLOSE: {"toolbox_name": ("toolbox", "name")},
    SEARCH: {"toolbox_name": ("toolbox",)},
}


@cache
def _checked(kind: str) -> CheckedSchemas:
    """Its schemas, checked once in a process: every endpoint makes its own meta-tools, and again when it is reconfigured."""
    return check_schemas(_DEFINITIONS[kind], kind)


class MetaTool(RelayedTool):
    """A meta-tool under one of its names; it accepts more spellings of its arguments than it shows."""

    item = "meta-tool"

    def __init__(self, name: str, kind: str, relay: Relay) -> None:
        definition = {"name": name, **_DEFINITIONS[kind]}
        super().__init__(definition, relay, source="pegboard", arguments="lenient", checked=_checked(kind))
        # Middleware applies to the tool that is used, and would otherwise see the call twice.
        self.surrounded = kind != USE
        self._renamed = _RENAMED.get(kind, {})
        self._gathers = kind == USE
        answered = _ANSWERED.get(kind)
        if answered is not None:
            self._parser = SchemaParser(answered)

    def parse(self, raw: bytes | Raw, mode: Mode = "lenient", limits: Limits = LIMITS) -> ParsedArguments:
        parsed = super().parse(self._rename(raw) if self._renamed else raw, mode, limits)
        return gather_arguments(parsed) if self._gathers else parsed

    def _rename(self, raw: bytes | Raw) -> bytes | Raw:
        try:
            sent = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return raw
        if not isinstance(sent, dict):
            return raw
        for name, others in self._renamed.items():
            spelt = next((other for other in others if other in sent), None)
            if name not in sent and spelt is not None:
                sent[name] = sent.pop(spelt)
        return msgspec.json.encode(sent)
