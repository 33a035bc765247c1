"""Types that pydantic reads and writes: their JSON Schema, and how their values are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from pegboard.schema.types.constraints import ValueNotes
from pegboard.schema.types.shape import ForeignShape, Shape, UnsupportedType, walk

Dump: TypeAlias = Callable[[Any], Any]


def read_foreign(
    annotation: Any, notes: ValueNotes, where: str, mode: Literal["validation", "serialization"]
) -> ForeignShape:
    """The shape of a type as pydantic reads it (validation) or writes it (serialization)."""
    import pydantic  # noqa: PLC0415 (an optional third party, whose type is in hand)

    try:
        schema = pydantic.TypeAdapter(annotation).json_schema(mode=mode)
    except pydantic.errors.PydanticUserError as problem:
        raise UnsupportedType(f"{where}: pydantic has no JSON Schema for it: {problem.message}") from problem
    return ForeignShape(notes=notes, type=annotation, schema=_without_titles(schema))


def find_dump(annotation: Any, shape: Shape) -> Dump | None:
    """How pydantic writes values of this type; None if they need no help, as models do, which write themselves."""
    foreign = [part.type for part in walk(shape) if isinstance(part, ForeignShape)]
    if all(hasattr(kind, "model_dump") for kind in foreign):
        return None
    import pydantic  # noqa: PLC0415 (an optional third party, whose type is in hand)

    try:
        adapter = pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError:
        return None
    # Without warnings: a value of another type is checked against the schema.
    return lambda value: adapter.dump_python(value, mode="json", by_alias=True, warnings=False)


def is_pydantic_dataclass(value: Any) -> bool:
    """Whether this is an instance of a pydantic dataclass, which msgspec would write as a plain one."""
    return hasattr(type(value), "__pydantic_serializer__") and not hasattr(value, "model_dump")


def dump_dataclass(value: Any) -> Any:
    """A pydantic dataclass as pydantic writes it: with computed fields, without those that it excludes."""
    return type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True)


def _without_titles(schema: Any) -> Any:
    """Drop the titles that pydantic derives from names; a property called `title` is kept."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {}
    for keyword, value in schema.items():
        if keyword == "title" and isinstance(value, str):
            continue
        if keyword in {"properties", "$defs", "patternProperties"} and isinstance(value, Mapping):
            bare[keyword] = {name: _without_titles(part) for name, part in value.items()}
        elif keyword in {"default", "const", "enum", "examples"}:
            bare[keyword] = value
        else:
            bare[keyword] = _without_titles(value)
    return bare
