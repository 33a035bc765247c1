"""The types of configuration values: each parses, reports errors and describes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from msgspec import UNSET, Struct

from pegboard.call import Json
from pegboard.config.mistakes import ConfigReport, ExpandedText, UnresolvedText, did_you_mean
from pegboard.config.source_file import KeyPath

MAX_NUMBER: Final = 1_000_000_000

_FROM_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}
_FLAGS: Final = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)


class ValueType(Protocol):
    """`read` returns UNSET for an invalid value, after reporting it; `expected` describes valid ones."""

    @property
    def expected(self) -> str: ...

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any: ...

    def schema(self) -> dict[str, Json]: ...


class TextValue(Struct, frozen=True):
    """Text of at least this many characters; `problem` is the message for any other value."""

    expected: str = "a string"
    least: int = 1
    problem: str = ""

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        problem = _about(self.problem, place, notes)
        if not isinstance(value, str):
            fix = "put it in quotes" if isinstance(value, int | float | bool) else ""
            return notes.add_mistake(place, problem, got=value, expected=self.expected, fix=fix)
        if len(value) < self.least:
            return notes.add_mistake(place, problem or "is empty", expected=self.expected)
        return notes.add_mistake(place, "contains a NUL character", fix="remove it") if "\0" in value else str(value)

    def schema(self) -> dict[str, Json]:
        return {"type": "string", "minLength": self.least}


class NumberValue(Struct, frozen=True):
    """A number greater than `above`, if that is given."""

    expected: str = "a number of seconds greater than 0"
    above: float | None = 0

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        number = _read_number(value)
        if number is not None and abs(number) <= MAX_NUMBER and (self.above is None or number > self.above):
            return float(number)
        return notes.add_mistake(place, got=value, expected=self.expected)

    def schema(self) -> dict[str, Json]:
        bound: dict[str, Json] = {"minimum": -MAX_NUMBER} if self.above is None else {"exclusiveMinimum": self.above}
        return {"anyOf": [{"type": "number", **bound, "maximum": MAX_NUMBER}, _FROM_VARIABLE]}


class IntegerValue(Struct, frozen=True):
    """A whole number within its bounds."""

    least: int
    most: int

    @property
    def expected(self) -> str:
        if self.least <= -MAX_NUMBER and self.most >= MAX_NUMBER:
            return "a whole number"
        return f"a whole number from {self.least} to {self.most}"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        number = _read_number(value)
        if number is not None and self.least <= number <= self.most and number == int(number):
            return int(number)
        return notes.add_mistake(place, got=value, expected=self.expected)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "integer", "minimum": self.least, "maximum": self.most}, _FROM_VARIABLE]}


class BooleanValue(Struct, frozen=True):
    """True or false."""

    expected: str = "true or false"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if isinstance(value, ExpandedText):
            value = _FLAGS.get(value.strip().lower(), value)
        if isinstance(value, bool):
            return value
        return notes.add_mistake(place, got=value, expected=self.expected)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "boolean"}, _FROM_VARIABLE]}


class ChoiceValue(Struct, frozen=True):
    """One of several words."""

    words: Mapping[str, Json]

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(f'"{word}"' for word in self.words)

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        meant = (
            did_you_mean(value, self.words) if isinstance(value, str) and not isinstance(value, ExpandedText) else ""
        )
        return notes.add_mistake(place, got=value, expected=self.expected, fix=meant if meant.startswith("did") else "")

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"enum": list(self.words)}, _FROM_VARIABLE]}


class AnyValue(Struct, frozen=True):
    """Any JSON value."""

    expected: str = "a JSON value"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        return plain(value, place, notes)

    def schema(self) -> dict[str, Json]:
        return {}


class NullValue(Struct, frozen=True):
    """Null."""

    expected: str = "null"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        return None if value is None else notes.add_mistake(place, got=value, expected=self.expected)

    def schema(self) -> dict[str, Json]:
        return {"type": "null"}


class UnreadObject(Struct, frozen=True):
    """An object, kept with its variables for a reader that knows its types."""

    expected: str = "an object"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if not isinstance(value, dict):
            return notes.add_mistake(place, got=value, expected=self.expected)
        plain(value, place, notes)
        return value

    def schema(self) -> dict[str, Json]:
        return {"type": "object", "additionalProperties": {}}


class UnionValue(Struct, frozen=True):
    """A value of one of several types; the first that fits is used."""

    options: tuple[ValueType, ...]

    @property
    def expected(self) -> str:
        return " or ".join(option.expected for option in self.options)

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        for option in self.options:
            attempt = ConfigReport("")
            read = option.read(value, place, attempt)
            if not attempt.count:
                return read
        # The mistake inside an object or list says more than a list of the types.
        inside = (ListValue,) if isinstance(value, list) else (MapValue, ObjectValue) if isinstance(value, dict) else ()
        nearest = [option for option in self.options if isinstance(option, inside)]
        if nearest:
            return nearest[0].read(value, place, notes)
        return notes.add_mistake(place, got=value, expected=self.expected)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [option.schema() for option in self.options]}


class ListValue(Struct, frozen=True):
    """A list of items of one type; `single` reads a value without brackets, `problem` describes any other value."""

    item: ValueType
    expected: str = "a list of strings"
    problem: str = ""
    single: ValueType | None = None

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if self.single is not None and not isinstance(value, list):
            item = self.single.read(value, place, notes)
            return UNSET if item is UNSET else (item,)
        if not isinstance(value, list):
            fix = "put it in brackets: [...]" if isinstance(value, str) else ""
            return notes.add_mistake(
                place, _about(self.problem, place, notes), got=value, expected=self.expected, fix=fix
            )
        items = [_read(self.item, item, (*place, position), notes) for position, item in enumerate(value)]
        return tuple(item for item in items if item is not UNSET)

    def schema(self) -> dict[str, Json]:
        several: dict[str, Json] = {"type": "array", "items": self.item.schema()}
        return several if self.single is None else {"anyOf": [self.single.schema(), several]}


class MapValue(Struct, frozen=True):
    """An object whose values have one type; `problem` is the message for any other value."""

    item: ValueType
    expected: str = "an object"
    problem: str = ""

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if not isinstance(value, dict):
            return notes.add_mistake(place, _about(self.problem, place, notes), got=value, expected=self.expected)
        items = {key: _read(self.item, item, (*place, key), notes) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not UNSET}

    def schema(self) -> dict[str, Json]:
        return {"type": "object", "additionalProperties": self.item.schema()}


class ObjectField(NamedTuple):
    """A key: its attribute, its type, and its description."""

    attribute: str
    kind: ValueType
    about: str


class ObjectValue(Struct, frozen=True):
    """An object with known keys, read to attributes; a text alone stands for the key `short`.

    `required`: the messages for missing keys. `make` makes the value from the attributes, if that is not a dict.
    """

    what: str
    fields: Mapping[str, ObjectField]
    required: Mapping[str, str] = {}
    short: str = ""
    make: Callable[..., Any] = dict

    @property
    def expected(self) -> str:
        return f"{'a string or ' if self.short else ''}an object that describes {self.what}"

    def read(self, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
        if self.short and isinstance(value, str):
            value = {self.short: value}
        if not isinstance(value, dict):
            return notes.add_mistake(place, got=value, expected=self.expected)
        values: dict[str, Any] = {}
        for key, item in value.items():
            field = self.fields.get(key)
            if field is None:
                notes.add_mistake((*place, key), f"{self.what} has no key {key!r}", fix=did_you_mean(key, self.fields))
                continue
            read = _read(field.kind, item, (*place, key), notes)
            if read is not UNSET:
                values[field.attribute] = read
        for key, problem in self.required.items():
            if key not in value:
                notes.add_mistake(place, _about(problem, place, notes), fix=f"add {key!r}")
        if self.make is dict:
            return values
        return self.make(**values) if values.keys() >= self.required.keys() else UNSET

    def schema(self) -> dict[str, Json]:
        properties = {key: {**field.kind.schema(), "description": field.about} for key, field in self.fields.items()}
        whole: dict[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
        if self.required:
            whole["required"] = list(self.required)
        if not self.short:
            return whole
        return {"anyOf": [self.fields[self.short].kind.schema(), whole]}


def plain(value: Json, place: KeyPath, notes: ConfigReport) -> Json:
    """Check that a value is JSON: TOML also has dates."""
    match value:
        case str():
            return str(value)
        case bool() | int() | float() | None:
            return value
        case list():
            return [plain(item, (*place, position), notes) for position, item in enumerate(value)]
        case dict():
            return {key: plain(item, (*place, key), notes) for key, item in value.items()}
    notes.add_mistake(place, got=value, expected="a JSON value", fix="put it in quotes")
    return None


def _read(kind: ValueType, value: Json, place: KeyPath, notes: ConfigReport) -> Any:
    return UNSET if isinstance(value, UnresolvedText) else kind.read(value, place, notes)


def _read_number(value: Json) -> int | float | None:
    """A number, possibly as the text of a variable; None for anything else."""
    if isinstance(value, ExpandedText):
        for parse in (int, float):
            with suppress(ValueError):
                return parse(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _about(problem: str, place: KeyPath, notes: ConfigReport) -> str:
    """The message with the names of the toolbox and the server that contain the path."""
    return problem.format(toolbox=place[1] if len(place) > 1 else "", server=notes.describe_server(place))
