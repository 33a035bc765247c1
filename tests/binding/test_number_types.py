"""Whole numbers written with a fraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.binding.number_types import convert_numbers
from pegboard.schema.types.shape_reader import read_shape


@dataclass
class Point:
    x: int
    y: float
    next: Point | None = None


def settle(annotation: Any, value: Any) -> Any:
    shaped = read_shape(annotation)
    return convert_numbers(shaped.shape, value, shaped.named)


@pytest.mark.parametrize(
    ("annotation", "value", "settled"),
    [
        (int, 1.0, 1),
        (int, 1.5, 1.5),
        (float, 1.0, 1.0),
        (int | float, 1.0, 1.0),
        (int | str | None, 1.0, 1),
        (list[int], [1.0, 2], [1, 2]),
        (tuple[int, float], [1.0, 1.0], [1, 1.0]),
        (dict[str, int], {"a": 1.0}, {"a": 1}),
        (Point, {"x": 1.0, "y": 1.0, "next": {"x": 2.0, "z": 3.0}}, {"x": 1, "y": 1.0, "next": {"x": 2, "z": 3.0}}),
        (list[Point] | int, [{"x": 1.0}], [{"x": 1}]),
    ],
)
def test_only_where_an_integer_is_wanted(annotation: Any, value: Any, settled: Any) -> None:
    assert repr(settle(annotation, value)) == repr(settled)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "next"]), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_nothing_changes_but_the_way_a_number_is_written(value: Any) -> None:
    for annotation in (int, list[int], Point, dict[str, list[int]] | int, tuple[int, Point]):
        once = settle(annotation, value)
        assert once == value
        assert settle(annotation, once) is once
