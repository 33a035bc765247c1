"""Converts numbers where JSON and Python disagree about integers and floats.

1.0 is an integer in JSON Schema and a float in Python. A Decimal keeps every digit as written; a float does not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pegboard.call import Json
from pegboard.schema.exact_floats import ExactFloats
from pegboard.schema.types.shape import (
    AliasShape,
    ChoiceShape,
    ListShape,
    MapShape,
    NullableShape,
    RecordShape,
    RefShape,
    ScalarShape,
    Shape,
    TupleShape,
    UnionShape,
    walk,
)


def convert_numbers(
    shape: Shape, value: Json, named: Mapping[Hashable, RecordShape | AliasShape], digits: ExactFloats | None = None
) -> Json:
    """The value with whole floats as ints wherever the shape accepts an integer and no other number.

    With `digits`, a float becomes a Decimal, as it was written, wherever the shape accepts one and no float. A part
    without changes is returned as it is.
    """
    return NumberConverter(named, digits).convert(shape, value)


def takes_decimals(shape: Shape) -> bool:
    """Whether it may contain a Decimal."""
    return any(isinstance(part, ScalarShape) and part.format == "decimal" for part in walk(shape))


class NumberConverter:
    """Converts one value, with the named shapes that its shape refers to."""

    __slots__ = ("_digits", "_known", "_named")

    def __init__(self, named: Mapping[Hashable, RecordShape | AliasShape], digits: ExactFloats | None) -> None:
        self._named, self._digits = named, digits
        # Keyed by id: shapes and values outlive the conversion.
        self._known: dict[tuple[int, int], Json] = {}

    def convert(self, shape: Shape, value: Json) -> Json:
        """Convert a value; each container once per shape, since the options of a union may share parts."""
        if not isinstance(value, dict | list):
            return self._convert(shape, value)
        key = (id(shape), id(value))
        if key not in self._known:
            self._known[key] = self._convert(shape, value)
        return self._known[key]

    def _convert(self, shape: Shape, value: Json) -> Json:
        match shape:
            case ScalarShape() | ChoiceShape() | UnionShape() if isinstance(value, float):
                if self._digits is not None and _wants_decimal(shape):
                    return self._digits.exact(value)
                return int(value) if value.is_integer() and _wants_integer(shape) else value
            case NullableShape(inner=inner) | AliasShape(inner=inner):
                return self.convert(inner, value)
            case RefShape(key=key):
                return self.convert(self._named[key], value)
            case UnionShape(options=options):
                for option in options:
                    settled = self.convert(option, value)
                    if settled is not value:
                        return settled
            case ListShape(item=item) if isinstance(value, list):
                return _unchanged_or([self.convert(item, part) for part in value], value)
            case TupleShape(items=items) if isinstance(value, list):
                settled = [self.convert(item, part) for item, part in zip(items, value, strict=False)]
                return _unchanged_or([*settled, *value[len(settled) :]], value)
            case MapShape(value=inner) if isinstance(value, dict):
                return self.convert_members(dict.fromkeys(value, inner), value)
            case RecordShape(fields=fields) if isinstance(value, dict):
                return self.convert_members({field.name: field.shape for field in fields if field.name in value}, value)
        return value

    def convert_members(self, shapes: Mapping[str, Shape], value: Mapping[str, Json]) -> Mapping[str, Json]:
        """Convert the members of an object that have a shape."""
        settled = {name: self.convert(shape, value[name]) for name, shape in shapes.items()}
        if all(settled[name] is value[name] for name in settled):
            return value
        return {**value, **settled}


def _wants_integer(shape: Shape) -> bool:
    match shape:
        case ScalarShape(kind=kind):
            return kind == "integer"
        case ChoiceShape(values=values):
            return not any(isinstance(value, float) for value in values)
        case UnionShape(options=options):
            kinds = [option for option in options if isinstance(option, ScalarShape | ChoiceShape)]
            is_number = any(isinstance(option, ScalarShape) and option.kind == "number" for option in kinds)
            return not is_number and any(_wants_integer(option) for option in kinds)
    return False


def _wants_decimal(shape: Shape) -> bool:
    options = shape.options if isinstance(shape, UnionShape) else (shape,)
    scalars = [option for option in options if isinstance(option, ScalarShape)]
    return any(option.format == "decimal" for option in scalars) and not any(
        option.kind == "number" and option.format != "decimal" for option in scalars
    )


def _unchanged_or(settled: list[Json], value: list[Json]) -> list[Json]:
    return value if all(one is other for one, other in zip(settled, value, strict=True)) else settled
