"""Tools as Markdown, for people and for prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from pegboard.call import Json
from pegboard.protocol.json_values import as_list, as_object, texts_in
from pegboard.schema.cost.references import follow_local

_DEPTH = 6
_LINES = 1_000
_KINDS = 3
_OPTIONS = 12
_BOUNDS = (
    "format",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
)


class Described(Protocol):
    """A tool of any style, or of another server."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def description(self) -> str | None: ...
    @property
    def input_schema(self) -> Mapping[str, Json]: ...
    @property
    def output_schema(self) -> Mapping[str, Json] | None: ...


def write_markdown(tools: Iterable[Described]) -> str:
    """A heading for each tool, its description, and its arguments and result as nested lists."""
    return "\n".join(line for tool in tools for line in _write_tool(tool)).rstrip() + "\n"


def _write_tool(tool: Described) -> Iterator[str]:
    yield f"## {tool.name}"
    yield ""
    if tool.title and tool.title != tool.name:
        yield f"*{tool.title}*"
        yield ""
    if tool.description:
        yield tool.description.strip()
        yield ""
    arguments = _first(_write_properties(tool.input_schema, tool.input_schema, 0))
    yield "Arguments:" if arguments else "No arguments."
    yield ""
    if arguments:
        yield from arguments
        yield ""
    if tool.output_schema is not None:
        yield f"Returns {_summary(tool.output_schema, tool.output_schema)}."
        yield ""
        inner = _first(_write_inner(tool.output_schema, tool.output_schema, 0))
        if inner:
            yield from inner
            yield ""


def _first(lines: Iterator[str]) -> list[str]:
    """The lines of a schema, up to a limit: recursion could produce too many."""
    shown = list(islice(lines, _LINES + 1))
    return [*shown[:_LINES], "- …"] if len(shown) > _LINES else shown


def _write_properties(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int) -> Iterator[str]:
    required = texts_in(schema.get("required"))
    for name, part in as_object(schema.get("properties")).items():
        found = _resolved(part, root)
        need = "required" if name in required else "optional"
        about = str(found.get("description") or "").strip().replace("\n", " ")
        colon = f": {about}" if about else ""
        yield f"{'  ' * depth}- `{name}` ({need}, {_summary(found, root)}){colon}"
        yield from _write_inner(found, root, depth + 1)


def _write_inner(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    found = _resolved(schema, root)
    items = found.get("items")
    if isinstance(items, Mapping):
        found = _resolved(items, root)
    for option in (found, *(_resolved(option, root) for option in _options(found))):
        yield from _write_properties(option, root, depth)


def _summary(schema: Mapping[str, Json], root: Mapping[str, Json]) -> str:
    found = _resolved(schema, root)
    parts = [_kind(found, root)]
    if "const" in found:
        parts.append(f"always {_shown(found['const'])}")
    if "enum" in found:
        parts.append(f"one of {' | '.join(_shown(value) for value in as_list(found['enum']))}")
    if "default" in found:
        parts.append(f"default {_shown(found['default'])}")
    parts.extend(f"{keyword} {_shown(found[keyword])}" for keyword in _BOUNDS if keyword in found)
    if examples := as_list(found.get("examples")):
        parts.append(f"e.g. {_shown(examples[0])}")
    return ", ".join(parts)


def _kind(schema: Mapping[str, Json], root: Mapping[str, Json], depth: int = 0) -> str:
    """The type in words; deep or recursive nesting is `any`."""
    kind = schema.get("type")
    options = _options(schema)
    if depth > _KINDS:
        return "any"
    if kind is None and options:
        shown = dict.fromkeys(_kind(_resolved(option, root), root, depth + 1) for option in options[:_OPTIONS])
        return " or ".join([*shown, *(["…"] if len(options) > _OPTIONS else [])])
    if isinstance(kind, list):
        return " or ".join(texts_in(kind))
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"list of {_kind(_resolved(schema['items'], root), root, depth + 1)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map of {_kind(_resolved(schema['additionalProperties'], root), root, depth + 1)}"
    return str(kind or "any")


def _options(schema: Mapping[str, Json]) -> Sequence[Json]:
    return as_list(schema.get("anyOf")) or as_list(schema.get("oneOf"))


def _resolved(schema: Json, root: Mapping[str, Json]) -> Mapping[str, Json]:
    if not isinstance(schema, Mapping):
        return {}
    if "$ref" not in schema:
        return schema
    found = follow_local(schema, root)
    return {} if found is None else {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _shown(value: Json) -> str:
    return msgspec.json.encode(value).decode("utf-8")
