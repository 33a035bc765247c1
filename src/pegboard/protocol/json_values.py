"""Narrows JSON values of unknown shape to objects, lists and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.call import Json


def as_object(value: Json) -> Mapping[str, Json]:
    """The value if it is an object, else an empty object."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> Sequence[Json]:
    """The value if it is a list (in Python also a tuple), else an empty list."""
    return value if isinstance(value, list | tuple) else ()


def objects_in(value: Json) -> list[Mapping[str, Json]]:
    """The objects in a list; empty if the value is not a list."""
    return [item for item in as_list(value) if isinstance(item, Mapping)]


def texts_in(value: Json) -> list[str]:
    """The strings in a list; empty if the value is not a list."""
    return [item for item in as_list(value) if isinstance(item, str)]
