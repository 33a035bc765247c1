"""Arguments that must be repeated in HTTP headers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.protocol.headers import encode_value
from pegboard.tools.header_parameters import check_headers, mirrored

_log = logging.getLogger("pegboard.client")
_SAFEST: Final = 2**53 - 1


def usable_tools(tools: Iterable[dict[str, Json]], name: str) -> list[dict[str, Json]]:
    """The tools whose header annotations are valid.

    "Rejection means the client MUST exclude the invalid tool from the result of `tools/list`" (Schema Extension)
    """
    kept = []
    for tool in tools:
        schema = tool.get("inputSchema")
        try:
            if isinstance(schema, Mapping):
                check_headers(schema, f"tool {tool.get('name')!r}")
        except DeclarationError as problem:
            _log.warning("%s: a tool is omitted from its list: %s", name, problem)
            continue
        kept.append(tool)
    return kept


def mirrored_parameters(tool: Mapping[str, Json]) -> Mapping[str, Sequence[str]]:
    """Header name → the chain of properties that leads to its value."""
    schema = tool.get("inputSchema")
    return mirrored(schema) if isinstance(schema, Mapping) else {}


def mirror(mirrors: Mapping[str, Sequence[str]], arguments: Any) -> bytes:
    """The header lines that repeat these arguments."""
    value: Json = msgspec.json.decode(arguments) if isinstance(arguments, Raw) else arguments
    lines = []
    for name, path in mirrors.items():
        text = _text(_value_at(value, path))
        if text is not None:
            lines.append(b"Mcp-Param-%b: %b\r\n" % (name.encode(), encode_value(text)))
    return b"".join(lines)


def _value_at(value: Json, path: Sequence[str]) -> Json:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Json) -> str | None:
    """The value of a header; None for a value that has no such form, which the server rejects because of the body."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if value.is_integer() and abs(value) <= _SAFEST:
            return str(int(value))
        case str():
            return value
        case _:
            return None
