"""Adapts JSON Schemas to what each provider supports, with a note for each change.

A limit that a provider does not support is added to the description, so that the model still sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from pegboard.call import Json
from pegboard.errors import PegboardError
from pegboard.protocol.json_values import as_list, as_object, texts_in
from pegboard.schema.cost.references import follow_local

Schema: TypeAlias = dict[str, Json]

# Keywords that models ignore; they are dropped silently.
_SILENT = frozenset(
    {"title", "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "deprecated", "readOnly", "writeOnly"}
)

_STRICT_KEPT = frozenset(
    {"type", "description", "enum", "const", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "minItems", "maxItems"}
)
_STRICT_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_GEMINI_KEPT = frozenset(
    {"description", "maxItems", "minItems", "minLength", "maxLength", "pattern", "minimum", "maximum"}
    | {"minProperties", "maxProperties", "default"}
)
_GEMINI_FORMATS = frozenset({"float", "double", "int32", "int64", "date-time"})
_COMBINERS = ("anyOf", "oneOf", "allOf", "not", "enum")

_DEPTH = 32
_PARTS = 10_000


class Inexpressible(PegboardError):
    """A dialect cannot express the schema; the text says which part."""


def open_root(schema: Mapping[str, Json], notes: list[str]) -> Schema:
    """A schema whose root is an object, as every provider requires."""
    rooted: Schema = {"type": "object", "properties": {}, **schema}
    if schema.get("$ref"):
        rooted = {
            **(follow_local(schema, schema) or {}),
            **{key: schema[key] for key in ("$defs", "definitions") if key in schema},
        }
        rooted.setdefault("type", "object")
    notes.extend(f"{keyword} at the root was removed" for keyword in _COMBINERS if keyword in rooted)
    return {keyword: value for keyword, value in rooted.items() if keyword not in _COMBINERS}


def strict_schema(schema: Mapping[str, Json], notes: list[str]) -> Schema:
    """The schema in OpenAI's strict subset: closed objects, every property required, optional ones nullable.

    Raises Inexpressible if that would change what the tool accepts: maps with any names, values of any type.
    """
    root = open_root(schema, notes)
    strict = _Strict(root, notes)
    written = strict.write(root, "")
    if strict.defs:
        written["$defs"] = strict.defs
    return written


class _Strict:
    def __init__(self, root: Mapping[str, Json], notes: list[str]) -> None:
        self._root = root
        self._notes = notes
        self.defs: dict[str, Schema] = {}

    def write(self, schema: Json, path: str) -> Schema:
        if not isinstance(schema, Mapping) or not schema:
            raise Inexpressible(f"{path or 'the schema'} accepts any value")
        if "$ref" in schema:
            return self._write_ref(schema, path)
        if "allOf" in schema:
            schema = _merged(schema, path)
        kept = {key: value for key, value in schema.items() if key in _STRICT_KEPT}
        handled = {"properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf"}
        if schema.get("format") in _STRICT_FORMATS:
            kept["format"] = schema["format"]
            handled.add("format")
        options = _options(schema)
        kinds = _kinds(schema)
        if options:
            kept["anyOf"] = [self.write(option, path) for option in options]
        elif not kinds and "enum" not in kept and "const" not in kept:
            raise Inexpressible(f"{path or 'the schema'} accepts any type")
        if "object" in kinds:
            kept.update(self._write_object(schema, path))
        if "array" in kinds:
            kept.update(self._write_array(schema, path))
        return _mention(kept, schema, handled, path, self._notes)

    def _write_ref(self, schema: Mapping[str, Json], path: str) -> Schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name].update(self.write(follow_local(schema, self._root), path))
        return {"$ref": f"#/$defs/{name}"}

    def _write_object(self, schema: Mapping[str, Json], path: str) -> Schema:
        properties = as_object(schema.get("properties"))
        extra = schema.get("additionalProperties", True)
        if not properties and (extra is not False or schema.get("patternProperties")):
            raise Inexpressible(f"{path or 'the schema'} accepts any names")
        if extra is not False and properties and "additionalProperties" in schema:
            self._notes.append(f"{path or 'the schema'}: only the declared names are accepted")
        required = set(texts_in(schema.get("required")))
        written = {}
        for name, part in properties.items():
            place = f"{path}.{name}" if path else name
            part_written = self.write(part, place)
            written[name] = part_written if name in required else _nullable(part_written)
        return {"properties": written, "required": list(written), "additionalProperties": False}

    def _write_array(self, schema: Mapping[str, Json], path: str) -> Schema:
        places = as_list(schema.get("prefixItems"))
        if not places:
            return {"items": self.write(schema.get("items"), f"{path}[]")}
        self._notes.append(f"{path}: the order of its items was removed")
        distinct: list[Schema] = []
        for place in places:
            written = self.write(place, f"{path}[]")
            if written not in distinct:
                distinct.append(written)
        return {"items": distinct[0] if len(distinct) == 1 else {"anyOf": distinct}}


def gemini_schema(schema: Mapping[str, Json], notes: list[str]) -> Schema:
    """The schema in Gemini's subset of OpenAPI: upper-case types, references expanded, null as `nullable`."""
    root = open_root(schema, notes)
    return _Gemini(root, notes).write(root, "", ())


class _Gemini:
    def __init__(self, root: Mapping[str, Json], notes: list[str]) -> None:
        self._root = root
        self._notes = notes
        self._left = _PARTS

    def write(self, schema: Json, path: str, above: tuple[str, ...]) -> Schema:
        if not isinstance(schema, Mapping):
            return {"type": "STRING"}
        self._left -= 1
        if self._left < 0:
            # References are expanded, and nested ones multiply.
            if self._left == -1:
                self._notes.append(
                    f"{path}: the schema has more than {_PARTS} parts, and accepts anything from here on"
                )
            return {"type": "OBJECT"}
        if "$ref" in schema:
            name = str(schema["$ref"])
            if name in above or len(above) > _DEPTH:
                self._notes.append(f"{path}: the schema is recursive here, and accepts anything")
                return {"type": "OBJECT"}
            above = (*above, name)
            schema = {
                **(follow_local(schema, self._root) or {}),
                **{key: schema[key] for key in schema if key != "$ref"},
            }
            return self.write(schema, path, above)
        if "allOf" in schema:
            try:
                schema = _merged(schema, path)
            except Inexpressible as reason:
                self._notes.append(str(reason))
                schema = {key: value for key, value in schema.items() if key != "allOf"}
        return self._write_plain(schema, path, above)

    def _write_plain(self, schema: Mapping[str, Json], path: str, above: tuple[str, ...]) -> Schema:
        kept = {key: value for key, value in schema.items() if key in _GEMINI_KEPT}
        handled = {"type", "properties", "required", "additionalProperties", "items", "prefixItems"}
        handled |= {"anyOf", "oneOf", "nullable"}
        if schema.get("format") in _GEMINI_FORMATS:
            kept["format"] = schema["format"]
            handled.add("format")
        choices = _choices(schema)
        if choices is not None and all(isinstance(choice, str) or choice is None for choice in choices):
            kept["enum"] = [choice for choice in choices if choice is not None]
            handled |= {"enum", "const"}
        self._write_type(kept, schema, path, above)
        if kept.get("type") == "OBJECT":
            properties = as_object(schema.get("properties"))
            if properties:
                kept["properties"] = {
                    name: self.write(part, f"{path}.{name}" if path else name, above)
                    for name, part in properties.items()
                }
                required = [name for name in texts_in(schema.get("required")) if name in properties]
                if required:
                    kept["required"] = required
        elif kept.get("type") == "ARRAY":
            items = schema.get("items") or next(iter(as_list(schema.get("prefixItems"))), {"type": "string"})
            kept["items"] = self.write(items, f"{path}[]", above)
        return _mention(kept, schema, handled, path, self._notes)

    def _write_type(self, kept: Schema, schema: Mapping[str, Json], path: str, above: tuple[str, ...]) -> None:
        listed = _options(schema)
        options = [option for option in listed if option != {"type": "null"}]
        kinds = [kind for kind in _kinds(schema) if kind != "null"]
        if len(options) < len(listed) or "null" in _kinds(schema) or schema.get("nullable"):
            kept["nullable"] = True
        if len(options) == 1:
            only = self.write(options[0], path, above)
            kept.update({key: value for key, value in only.items() if key not in kept})
        elif options:
            kept["anyOf"] = [self.write(option, path, above) for option in options]
        elif len(kinds) > 1:
            kept["anyOf"] = [{"type": kind.upper()} for kind in kinds]
        else:
            kept["type"] = (kinds[0] if kinds else _kind_of_choices(schema)).upper()


def _kind_of_choices(schema: Mapping[str, Json]) -> str:
    choices = _choices(schema) or [None]
    if all(isinstance(choice, bool) for choice in choices):
        return "boolean"
    if all(isinstance(choice, int) for choice in choices):
        return "integer"
    if all(isinstance(choice, int | float) for choice in choices):
        return "number"
    return "object" if "properties" in schema else "string"


def _choices(schema: Mapping[str, Json]) -> Sequence[Json] | None:
    if "enum" in schema:
        return as_list(schema["enum"])
    return [schema["const"]] if "const" in schema else None


def _options(schema: Mapping[str, Json]) -> Sequence[Json]:
    return as_list(schema.get("anyOf")) or as_list(schema.get("oneOf"))


def _kinds(schema: Mapping[str, Json]) -> list[str]:
    kinds = schema.get("type")
    if kinds is None:
        return ["object"] if "properties" in schema else []
    return [kinds] if isinstance(kinds, str) else texts_in(kinds)


def _merged(schema: Mapping[str, Json], path: str) -> Schema:
    parts = as_list(schema["allOf"])
    if len(parts) != 1:
        raise Inexpressible(f"{path or 'the schema'}: allOf of {len(parts)} schemas cannot be expressed")
    return {**as_object(parts[0]), **{key: value for key, value in schema.items() if key != "allOf"}}


def _nullable(schema: Schema) -> Schema:
    if "anyOf" in schema:
        options = as_list(schema["anyOf"])
        return schema if {"type": "null"} in options else {**schema, "anyOf": [*options, {"type": "null"}]}
    kinds = _kinds(schema)
    if "null" in kinds:
        return schema
    if not kinds or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    nullable = {**schema, "type": [*kinds, "null"]}
    if "enum" in schema:
        nullable["enum"] = [*as_list(schema["enum"]), None]
    return nullable


def _mention(kept: Schema, schema: Mapping[str, Json], handled: set[str], path: str, notes: list[str]) -> Schema:
    """Move unsupported keywords to the description, with a note to the developer."""
    lost = [
        keyword
        for keyword in schema
        if keyword not in kept and keyword not in handled and keyword not in _SILENT and not keyword.startswith("x-")
    ]
    if not lost:
        return kept
    notes.append(f"{path or 'the schema'}: {', '.join(lost)} moved to the description")
    description = "; ".join(f"{keyword}: {_shown(schema[keyword])}" for keyword in lost)
    about = kept.get("description", "")
    return {**kept, "description": f"{about} ({description})" if about else description}


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8")
