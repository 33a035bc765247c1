"""Numbers that are whole though written with a fraction: JSON Schema calls 1.0 an integer, Python does not."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pegboard.call import Json
from pegboard.tools.shape import Alias, Choice, Either, Fixed, Items, Map, Nullable, Record, Ref, Scalar, Shape


def settle_numbers(shape: Shape, value: Json, named: Mapping[Hashable, Record | Alias]) -> Json:
    """The value with whole floats as ints wherever the shape takes an integer and no other number.

    A part in which nothing changes is returned as it is.
    """
    match shape:
        case Scalar() | Choice() | Either() if isinstance(value, float):
            return int(value) if value.is_integer() and _wants_integer(shape) else value
        case Nullable(inner=inner) | Alias(inner=inner):
            return settle_numbers(inner, value, named)
        case Ref(key=key):
            return settle_numbers(named[key], value, named)
        case Either(options=options):
            for option in options:
                settled = settle_numbers(option, value, named)
                if settled is not value:
                    return settled
        case Items(item=item) if isinstance(value, list):
            return _same_or([settle_numbers(item, part, named) for part in value], value)
        case Fixed(items=items) if isinstance(value, list):
            settled = [settle_numbers(item, part, named) for item, part in zip(items, value, strict=False)]
            return _same_or([*settled, *value[len(settled) :]], value)
        case Map(value=inner) if isinstance(value, dict):
            return _settle_names(dict.fromkeys(value, inner), value, named)
        case Record(fields=fields) if isinstance(value, dict):
            return _settle_names({field.name: field.shape for field in fields if field.name in value}, value, named)
    return value


def _wants_integer(shape: Shape) -> bool:
    match shape:
        case Scalar(kind=kind):
            return kind == "integer"
        case Choice(values=values):
            return not any(isinstance(value, float) for value in values)
        case Either(options=options):
            kinds = [option for option in options if isinstance(option, Scalar | Choice)]
            is_number = any(isinstance(option, Scalar) and option.kind == "number" for option in kinds)
            return not is_number and any(_wants_integer(option) for option in kinds)
    return False


def _settle_names(
    shapes: Mapping[str, Shape], value: dict[str, Json], named: Mapping[Hashable, Record | Alias]
) -> Json:
    settled = {name: settle_numbers(shape, value[name], named) for name, shape in shapes.items()}
    if all(settled[name] is value[name] for name in settled):
        return value
    return {**value, **settled}


def _same_or(settled: list[Json], value: list[Json]) -> list[Json]:
    return value if all(one is other for one, other in zip(settled, value, strict=True)) else settled
