"""Finds what an author has probably overlooked in a function, for a warning in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pegboard.schema.types.shape import NullableShape, ScalarShape
from pegboard.tools.signature import InferredFunction

# What a default may be, for the types where a mistake is certain.
_FITTING: Final[Mapping[object, type | tuple[type, ...]]] = {str: str, int: int, float: (int, float), bool: bool}


def find_oversights(inferred: InferredFunction) -> Iterator[str]:
    """What is probably a mistake, though the tool can be used."""
    for name in inferred.unannotated:
        if name in ("ctx", "context"):
            yield f"parameter {name!r} has no type, so callers have to send it; write `{name}: Context`"
        else:
            yield f"parameter {name!r} has no type hint, so callers can send anything; annotate it"
    for field in inferred.fields:
        shape = field.shape.inner if isinstance(field.shape, NullableShape) else field.shape
        fitting = _FITTING.get(shape.type) if isinstance(shape, ScalarShape) else None
        # Other objects may stand for an absent value.
        if fitting and isinstance(field.default, str | int | float) and not isinstance(field.default, fitting):
            yield f"the default of {field.attribute!r} is {field.default!r:.60}, which is not {shape_name(shape)}"


def shape_name(shape: object) -> str:
    """The type as the author wrote it."""
    return getattr(getattr(shape, "type", None), "__name__", "of its type")
