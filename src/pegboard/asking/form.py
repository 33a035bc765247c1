"""Forms: the flat schema a client displays, and the submitted values.

A form is derived from a type and read by the engine that reads arguments, so the same repairs apply: a number that a
client sends as text is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, get_origin

import msgspec
from msgspec import structs

from pegboard.argument_problems import ParseError
from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.protocol.json_values import as_list, as_object, objects_in, texts_in
from pegboard.schema.literals import fold_name
from pegboard.tools.message import JsonRpcMessage
from pegboard.tools.signature import schema_of
from pegboard.tools.tool import Tool, tool_from_function

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_NUMERIC: Final = frozenset({"integer", "number"})
_PRIMITIVE: Final = frozenset({"string", "number", "integer", "boolean"})
_NOTHING: Final[Mapping[str, Any]] = {}
_ONLY: Final = "value"


class Form:
    """A form: `schema` is what the client shows, `read` converts its answer to a value."""

    def __init__(
        self,
        schema: Mapping[str, Json],
        read: Callable[[Mapping[str, Json]], tuple[Any, Sequence[ParseError]]],
        whole: Mapping[str, Json] | None = None,
    ) -> None:
        """`whole` is the schema that this form is a flat version of; fields that are required and nullable may stay
        empty."""
        self.schema = schema
        self._read = read
        shown, required = as_object(schema["properties"]), texts_in(schema.get("required"))
        self._blank = frozenset(
            name for name, part in shown.items() if name not in required and not _may_be_empty(as_object(part))
        )
        always = texts_in((whole or schema).get("required"))
        self._null = [name for name in always if name in shown and name not in required]

    def read(self, content: Mapping[str, Json]) -> tuple[Any, Sequence[ParseError]]:
        """The value, or the problems; an optional field left empty counts as missing, whatever is sent for it."""
        filled = {name: value for name, value in content.items() if not (value == "" and name in self._blank)}
        for name in self._null:
            filled.setdefault(name, None)
        return self._read(filled)


def form_of(wanted: Any) -> Form:
    """The form of a dataclass or similar, of one plain value, of a JSON Schema, or without fields (a yes or no)."""
    if wanted is None:
        return _CONSENT
    if isinstance(wanted, Mapping):
        return _form_of_schema(wanted)
    if _is_hashable(wanted):
        return _form_of_type(wanted)
    if get_origin(wanted) is None:
        raise DeclarationError(
            f"A form needs a type such as bool, Literal['yes', 'no'] or a dataclass, got {wanted!r:.80}"
        )
    # For example, an Annotated that contains a list.
    return _form_of_type.__wrapped__(wanted)


def _is_hashable(wanted: Any) -> bool:
    try:
        hash(wanted)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=256)
def _form_of_type(wanted: Any) -> Form:
    schema = schema_of(wanted)
    tool = _reader_tool(wanted)
    if schema.get("type") == "object":
        flat = _flat(schema, wanted)
        spellings = frozenset(map(fold_name, as_object(flat["properties"])))
        return Form(flat, lambda content: _read_whole(tool, content, spellings), schema)
    # In a form, a single value needs a name.
    schema_of_one: dict[str, Json] = {"type": "object", "properties": {_ONLY: schema}}
    if _without_null(schema.get("type")) == schema.get("type"):
        schema_of_one["required"] = [_ONLY]
    return Form(_flat(schema_of_one, wanted), lambda content: _read_one(tool, content))


def _form_of_schema(schema: Mapping[str, Json]) -> Form:
    flat = _flat(schema, schema)
    # The client does not see additionalProperties, so extra fields are accepted.
    form_schema = {key: value for key, value in schema.items() if key != "additionalProperties"}
    tool = tool_from_function(_take_message, input_schema=form_schema)

    def read(content: Json) -> tuple[Any, Sequence[ParseError]]:
        parsed = tool.parse(msgspec.json.encode(content))
        return parsed.arguments, parsed.errors

    return Form(flat, read, schema)


def _take_message(answer: JsonRpcMessage) -> None:
    """Reads the answer to a form that is given as a schema."""


def _reader_tool(wanted: Any) -> Tool:
    def take(value: Any) -> Any:
        return value

    take.__annotations__ = {_ONLY: wanted}
    return tool_from_function(take)


def _read_whole(tool: Tool, content: Json, spellings: frozenset[str]) -> tuple[Any, Sequence[ParseError]]:
    # The form does not forbid other fields, so they are not errors.
    fields = {name: value for name, value in as_object(content).items() if fold_name(name) in spellings}
    value, errors = _read(tool, {_ONLY: fields})
    # The user sees fields, and does not know that they are one argument here.
    prefix = _ONLY + "."
    return value, tuple(
        structs.replace(error, path=error.path.removeprefix(prefix), message=error.message.removeprefix(prefix))
        for error in errors
    )


def _read_one(tool: Tool, content: Mapping[str, Json]) -> tuple[Any, Sequence[ParseError]]:
    # The form does not forbid other fields, so they are not errors.
    return _read(tool, {_ONLY: content[_ONLY]} if _ONLY in content else content)


def _read(tool: Tool, arguments: Json) -> tuple[Any, Sequence[ParseError]]:
    parsed = tool.parse(msgspec.json.encode(arguments))
    return (None, parsed.errors) if parsed.errors else (tool.author(parsed.value, _NOTHING), ())


def _read_consent(content: Json) -> tuple[Any, Sequence[ParseError]]:
    return content, ()


_CONSENT: Final = Form({"type": "object", "properties": {}}, _read_consent)


def _flat(schema: Mapping[str, Json], wanted: Any) -> Mapping[str, Json]:
    """The schema as a form: "limited to flat objects with primitive properties only" (Requested Schema)."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise DeclarationError(f"A form must be an object with properties, got {_name(wanted)}")
    flat: dict[str, Json] = {
        "type": "object",
        "properties": {name: _flat_property(name, part, wanted) for name, part in properties.items()},
    }
    if schema.get("$schema"):
        flat["$schema"] = schema["$schema"]
    required = [name for name in texts_in(schema.get("required")) if not _may_be_null(properties.get(name))]
    if required:
        flat["required"] = required
    return flat


def _flat_property(name: str, part: Json, wanted: Any) -> Mapping[str, Json]:
    if isinstance(part, Mapping):
        kind = _without_null(part.get("type"))
        nested = any(key in part for key in ("$ref", "properties", "anyOf", "allOf"))
        if not nested and (kind in _PRIMITIVE or (kind == "array" and _is_choice(part.get("items")))):
            flat = {key: value for key, value in part.items() if not (key == "default" and value is None)}
            if flat.get("format", "email") not in _FORMATS:
                del flat["format"]
            if isinstance(flat.get("enum"), list):
                flat["enum"] = [choice for choice in flat["enum"] if choice is not None]
                if kind in _NUMERIC:
                    return _in_words(flat)
            if kind == "array" and "enum" in flat["items"] and flat["items"].get("type") in _NUMERIC:
                flat["items"] = _in_words(flat["items"])
                if isinstance(flat.get("default"), list):
                    flat["default"] = [_word(choice) for choice in flat["default"]]
            return {**flat, "type": kind}
    raise DeclarationError(
        f"{name!r} of {_name(wanted)} cannot be a form field; use text, numbers, booleans, or choices of text"
    )


def _in_words(part: Mapping[str, Json]) -> dict[str, Json]:
    """A choice of numbers as a choice of texts, the only kind that forms have: "Array of enum values" are strings."""
    words = {name: part[name] for name in ("title", "description") if name in part}
    if "default" in part:
        words["default"] = _word(part["default"])
    return {**words, "type": "string", "enum": [_word(choice) for choice in as_list(part.get("enum"))]}


def _word(number: Json) -> str:
    return msgspec.json.encode(number).decode()


def _may_be_empty(part: Mapping[str, Json]) -> bool:
    """Whether empty text is a valid value of the field."""
    if "enum" in part:
        return "" in as_list(part["enum"])
    if "oneOf" in part:
        return any(choice.get("const") == "" for choice in objects_in(part["oneOf"]))
    bound = part.get("minLength") or "format" in part or "pattern" in part
    return part.get("type") == "string" and not bound


def _may_be_null(part: Json) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), list) and "null" in part["type"]


def _without_null(kind: Json) -> Json:
    """The one type besides null, since an optional field is simply omitted; None if there are several."""
    if not isinstance(kind, list):
        return kind
    others = [name for name in kind if name != "null"]
    return others[0] if len(others) == 1 else None


def _is_choice(items: Json) -> bool:
    return isinstance(items, Mapping) and any(key in items for key in ("enum", "anyOf", "oneOf"))


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", "the schema") if not isinstance(wanted, Mapping) else "the schema"
