"""Numbers that JSON and Python tell apart differently, settled by the shape they are bound to.

JSON Schema calls 1.0 an integer, Python does not. A Decimal has every digit that was written, a float has not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pegboard.call import Json
from pegboard.tools.digits import Digits
from pegboard.tools.shape import Alias, Choice, Either, Fixed, Items, Map, Nullable, Record, Ref, Scalar, Shape, walk


def settle_numbers(
    shape: Shape, value: Json, named: Mapping[Hashable, Record | Alias], digits: Digits | None = None
) -> Json:
    """The value with whole floats as ints wherever the shape takes an integer and no other number.

    With `digits`, a float is a Decimal, as it was written, wherever the shape takes one and no float. A part in which
    nothing changes is returned as it is.
    """
    return _Settling(named, digits).settle(shape, value)


def takes_decimals(shape: Shape) -> bool:
    """Whether a Decimal may stand anywhere in it."""
    return any(isinstance(part, Scalar) and part.format == "decimal" for part in walk(shape))


class _Settling:
    __slots__ = ("_digits", "_named")

    def __init__(self, named: Mapping[Hashable, Record | Alias], digits: Digits | None) -> None:
        self._named, self._digits = named, digits

    def settle(self, shape: Shape, value: Json) -> Json:
        match shape:
            case Scalar() | Choice() | Either() if isinstance(value, float):
                if self._digits is not None and _wants_decimal(shape):
                    return self._digits.exact(value)
                return int(value) if value.is_integer() and _wants_integer(shape) else value
            case Nullable(inner=inner) | Alias(inner=inner):
                return self.settle(inner, value)
            case Ref(key=key):
                return self.settle(self._named[key], value)
            case Either(options=options):
                for option in options:
                    settled = self.settle(option, value)
                    if settled is not value:
                        return settled
            case Items(item=item) if isinstance(value, list):
                return _same_or([self.settle(item, part) for part in value], value)
            case Fixed(items=items) if isinstance(value, list):
                settled = [self.settle(item, part) for item, part in zip(items, value, strict=False)]
                return _same_or([*settled, *value[len(settled) :]], value)
            case Map(value=inner) if isinstance(value, dict):
                return self._settle_names(dict.fromkeys(value, inner), value)
            case Record(fields=fields) if isinstance(value, dict):
                return self._settle_names({field.name: field.shape for field in fields if field.name in value}, value)
        return value

    def _settle_names(self, shapes: Mapping[str, Shape], value: dict[str, Json]) -> Json:
        settled = {name: self.settle(shape, value[name]) for name, shape in shapes.items()}
        if all(settled[name] is value[name] for name in settled):
            return value
        return {**value, **settled}


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


def _wants_decimal(shape: Shape) -> bool:
    options = shape.options if isinstance(shape, Either) else (shape,)
    scalars = [option for option in options if isinstance(option, Scalar)]
    return any(option.format == "decimal" for option in scalars) and not any(
        option.kind == "number" and option.format != "decimal" for option in scalars
    )


def _same_or(settled: list[Json], value: list[Json]) -> list[Json]:
    return value if all(one is other for one, other in zip(settled, value, strict=True)) else settled
