"""Compiles a shape into what msgspec decodes it as, and what is left to do in Python.

Most shapes are read by msgspec alone. What it cannot express (pydantic models, two dataclasses in one union, paths) is
decoded as plain JSON, or as the nearest type it knows, and finished by a `load` function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from pegboard.call import Json
from pegboard.errors import PegboardError
from pegboard.tools.check import Validator
from pegboard.tools.constraints import Notes, has_bounds
from pegboard.tools.schema import write_schema
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

Load: TypeAlias = Callable[[Any], Any]
Named: TypeAlias = Mapping[Hashable, Record | Alias]

_INT64 = 2**63


class BindingProblem(PegboardError):
    """An argument that fits its schema and still cannot become what the function takes.

    An author's own ValueError, in a `__post_init__` or a validator, is one too. `path` is written as in `items[3].price`.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message
        self.others: tuple[BindingProblem, ...] = ()

    def under(self, parent: str) -> BindingProblem:
        """The same problem, seen from outside."""
        path = f"{parent}{self.path}" if self.path.startswith("[") or not self.path else f"{parent}.{self.path}"
        moved = BindingProblem(path, self.message)
        moved.others = tuple(other.under(parent) for other in self.others)
        return moved


class Wire(Struct, frozen=True):
    """`type` is for msgspec; `load` finishes what it decoded. Sound: whatever it accepts fits the JSON Schema too."""

    type: Any
    sound: bool
    load: Load | None = None


def compile_wire(shape: Shape, named: Named) -> Wire:
    """How values of this shape come out of JSON."""
    return _Compiler(named).wire(shape)


def convert(value: Json, wanted: Any) -> Any:
    """A JSON value as a type msgspec knows, or a BindingProblem at its path."""
    try:
        return msgspec.convert(value, wanted, str_keys=True)
    except msgspec.ValidationError as problem:
        raise explain(problem) from problem


def explain(problem: msgspec.ValidationError) -> BindingProblem:
    """What msgspec says, with its path written our way and an author's own words kept."""
    text, _, place = str(problem).rpartition(" - at `")
    path = place[:-1].removeprefix("$").removeprefix(".") if text else ""
    message = str(problem.__cause__) if problem.__cause__ is not None else (text or str(problem)).replace("`", "")
    return BindingProblem(path, message)


class _Compiler:
    def __init__(self, named: Named) -> None:
        self._named = named
        self._loads: dict[Hashable, Load] = {}
        self._native: dict[Hashable, bool] = {}

    def wire(self, shape: Shape) -> Wire:
        match shape:
            case Anything():
                return Wire(Any, not has_bounds(shape.notes))
            case Scalar():
                return self._scalar(shape)
            case Choice():
                return self._choice(shape)
            case Nullable(inner=inner):
                return self._nullable(inner)
            case Items():
                return self._items(shape)
            case Map():
                return self._map(shape)
        if _is_native(shape, self._native, self._named):
            return Wire(_native_type(shape), self._is_sound(shape))
        return Wire(Any, False, self._load(shape))

    def _scalar(self, shape: Scalar) -> Wire:
        if shape.make is not None:
            plain = {"string": str, "integer": int, "number": float}[shape.kind]
            return Wire(plain, not shape.format and not has_bounds(shape.notes), _careful(shape.make))
        if shape.format:
            return Wire(shape.type, shape.format == "base64" and not has_bounds(shape.notes))
        return _bounded(shape.type, shape.kind, shape.notes)

    def _choice(self, shape: Choice) -> Wire:
        kinds = {type(value) for value in shape.values}
        bounded = has_bounds(shape.notes)
        if kinds == {str} or kinds == {int}:
            return Wire(shape.type, not bounded)
        if kinds <= {str, int, type(None)} and not shape.names and shape.values == shape.members:
            return Wire(Literal.__getitem__(shape.values), not bounded)
        return Wire(Any, False, self._load(shape))

    def _nullable(self, inner: Shape) -> Wire:
        wire = self.wire(inner)
        load = wire.load
        if wire.type is Any:
            return Wire(Any, wire.sound, None if load is None else lambda value: None if value is None else load(value))
        nullable = wire.type | None
        if not _is_known(nullable):
            return Wire(Any, False, self._load(Nullable(inner=inner)))
        return Wire(nullable, wire.sound, None if load is None else lambda value: None if value is None else load(value))

    def _items(self, shape: Items) -> Wire:
        item = self.wire(shape.item)
        sound = item.sound and not shape.unique
        if item.load is None and _is_known(shape.type[_place(item, shape)]):
            wanted = shape.type[_place(item, shape)]
            return _bounded(wanted, "array", shape.notes, sound)
        # Items that are finished in Python are decoded as a list: what they become may be hashable, their JSON is not.
        load = item.load or (lambda value: convert(value, item.type))
        return _bounded(list[item.type], "array", shape.notes, sound, _each(load, shape.type))

    def _map(self, shape: Map) -> Wire:
        key, value = self.wire(shape.key), self.wire(shape.value)
        plain_keys = isinstance(shape.key, Scalar) and shape.key.type is str and not has_bounds(shape.key.notes)
        sound = key.sound and value.sound and (plain_keys or isinstance(shape.key, Anything))
        if key.load is None and value.load is None and _is_known(dict[key.type, value.type]):
            return _bounded(dict[key.type, value.type], "object", shape.notes, sound)
        return _bounded(dict[str, Any], "object", shape.notes, False, self._load(shape))

    def _is_sound(self, shape: Shape, seen: frozenset[Hashable] = frozenset()) -> bool:
        """Whether msgspec, reading the author's own class, refuses all that the schema refuses."""
        if isinstance(shape, Ref):
            return True
        if has_bounds(shape.notes):
            return False
        match shape:
            case Record(type=key, fields=fields):
                return all(self._is_sound(field.shape, seen | {key}) for field in fields)
            case Nullable(inner=inner):
                return self._is_sound(inner, seen)
            case Fixed(items=parts) | Either(options=parts):
                return all(self._is_sound(part, seen) for part in parts)
            case Items(item=item, unique=unique):
                return not unique and self._is_sound(item, seen)
        return self.wire(shape).sound

    def _load(self, shape: Shape) -> Load:
        """From plain JSON to the Python value, part by part."""
        match shape:
            case Record(type=key) | Alias(key=key):
                if key not in self._loads:
                    self._loads[key] = lambda value: self._loads[key](value)
                    self._loads[key] = self._load_record(shape) if isinstance(shape, Record) else self._full(shape.inner)
                return self._loads[key]
            case Ref(key=key):
                return lambda value: self._load(self._named[key])(value)
            case Choice():
                return _load_choice(shape)
            case Either():
                return self._load_either(shape)
            case Nullable(inner=inner):
                load = self._full(inner)
                return lambda value: None if value is None else load(value)
            case Fixed():
                return self._load_fixed(shape)
            case Map():
                return self._load_map(shape)
            case Foreign(type=wanted):
                return load_pydantic(wanted)
        return self._full(shape)

    def _full(self, shape: Shape) -> Load:
        """The load that starts from plain JSON, whatever msgspec does of it."""
        wire = self.wire(shape)
        if wire.type is Any:
            return wire.load or (lambda value: value)
        if wire.load is None:
            return lambda value: convert(value, wire.type)
        finish = wire.load
        return lambda value: finish(convert(value, wire.type))

    def _load_record(self, record: Record) -> Load:
        if record.maker.startswith("pydantic"):
            return load_pydantic(record.type)
        parts = [(field, self._full(field.shape)) for field in record.fields]
        make = dict if record.maker == "typeddict" else record.type

        def load(value: Json) -> Any:
            if not isinstance(value, dict):
                raise BindingProblem("", "Expected object")
            made = {}
            for field, part in parts:
                if field.name in value:
                    made[field.attribute.lstrip("_") if record.maker == "attrs" else field.attribute] = _at(
                        field.name, part, value[field.name]
                    )
                elif field.required:
                    raise BindingProblem(field.name, "is required")
            return _careful(lambda arguments: make(**arguments))(made)

        return load

    def _load_either(self, shape: Either) -> Load:
        branches = [
            (option, Validator(write_schema(Shaped(option, self._named))), self._full(option)) for option in shape.options
        ]

        def load(value: Json) -> Any:
            fitting = [(_strangers(option, value), place) for place, (option, fits, _) in enumerate(branches) if fits.is_valid(value)]
            problem: BindingProblem | None = None
            for _, place in sorted(fitting):
                try:
                    return branches[place][2](value)
                except BindingProblem as refused:
                    problem = problem or refused
            raise problem or BindingProblem("", "fits none of the alternatives")

        return load

    def _load_fixed(self, shape: Fixed) -> Load:
        parts = [self._full(item) for item in shape.items]

        def load(value: Json) -> Any:
            made = [_at(f"[{place}]", part, item) for place, (part, item) in enumerate(zip(parts, value, strict=False))]
            return shape.type(*made) if shape.names else tuple(made)

        return load

    def _load_map(self, shape: Map) -> Load:
        key, value = self._full(shape.key), self._full(shape.value)
        plain = isinstance(shape.key, Scalar) and shape.key.type in {int, float}
        key = shape.key.type if plain and isinstance(shape.key, Scalar) else key
        return lambda given: {_at(name, key, name): _at(name, value, item) for name, item in given.items()}


def load_pydantic(wanted: Any) -> Load:
    """Strict JSON mode: it takes what JSON has for dates and sets, and converts nothing else behind our back."""
    if hasattr(wanted, "__pydantic_validator__") and isinstance(wanted, type):
        validate = wanted.__pydantic_validator__.validate_json
    else:
        import pydantic  # noqa: PLC0415 (an optional third party, whose type is in hand)

        validate = pydantic.TypeAdapter(wanted).validate_json
    encode = msgspec.json.encode

    def load(value: Json) -> Any:
        try:
            return validate(encode(value), strict=True)
        except ValueError as refused:
            raise _explain_pydantic(refused) from refused

    return load


def _explain_pydantic(refused: Any) -> BindingProblem:
    problems = []
    for error in refused.errors(include_url=False, include_context=False, include_input=False):
        path = ""
        for step in error["loc"]:
            path += f"[{step}]" if isinstance(step, int) else (f".{step}" if path else str(step))
        problems.append(BindingProblem(path, error["msg"].removeprefix("Value error, ")))
    first = problems[0]
    first.others = tuple(problems[1:])
    return first


def _load_choice(shape: Choice) -> Load:
    members = {(type(value), value): member for value, member in zip(shape.values, shape.members, strict=True)}

    def load(value: Json) -> Any:
        for kind in (type(value), int, float):
            if (kind, value) in members and (kind is type(value) or not isinstance(value, bool)):
                return members[kind, value]
        raise BindingProblem("", "is not one of the allowed values")

    return load


def _careful(make: Load) -> Load:
    """An author's own refusal is a problem of the argument."""

    def load(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError) as refused:
            raise BindingProblem("", str(refused)) from refused

    return load


def _at(name: str, load: Load, value: Any) -> Any:
    try:
        return load(value)
    except BindingProblem as problem:
        raise problem.under(name) from problem


def _each(load: Load, kind: Any) -> Load:
    return lambda values: kind(_at(f"[{place}]", load, value) for place, value in enumerate(values))


def _strangers(option: Shape, value: Json) -> int:
    """How many names of the value this alternative would lose."""
    if isinstance(option, Record) and isinstance(value, dict):
        known = {field.name for field in option.fields}
        return sum(name not in known for name in value)
    return 0


def _bounded(wanted: Any, kind: str, notes: Notes, sound: bool = True, load: Load | None = None) -> Wire:
    """The type with those bounds that msgspec and JSON Schema read alike; any other makes it unsound."""
    if not has_bounds(notes):
        return Wire(wanted, sound, load)
    said: dict[str, Any] = {}
    if kind in {"integer", "number"}:
        said = {"ge": notes.minimum, "gt": notes.above, "le": notes.maximum, "lt": notes.below}
    elif kind in {"string", "array", "object"}:
        said = {"min_length": notes.min_length, "max_length": notes.max_length}
    said = {name: bound for name, bound in said.items() if bound is not None}
    other = notes.pattern is not None or notes.multiple_of is not None or bool(notes.allowed)
    exact = all(type(bound) is int and abs(bound) < _INT64 for bound in said.values()) or (
        kind == "number" and all(type(bound) in {int, float} and abs(bound) < _INT64 for bound in said.values())
    )
    if len({"ge", "gt"} & said.keys()) > 1 or len({"le", "lt"} & said.keys()) > 1 or not exact:
        return Wire(wanted, False, load)
    return Wire(Annotated[wanted, Meta(**said)] if said else wanted, sound and not other and bool(said), load)


def _place(item: Wire, shape: Items) -> Any:
    return (item.type, ...) if shape.type is tuple else item.type


def _native_type(shape: Shape) -> Any:
    match shape:
        case Record(type=wanted) | Scalar(type=wanted) | Choice(type=wanted) | Ref(key=wanted):
            return wanted
        case Fixed(type=wanted, names=names, items=items):
            return wanted if names else tuple.__class_getitem__(tuple(_native_type(item) for item in items) or ((),))
        case Nullable(inner=inner):
            return _native_type(inner) | None
        case Either(options=options):
            from typing import Union  # noqa: PLC0415

            return Union.__getitem__(tuple(_native_type(option) for option in options))
        case Items(type=wanted, item=item):
            inner = _native_type(item)
            return wanted[inner, ...] if wanted is tuple else wanted[inner]
        case Map(key=key, value=value):
            return dict[_native_type(key), _native_type(value)]
    return Any


def _is_native(shape: Shape, known: dict[Hashable, bool], named: Named) -> bool:
    """Whether msgspec reads the author's own types here without help."""
    match shape:
        case Anything():
            return True
        case Scalar(make=make):
            return make is None
        case Choice(values=values):
            return len({type(value) for value in values}) == 1 and type(values[0]) in {str, int}
        case Nullable(inner=inner):
            return _is_native(inner, known, named)
        case Items(item=item):
            return _is_native(item, known, named)
        case Map(key=key, value=value):
            return _is_native(key, known, named) and _is_native(value, known, named)
        case Fixed(items=parts):
            native = all(_is_native(part, known, named) for part in parts)
            return native and _is_known(_native_type(shape))
        case Either(options=parts):
            native = all(_is_native(part, known, named) for part in parts)
            return native and _is_known(_native_type(shape))
        case Ref(key=key):
            return known.get(key, True) and isinstance(named.get(key), Record)
        case Record(type=key, maker=maker, fields=fields):
            if key not in known:
                known[key] = True
                known[key] = (
                    not maker.startswith("pydantic")
                    and all(_is_native(field.shape, known, named) for field in fields)
                    and not _has_hidden_fields(key, fields)
                    and _is_known(key)
                )
            return known[key]
    return False


def _has_hidden_fields(cls: Any, fields: tuple[Field, ...]) -> bool:
    """msgspec would let a caller set dataclass fields that the author keeps out of `__init__`."""
    declared = getattr(cls, "__dataclass_fields__", None)
    return declared is not None and len(declared) != len(fields)


def _is_known(wanted: Any) -> bool:
    try:
        msgspec.json.Decoder(wanted)
    except (TypeError, RecursionError, NameError):
        return False
    return True
