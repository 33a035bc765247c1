"""Compiles a shape to a msgspec type, plus the Python code for what msgspec cannot decode.

msgspec reads most shapes alone. What it cannot express (pydantic models, two dataclasses in one union, paths) is
decoded as plain JSON, or as the nearest type that msgspec knows, and completed by a `load` function.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import ExitStack
from threading import local
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from pegboard.binding.conversion import BindingProblem, Load, convert, guard, load_at, load_pydantic
from pegboard.binding.msgspec_types import Named, either_type, is_known, is_native, list_type, native_type
from pegboard.call import Json
from pegboard.schema.schema_writer import write_schema
from pegboard.schema.types.constraints import ValueNotes, has_bounds, narrows
from pegboard.schema.types.shape import (
    AliasShape,
    AnyShape,
    ChoiceShape,
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
    walk,
)
from pegboard.schema.validator import Validator

_INT64 = 2**63
_PLAIN = {"string": str, "integer": int, "number": float}


class Decoder(Struct, frozen=True):
    """`type` is for msgspec; `load` completes its result. Sound: everything it accepts also fits the JSON Schema."""

    type: Any
    sound: bool
    load: Load | None = None


def compile_decoder(shape: Shape, named: Named) -> Decoder:
    """How values of this shape are decoded from JSON."""
    return _Compiler(named).compile(shape)


class _Compiler:
    def __init__(self, named: Named) -> None:
        self._named = named
        self._loads: dict[Hashable, Load] = {}
        self._native: dict[Hashable, bool] = {}
        self._loaded = _Loaded()

    def compile(self, shape: Shape) -> Decoder:
        wire = self.wire(shape)
        return wire if wire.load is None else structs.replace(wire, load=self._loaded.forgetting(wire.load))

    def wire(self, shape: Shape) -> Decoder:
        match shape:
            case AnyShape(notes=notes):
                return Decoder(Any, not has_bounds(notes))
            case ScalarShape():
                return _wire_scalar(shape)
            case ChoiceShape():
                return _wire_choice(shape)
            case NullableShape(inner=inner):
                return self._wire_nullable(inner)
            case ListShape():
                return self._wire_items(shape)
            case MapShape():
                return self._wire_map(shape)
        if is_native(shape, self._named, self._native):
            return Decoder(native_type(shape), self._is_sound(shape))
        return Decoder(Any, False, self._load(shape))

    def _wire_nullable(self, inner: Shape) -> Decoder:
        wire = self.wire(inner)
        wanted = wire.type if wire.type is Any else either_type((wire.type, None))
        load = wire.load
        unless_null = None if load is None else (lambda value: None if value is None else load(value))
        return Decoder(wanted, wire.sound, unless_null)

    def _wire_items(self, shape: ListShape) -> Decoder:
        item = self.wire(shape.item)
        sound = item.sound and not shape.unique
        if item.load is None and is_known(list_type(shape.type, item.type)):
            return _bound(list_type(shape.type, item.type), "array", shape.notes, sound=sound)
        # A list, since the JSON of an item may be unhashable even if its value is not.
        load = item.load or self._from_json(shape.item)
        return _bound(list_type(list, item.type), "array", shape.notes, sound=sound, load=_load_items(load, shape.type))

    def _wire_map(self, shape: MapShape) -> Decoder:
        key, value = self.wire(shape.key), self.wire(shape.value)
        wanted = dict.__class_getitem__((key.type, value.type))
        any_name = isinstance(shape.key, ScalarShape) and shape.key.type is str and not has_bounds(shape.key.notes)
        if key.load is None and value.load is None and is_known(wanted):
            return _bound(wanted, "object", shape.notes, sound=value.sound and any_name)
        return _bound(dict[str, Any], "object", shape.notes, sound=False, load=self._load_map(shape))

    def _is_sound(self, shape: Shape) -> bool:
        """Whether msgspec, with the author's own classes, rejects everything that the schema rejects."""
        if isinstance(shape, RefShape):
            return True
        if has_bounds(shape.notes) or (isinstance(shape, ListShape) and shape.unique):
            return False
        if isinstance(shape, TupleShape) and hasattr(shape.type, "__struct_fields__"):
            # msgspec accepts extra items after a struct encoded as a list.
            return False
        if isinstance(shape, RecordShape | NullableShape | TupleShape | UnionShape | ListShape):
            return all(self._is_sound(part) for part in children(shape))
        return self.wire(shape).sound

    def _from_json(self, shape: Shape) -> Load:
        """The loader that starts from plain JSON, without msgspec."""
        wire = self.wire(shape)
        if wire.type is Any:
            return wire.load or (lambda value: value)
        if wire.load is None:
            return lambda value: convert(value, wire.type)
        finish = wire.load
        return lambda value: finish(convert(value, wire.type))

    def _load(self, shape: Shape) -> Load:
        """From plain JSON to the Python value, part by part."""
        match shape:
            case RecordShape(type=key) | AliasShape(key=key):
                if key not in self._loads:
                    # A recursive reference found while this is being compiled needs a target.
                    self._loads[key] = self._later(key)
                    self._loads[key] = (
                        self._load_record(shape) if isinstance(shape, RecordShape) else self._from_json(shape.inner)
                    )
                return self._loads[key]
            case RefShape(key=key):
                return self._loads.get(key) or self._later(key)
            case UnionShape():
                return self._load_either(shape)
            case TupleShape():
                return self._load_fixed(shape)
            case ForeignShape(type=wanted):
                return load_pydantic(wanted)
        return self._from_json(shape)

    def _later(self, key: Hashable) -> Load:
        def load(value: Json) -> Any:
            return self._load(self._named[key])(value)

        return load

    def _load_record(self, record: RecordShape) -> Load:
        if record.maker.startswith("pydantic"):
            return load_pydantic(record.type)
        parts = [(field, self._from_json(field.shape)) for field in record.fields]
        make: Any = dict if record.maker == "typeddict" else record.type
        build = guard(lambda arguments: make(**arguments))

        def load(value: Json) -> Any:
            if not isinstance(value, dict):
                raise BindingProblem("", "Expected object")
            made = {}
            for field, part in parts:
                if field.name in value:
                    made[field.keyword] = load_at(field.name, part, value[field.name])
                elif field.required:
                    raise BindingProblem(field.name, "is required")
            return build(made)

        return load

    def _load_either(self, shape: UnionShape) -> Load:
        branches = [
            (option, Validator(write_schema(Shaped(option, self._named))), self._from_json(option))
            for option in shape.options
        ]

        def load_first(value: Json) -> Any:
            fitting = [
                (_count_unknown(option, value), place)
                for place, (option, judge, _) in enumerate(branches)
                if judge.is_valid(value)
            ]
            refusal = BindingProblem("", "fits none of the alternatives")
            for _, place in sorted(fitting):
                try:
                    return branches[place][2](value)
                except BindingProblem as problem:
                    refusal = problem
            raise refusal

        if not any(isinstance(part, RefShape) for part in walk(shape)):
            return load_first
        loaded = self._loaded
        # Known once the validators are compiled.
        remembering: list[Validator] | None = None

        def load(value: Json) -> Any:
            nonlocal remembering
            if remembering is None:
                remembering = [judge for _, judge, _ in branches if judge.cost.cuts]
            if not remembering:
                return loaded.once(load_first, value)
            with ExitStack() as stack:
                for judge in remembering:
                    stack.enter_context(judge.remembering())
                return loaded.once(load_first, value)

        return load

    def _load_fixed(self, shape: TupleShape) -> Load:
        parts = [self._from_json(item) for item in shape.items]
        build = guard(lambda made: shape.type(*made)) if shape.names else tuple

        def load(value: list[Json]) -> Any:
            pairs = enumerate(zip(parts, value, strict=False))
            return build([load_at(f"[{place}]", part, item) for place, (part, item) in pairs])

        return load

    def _load_map(self, shape: MapShape) -> Load:
        value = self._from_json(shape.value)
        kind = shape.key.type if isinstance(shape.key, ScalarShape) else None
        # Names are strings in JSON, whatever their type is here.
        key = guard(kind) if kind in {int, float} else self._from_json(shape.key)

        def load(given: dict[str, Json]) -> Any:
            return {load_at(name, key, name): load_at(name, value, item) for name, item in given.items()}

        return load


class _Loaded(local):
    """The results of loading the containers of one value.

    The author's code may reject what fits the schema. The next alternative is tried then, and would load the same parts
    again: without this cache, the work doubles with every level of a recursive union.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Load, int], tuple[Any, BindingProblem | None]] = {}

    def once(self, load: Load, value: Json) -> Any:
        if not isinstance(value, dict | list):
            return load(value)
        key = (load, id(value))
        if key not in self._known:
            try:
                self._known[key] = load(value), None
            except BindingProblem as problem:
                self._known[key] = None, problem
        made, refusal = self._known[key]
        if refusal is not None:
            raise refusal
        return made

    def forgetting(self, load: Load) -> Load:
        """The same function; the cache is cleared when it returns."""

        def loading(value: Any) -> Any:
            try:
                return load(value)
            finally:
                self._known.clear()

        return loading


def _wire_scalar(shape: ScalarShape) -> Decoder:
    bounded = has_bounds(shape.notes)
    if shape.make is not None:
        return Decoder(_PLAIN[shape.kind], not shape.format and not bounded, guard(shape.make))
    if shape.format:
        # JSON Schema does not check Base64: the decoder rejects more than the schema, never less.
        return Decoder(shape.type, shape.format == "base64", _check_bounds(shape.notes) if bounded else None)
    return _bound(shape.type, shape.kind, shape.notes)


def _wire_choice(shape: ChoiceShape) -> Decoder:
    kinds = {type(value) for value in shape.values}
    sound = not has_bounds(shape.notes)
    if kinds in ({str}, {int}) and is_known(shape.type):
        return Decoder(shape.type, sound)
    if kinds <= {str, int, type(None)} and shape.values == shape.members:
        literal: Any = Literal
        return Decoder(literal[shape.values], sound)
    return Decoder(Any, False, _load_choice(shape))


def _load_choice(shape: ChoiceShape) -> Load:
    members = {(type(value), value): member for value, member in zip(shape.values, shape.members, strict=True)}

    def load(value: Json) -> Any:
        # JSON has numbers, Python ints and floats; a boolean is neither.
        for kind in (type(value), *(() if isinstance(value, bool) else (int, float))):
            if (kind, value) in members:
                return members[kind, value]
        raise BindingProblem("", "is not one of the allowed values")

    return load


def _load_items(load: Load, kind: Any) -> Load:
    return lambda values: kind(load_at(f"[{place}]", load, value) for place, value in enumerate(values))


def _count_unknown(option: Shape, value: Json) -> int:
    """How many names of the value an alternative would lose."""
    if not isinstance(option, RecordShape) or not isinstance(value, dict):
        return 0
    known = {field.name for field in option.fields}
    return sum(name not in known for name in value)


def _check_bounds(notes: ValueNotes) -> Load:
    """Bounds that JSON Schema cannot express: of dates, decimals given as text, the length of bytes."""

    def load(value: Any) -> Any:
        size = len(value) if isinstance(value, bytes | bytearray) else None
        if size is not None:
            if notes.min_length is not None and size < notes.min_length:
                raise BindingProblem("", f"has {size} bytes, at least {notes.min_length} are needed")
            if notes.max_length is not None and size > notes.max_length:
                raise BindingProblem("", f"has {size} bytes, at most {notes.max_length} are allowed")
            return value
        if notes.minimum is not None and value < notes.minimum:
            raise BindingProblem("", f"must be at least {notes.minimum}")
        if notes.above is not None and value <= notes.above:
            raise BindingProblem("", f"must be above {notes.above}")
        if notes.maximum is not None and value > notes.maximum:
            raise BindingProblem("", f"must be at most {notes.maximum}")
        if notes.below is not None and value >= notes.below:
            raise BindingProblem("", f"must be below {notes.below}")
        return value

    return guard(load)


def _bound(wanted: Any, kind: str, notes: ValueNotes, *, sound: bool = True, load: Load | None = None) -> Decoder:
    """The type with the bounds that msgspec and JSON Schema read alike; any other bound makes it unsound."""
    if not has_bounds(notes):
        return Decoder(wanted, sound, load)
    bounds: dict[str, Any]
    if kind in {"integer", "number"}:
        bounds = {"ge": notes.minimum, "gt": notes.above, "le": notes.maximum, "lt": notes.below}
    else:
        bounds = {"min_length": notes.min_length, "max_length": notes.max_length}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    kinds = {int, float} if kind == "number" else {int}
    exact = all(type(bound) in kinds and abs(bound) < _INT64 for bound in bounds.values())
    if not exact or {"ge", "gt"} <= bounds.keys() or {"le", "lt"} <= bounds.keys():
        return Decoder(wanted, False, load)
    more = notes.pattern is not None or notes.multiple_of is not None or notes.allowed or narrows(notes)
    return Decoder(Annotated[wanted, Meta(**bounds)] if bounds else wanted, sound and not more, load)
