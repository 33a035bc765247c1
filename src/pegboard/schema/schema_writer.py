"""Writes JSON Schema 2020-12 from shapes."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from msgspec import UNSET

from pegboard.call import Json
from pegboard.protocol.json_values import as_list, as_object, texts_in
from pegboard.schema.literals import kind_of
from pegboard.schema.plain_json import UNWRITABLE, decode, encode
from pegboard.schema.types.constraints import ValueNotes
from pegboard.schema.types.record_types import maker_of
from pegboard.schema.types.shape import (
    AliasShape,
    ChoiceShape,
    FieldShape,
    ForeignShape,
    ListShape,
    MapShape,
    NullableShape,
    RecordShape,
    RefShape,
    ScalarShape,
    Shape,
    Shaped,
    TupleShape,
    UnionShape,
    children,
)
from pegboard.schema.wording import DECIMAL_PATTERN

Schema: TypeAlias = dict[str, Json]

# For the repair engine only: the names of an author's enum values, and whether case counts.
NAMES = "x-pegboard-names"
EXACT = "x-pegboard-exact"

# A decimal may be sent as text to keep every digit.
_DECIMAL_TEXT: Schema = {"type": "string", "pattern": DECIMAL_PATTERN}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_NUMERIC_NAMES = {
    "integer": r"^-?(0|[1-9][0-9]*)$",
    "number": r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
}
# Keywords with values, in place of schemas.
_DATA = frozenset({"default", "const", "enum", "examples"})
_REFERENCE = re.compile(r"^#/\$defs/(.+)$")


def write_schema(shaped: Shaped) -> Schema:
    """The schema of one shape."""
    writer = _Writer(shaped.named, [shaped.shape])
    return writer.finish(writer.write(shaped.shape))


def write_parameters(
    fields: Sequence[FieldShape], named: Mapping[Hashable, RecordShape | AliasShape], *, private: bool = False
) -> Schema:
    """The input schema of a function: closed at any depth, since a name without a parameter or field would be lost.

    `private` adds keywords that only the repair engine reads.
    """
    writer = _Writer(named, [field.shape for field in fields], private=private, closed=True)
    # Without parameters too, some clients need `properties`: smolagents fails, and with it every other tool.
    properties = {field.name: writer.write_parameter(field) for field in fields}
    schema: Schema = {"type": "object", "properties": properties}
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return writer.finish(schema)


def is_shown_plain(field: FieldShape) -> bool:
    """Whether null means the same as omitting the parameter, so that the schema need not mention it.

    `anyOf` with null hides the type from hosts that only look at `type`; several then send JSON in a string.
    """
    void = field.default is UNSET or field.default is None
    return isinstance(field.shape, NullableShape) and not field.required and void


def json_form(value: Any) -> Json:
    """A default or example as JSON, or UNSET if it has no JSON form."""
    try:
        return decode(encode(value))
    except UNWRITABLE:
        return UNSET


def new_default(default: Any) -> Any:
    """A copy of a default for one call, if it is a container or a record; other objects may stand for themselves."""
    if not isinstance(default, list | dict | set | bytearray) and maker_of(type(default)) is None:
        return default
    try:
        return deepcopy(default)
    except Exception:  # noqa: BLE001 (an author's object, whose copying may fail in any way)
        return default


class _Writer:
    def __init__(
        self,
        named: Mapping[Hashable, RecordShape | AliasShape],
        roots: Iterable[Shape],
        *,
        private: bool = False,
        closed: bool = False,
    ) -> None:
        self._named = named
        self._private = private
        self._closed = closed
        self._defs: dict[str, Schema] = {}
        uses: dict[Hashable, int] = {}
        for root in roots:
            _count(root, uses)
        self._names = _choose_names({key: named[key] for key, count in uses.items() if count > 1 and key in named})

    def finish(self, schema: Schema) -> Schema:
        return {**schema, "$defs": self._defs} if self._defs else schema

    def write_parameter(self, field: FieldShape) -> Schema:
        shape = field.shape
        if isinstance(shape, NullableShape) and is_shown_plain(field):
            shape = shape.inner
        return self._write_field(field, shape)

    def write(self, shape: Shape) -> Schema:
        match shape:
            case RecordShape(type=key) | AliasShape(key=key) | RefShape(key=key) if key in self._names:
                return annotate(self._refer(key), shape.notes, "")
            case AliasShape(inner=inner):
                return self.write(inner)
            case NullableShape(inner=inner):
                return _or_null(self.write(inner))
        return self._write_here(shape)

    def _write_field(self, field: FieldShape, shape: Shape) -> Schema:
        schema = self.write(shape)
        if field.default is not UNSET and field.default is not None:
            default = json_form(field.default)
            if default is not UNSET:
                schema["default"] = default
        return schema

    def _refer(self, key: Hashable) -> Schema:
        name = self._names[key]
        if name not in self._defs:
            self._defs[name] = {}
            named = self._named[key]
            self._defs[name] = self.write(named.inner) if isinstance(named, AliasShape) else self._write_here(named)
        return {"$ref": f"#/$defs/{name}"}

    def _write_here(self, shape: Shape) -> Schema:
        format_ = shape.format if isinstance(shape, ScalarShape) else ""
        schema = annotate(self._write_bare(shape), shape.notes, format_, private=self._private)
        if isinstance(shape, RecordShape) and shape.summary:
            schema.setdefault("description", shape.summary)
        return schema

    def _write_bare(self, shape: Shape) -> Schema:
        match shape:
            case ScalarShape():
                return _write_scalar(shape)
            case ChoiceShape():
                return self._write_choice(shape)
            case ListShape(item=item, unique=unique):
                return _without_empty({"type": "array", "items": self.write(item), "uniqueItems": unique})
            case TupleShape():
                return self._write_fixed(shape)
            case MapShape():
                return self._write_map(shape)
            case RecordShape():
                return self._write_record(shape)
            case UnionShape(options=options):
                return {"anyOf": [self.write(option) for option in options]}
            case ForeignShape(schema=foreign):
                return self._adopt(foreign)
        return {}

    def _write_choice(self, shape: ChoiceShape) -> Schema:
        kinds = list(dict.fromkeys("number" if isinstance(each, float) else kind_of(each) for each in shape.values))
        schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(shape.values)}
        if self._private and shape.names and shape.names != shape.values:
            schema[NAMES] = dict(zip(shape.names, shape.values, strict=True))
        return schema

    def _write_fixed(self, shape: TupleShape) -> Schema:
        places = [self.write(item) for item in shape.items]
        if shape.names:
            places = [{"title": name, **place} for name, place in zip(shape.names, places, strict=True)]
        sizes = {"minItems": shape.least, "maxItems": len(places)}
        return {**_without_empty({"type": "array", "prefixItems": places}), **sizes}

    def _write_map(self, shape: MapShape) -> Schema:
        key, value = self.write(shape.key), self.write(shape.value)
        kind = key.get("type")
        names = {word: bound for word, bound in key.items() if word not in {"type", "description", NAMES}}
        if kind in _NUMERIC_NAMES:
            # Names are always strings: constraints of a number would never match one.
            names = {"pattern": _NUMERIC_NAMES[kind]}
        return _without_empty({"type": "object", "propertyNames": names, "additionalProperties": value})

    def _write_record(self, record: RecordShape) -> Schema:
        properties = {field.name: self._write_field(field, field.shape) for field in record.fields}
        required = [field.name for field in record.fields if field.required]
        if record.tag is not None:
            name, value = record.tag
            properties = {name: {"const": value}, **properties}
        schema = _without_empty({"type": "object", "properties": properties, "required": required})
        return {**schema, **self._write_extras(record)}

    def _write_extras(self, record: RecordShape) -> Schema:
        if record.extras == "forbid" or (record.extras == "drop" and self._closed):
            return {"additionalProperties": False}
        return {"additionalProperties": True} if record.extras == "allow" and self._closed else {}

    def _adopt(self, foreign: Mapping[str, Json]) -> Schema:
        """A foreign schema, with its definitions moved into ours."""
        schema = dict(as_object(_close(foreign)) if self._closed else foreign)
        theirs = as_object(schema.pop("$defs", {}))
        taken = {*self._names.values(), *self._defs}
        renamed = {
            name: name if name not in taken or self._defs.get(name) == definition else f"{name}_{len(taken)}"
            for name, definition in theirs.items()
        }
        for name, definition in theirs.items():
            self._defs[renamed[name]] = _rename_in(as_object(definition), renamed)
        return _rename_in(schema, renamed)


def _rename_in(schema: Mapping[str, Json], names: Mapping[str, str]) -> Schema:
    return {word: _rename(inner, names) for word, inner in schema.items()}


def _close(part: Json) -> Json:
    """A foreign schema whose objects take only the names that they declare, unless they say otherwise."""
    if isinstance(part, list):
        return [_close(inner) for inner in part]
    if not isinstance(part, Mapping):
        return part
    closed = {word: inner if word in _DATA else _close(inner) for word, inner in part.items()}
    if part.get("type") == "object" and isinstance(part.get("properties"), Mapping):
        closed.setdefault("additionalProperties", False)
    return closed


def _rename(part: Json, names: Mapping[str, str]) -> Json:
    if isinstance(part, Mapping):
        return _rename_in(part, names)
    if isinstance(part, list):
        return [_rename(inner, names) for inner in part]
    found = _REFERENCE.match(part) if isinstance(part, str) else None
    return part if found is None else f"#/$defs/{names.get(found[1], found[1])}"


def _without_empty(schema: Schema) -> Schema:
    return {word: value for word, value in schema.items() if value}


def _write_scalar(shape: ScalarShape) -> Schema:
    if shape.format == "decimal":
        return {"anyOf": [{"type": "number"}, dict(_DECIMAL_TEXT)]}
    if shape.format == "base64":
        return {"type": "string", "contentEncoding": "base64"}
    return _without_empty({"type": shape.kind, "format": shape.format})


def _or_null(schema: Schema) -> Schema:
    """The schema, or null; a list of types does not hide the type in an `anyOf`."""
    kind = schema.get("type")
    if not schema:
        return schema
    if "anyOf" in schema and kind is None:
        return {**schema, "anyOf": [*as_list(schema["anyOf"]), {"type": "null"}]}
    if kind is None or "const" in schema:
        about = {word: value for word, value in schema.items() if word in {"description", "examples"}}
        bare = {word: value for word, value in schema.items() if word not in about}
        return {"anyOf": [bare, {"type": "null"}], **about}
    kinds = [kind] if isinstance(kind, str) else as_list(kind)
    if "null" in kinds:
        return schema
    return {
        **schema,
        "type": [*kinds, "null"],
        **({"enum": [*as_list(schema["enum"]), None]} if "enum" in schema else {}),
    }


def annotate(schema: Schema, notes: ValueNotes, format_: str, *, private: bool = False) -> Schema:
    """Add the constraints. Bounds that JSON Schema cannot express for a format are checked by the binder."""
    if not format_ or format_ == "decimal":
        number: Schema = {"type": "number"} if format_ else schema
        bounds = {
            "minimum": notes.minimum,
            "exclusiveMinimum": notes.above,
            "maximum": notes.maximum,
            "exclusiveMaximum": notes.below,
            "multipleOf": notes.multiple_of,
        }
        for keyword, bound in bounds.items():
            if bound is not None:
                number[keyword] = bound if type(bound) in {int, float} else float(bound)
        if format_:
            schema["anyOf"] = [number, dict(_DECIMAL_TEXT)]
    if not format_ or format_ == "path":
        kind = schema.get("type", "string")
        first = kind if isinstance(kind, str) else next(iter(texts_in(kind)), "string")
        least, most = _LENGTHS.get(first, _LENGTHS["string"])
        schema.update(
            {word: size for word, size in ((least, notes.min_length), (most, notes.max_length)) if size is not None}
        )
    if notes.pattern is not None:
        schema["pattern"] = notes.pattern
    if notes.allowed:
        schema["enum"] = list(notes.allowed)
        if private and notes.case_sensitive:
            schema[EXACT] = True
    if notes.description:
        schema["description"] = notes.description
    examples = [example for example in map(json_form, notes.examples) if example is not UNSET]
    if examples:
        schema["examples"] = examples
    if notes.header:
        schema["x-mcp-header"] = notes.header
    schema.update(notes.extra)
    return schema


def _count(shape: Shape, uses: dict[Hashable, int]) -> None:
    match shape:
        case RefShape(key=key):
            # A recursive type always needs a definition to refer to.
            uses[key] = uses.get(key, 0) + 2
            return
        case RecordShape(type=key) | AliasShape(key=key):
            uses[key] = uses.get(key, 0) + 1
            if uses[key] > 1:
                return
    for part in children(shape):
        _count(part, uses)


def _choose_names(named: Mapping[Hashable, RecordShape | AliasShape]) -> dict[Hashable, str]:
    chosen: dict[Hashable, str] = {}
    for key, shape in named.items():
        name = shape.name
        for number in range(2, len(named) + 2):
            if name not in chosen.values():
                break
            name = f"{shape.name}_{number}"
        chosen[key] = name
    return chosen
