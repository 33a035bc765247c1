"""Completions of the arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.call import Json
from pegboard.protocol.json_values import as_object
from pegboard.tools.tool import Tool

MAX_COMPLETIONS = 100


def known_values(tool: Tool, argument: str) -> list[str]:
    """The values that an argument's type allows: those of an enum or a Literal, true and false."""
    schema = as_object(tool.input_schema.get("properties")).get(argument)
    if not isinstance(schema, Mapping):
        return []
    if schema.get("type") == "boolean":
        return ["true", "false"]
    options = schema.get("enum", [])
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        options = [*options, *branch.get("enum", ())]
    return [option if isinstance(option, str) else str(option) for option in options]


def complete(values: Sequence[str], typed: str) -> Mapping[str, Json]:
    """The values that start with the text, then those that contain it; at most a hundred, and the total number."""
    folded = typed.casefold()
    first = [value for value in values if value.casefold().startswith(folded)]
    also = [value for value in values if folded in value.casefold() and not value.casefold().startswith(folded)]
    found = first + also
    # "Maximum 100 items per response" (Completion, Data Types)
    return {
        "completion": {"values": found[:MAX_COMPLETIONS], "total": len(found), "hasMore": len(found) > MAX_COMPLETIONS}
    }
