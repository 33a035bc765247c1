"""Writes JSON Schema 2020-12 from shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from pegboard.call import Json
from pegboard.tools.constraints import Notes
from pegboard.tools.shape import (
    Alias,
    Anything,
    Choice,
    Either,
    Field,
    Fixed,
    Foreign,
    Items,
    Map,
    Nullable,
    Record,
    Ref,
    Scalar,
    Shape,
    Shaped,
)

Schema = dict[str, Json]

# A decimal may be told as text to keep every digit. The pattern binds the text alone.
_DECIMAL: Schema = {"type": ["number", "string"], "pattern": r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"}
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}


def write_schema(shaped: Shaped) -> Schema:
    """The schema of one shape."""
    writer = _Writer(shaped.named, [shaped.shape])
    return writer.finish(writer.write(shaped.shape))


def write_parameters(fields: Sequence[Field], named: Mapping[Hashable, Record | Alias]) -> Schema:
    """The input schema of a function: closed at the top, so that a name nobody reads is noticed."""
    writer = _Writer(named, [field.shape for field in fields])
    schema: Schema = {"type": "object"}
    if fields:
        schema["properties"] = {field.name: writer.write_parameter(field) for field in fields}
        required = [field.name for field in fields if field.required]
        if required:
            schema["required"] = required
    schema["additionalProperties"] = False
    return writer.finish(schema)


def is_shown_plain(field: Field) -> bool:
    """Whether null means the same as leaving the parameter out, so that the schema need not mention it.

    `anyOf` with null hides the type from hosts that only look at `type`; several then send JSON in a string.
    """
    return isinstance(field.shape, Nullable) and not field.required and (field.default is UNSET or field.default is None)


class _Writer:
    def __init__(self, named: Mapping[Hashable, Record | Alias], roots: Iterable[Shape]) -> None:
        self._named = named
        self._defs: dict[str, Schema] = {}
        uses: dict[Hashable, int] = {}
        for root in roots:
            _count(root, uses)
        # A knot makes two uses at least: its own and the one that refers to it.
        self._names = _choose_names({key: named[key] for key, count in uses.items() if count > 1 and key in named})

    def finish(self, schema: Schema) -> Schema:
        return {**schema, "$defs": self._defs} if self._defs else schema

    def write_parameter(self, field: Field) -> Schema:
        shape = field.shape
        if is_shown_plain(field) and isinstance(shape, Nullable):
            shape = shape.inner
        return self._write_field(field, shape)

    def _write_field(self, field: Field, shape: Shape) -> Schema:
        schema = self.write(shape)
        default = field.default
        if default is not UNSET and default is not None:
            told = json_form(default)
            if told is not UNSET:
                schema["default"] = told
        return schema

    def write(self, shape: Shape) -> Schema:
        match shape:
            case Record(type=key) | Alias(key=key) | Ref(key=key) if key in self._names:
                schema = self._refer(key)
                return _annotate(schema, shape.notes) if isinstance(shape, Ref) else schema
            case Alias(inner=inner):
                return self.write(inner)
            case Ref(key=key):
                return self.write(self._named[key])
            case Nullable(inner=inner):
                return _or_null(self.write(inner))
            case Foreign(schema=foreign):
                schema = dict(foreign)
                self._defs.update(schema.pop("$defs", {}))
                return _annotate(schema, shape.notes)
        return _annotate(self._write_bare(shape), shape.notes)

    def _refer(self, key: Hashable) -> Schema:
        name = self._names[key]
        if name not in self._defs:
            self._defs[name] = {}
            named = self._named[key]
            if isinstance(named, Record):
                self._defs[name].update(_annotate(self._write_bare(named), named.notes))
            else:
                self._defs[name].update(self.write(named.inner))
        return {"$ref": f"#/$defs/{name}"}

    def _write_bare(self, shape: Shape) -> Schema:
        match shape:
            case Anything():
                return {}
            case Scalar():
                return _write_scalar(shape)
            case Choice(values=values):
                return _write_choice(values)
            case Items(item=item, unique=unique):
                items = self.write(item)
                schema: Schema = {"type": "array"}
                if items:
                    schema["items"] = items
                if unique:
                    schema["uniqueItems"] = True
                return schema
            case Fixed():
                return self._write_fixed(shape)
            case Map():
                return self._write_map(shape)
            case Record():
                return self._write_record(shape)
            case Either(options=options):
                return {"anyOf": [self.write(option) for option in options]}
        raise AssertionError(shape)

    def _write_fixed(self, shape: Fixed) -> Schema:
        places = [self.write(item) for item in shape.items]
        if shape.names:
            places = [{"title": name, **place} for name, place in zip(shape.names, places, strict=True)]
        schema: Schema = {"type": "array"}
        if places:
            schema["prefixItems"] = places
        return {**schema, "minItems": shape.least, "maxItems": len(places)}

    def _write_map(self, shape: Map) -> Schema:
        schema: Schema = {"type": "object"}
        key, value = self.write(shape.key), self.write(shape.value)
        if value:
            schema["additionalProperties"] = value
        names = _names_schema(key)
        if names:
            schema["propertyNames"] = names
        return schema

    def _write_record(self, record: Record) -> Schema:
        schema: Schema = {"type": "object"}
        properties = {field.name: self._write_field(field, field.shape) for field in record.fields}
        required = [field.name for field in record.fields if field.required]
        if record.tag is not None:
            name, value = record.tag
            properties = {name: {"const": value}, **properties}
            required = [name, *required]
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        if record.closed:
            schema["additionalProperties"] = False
        return schema


def json_form(value: Any) -> Json:
    """A default as JSON, or UNSET where it has no such form."""
    try:
        dump = getattr(value, "model_dump", None)
        told = dump(mode="json") if callable(dump) and not isinstance(value, type) else msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, OverflowError):
        return str(value) if hasattr(value, "__fspath__") else UNSET
    return list(told) if isinstance(told, tuple) else told


def _write_scalar(shape: Scalar) -> Schema:
    if shape.format == "decimal":
        return dict(_DECIMAL)
    if shape.format == "base64":
        return {"type": "string", "contentEncoding": "base64"}
    schema: Schema = {"type": shape.kind}
    if shape.format:
        schema["format"] = shape.format
    return schema


def _write_choice(values: tuple[Json, ...]) -> Schema:
    kinds = list(dict.fromkeys(_kind_of(value) for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(values)}


def _kind_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
    return "string"


def _names_schema(key: Schema) -> Schema:
    """What a map's key says as a rule for names, which are always strings."""
    if key.get("type") == "integer":
        return {"pattern": r"^-?(0|[1-9]\d*)$"}
    if key.get("type") == "number":
        return {"pattern": r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"}
    return {name: value for name, value in key.items() if name not in {"type", "description"}}


def _or_null(schema: Schema) -> Schema:
    """The schema, or null; a list of types says it without hiding the type in an `anyOf`."""
    kind = schema.get("type")
    if kind is None and not schema:
        return schema
    if "anyOf" in schema and kind is None:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if kind is None or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = [kind] if isinstance(kind, str) else kind
    if "null" in kinds:
        return schema
    nullable = {**schema, "type": [*kinds, "null"]}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return nullable


def _annotate(schema: Schema, notes: Notes) -> Schema:
    if "anyOf" in schema or "$ref" in schema:
        kind = ""
    else:
        kinds = schema.get("type", "")
        kind = kinds if isinstance(kinds, str) else kinds[0]
    bounds = {
        "minimum": notes.minimum,
        "exclusiveMinimum": notes.above,
        "maximum": notes.maximum,
        "exclusiveMaximum": notes.below,
        "multipleOf": notes.multiple_of,
        "pattern": notes.pattern,
    }
    schema.update({keyword: _number(value) for keyword, value in bounds.items() if value is not None})
    least, most = _LENGTHS.get(kind, _LENGTHS["string"])
    if notes.min_length is not None:
        schema[least] = notes.min_length
    if notes.max_length is not None:
        schema[most] = notes.max_length
    if notes.allowed:
        schema["enum"] = list(notes.allowed)
    if notes.description:
        schema["description"] = notes.description
    if notes.examples:
        schema["examples"] = [json_form(example) for example in notes.examples]
    if notes.header:
        schema["x-mcp-header"] = notes.header
    schema.update(notes.extra)
    return schema


def _number(bound: Any) -> Json:
    """A bound as JSON; annotated-types lets people bound dates too, which a schema cannot say."""
    return bound if isinstance(bound, str | int | float) else json_form(bound)


def _count(shape: Shape, uses: dict[Hashable, int]) -> None:
    match shape:
        case Record(type=key, fields=fields):
            uses[key] = uses.get(key, 0) + 1
            if uses[key] == 1:
                for field in fields:
                    _count(field.shape, uses)
        case Alias(key=key, inner=inner):
            uses[key] = uses.get(key, 0) + 1
            if uses[key] == 1:
                _count(inner, uses)
        case Ref(key=key):
            uses[key] = uses.get(key, 0) + 2
        case Nullable(inner=inner):
            _count(inner, uses)
        case Items(item=item):
            _count(item, uses)
        case Map(key=key, value=value):
            _count(key, uses)
            _count(value, uses)
        case Fixed(items=parts) | Either(options=parts):
            for part in parts:
                _count(part, uses)


def _choose_names(named: Mapping[Hashable, Record | Alias]) -> dict[Hashable, str]:
    chosen: dict[Hashable, str] = {}
    for key, shape in named.items():
        name = shape.name
        for number in range(2, len(named) + 2):
            if name not in chosen.values():
                break
            name = f"{shape.name}_{number}"
        chosen[key] = name
    return chosen
