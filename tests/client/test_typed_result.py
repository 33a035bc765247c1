"""Answers as values: from their structure, from a box of the older revisions, or from their text."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from pegboard.client.call_result import read_typed
from pegboard.errors import MalformedMessage


@dataclass
class Point:
    x: int
    y: int = 0


class Model(BaseModel):
    at: dt.date


class Boxed(BaseModel):
    result: int


@pytest.mark.parametrize(
    ("structured", "text", "wanted", "value"),
    [
        ({"x": 1}, "", Point, Point(1)),
        ({"x": "1"}, "", Point, Point(1)),
        ({"result": {"x": 1, "y": 2}}, "", Point, Point(1, 2)),
        ({"result": 5}, "", int, 5),
        ({"result": 5}, "", Boxed, Boxed(result=5)),
        (5, "", int, 5),
        (None, '{"x": 3}', Point, Point(3)),
        (None, "5", int, 5),
        (None, "5", str, "5"),
        (None, "hello", str, "hello"),
        ({"at": "2026-01-02"}, "", Model, Model(at=dt.date(2026, 1, 2))),
        ([{"x": 1}], "", list[Point], [Point(1)]),
        ({"result": [1, 2]}, "", list[int], [1, 2]),
        ({"a": 1}, "", dict[str, int], {"a": 1}),
    ],
)
def test_an_answer_becomes_a_value(structured: Any, text: str, wanted: Any, value: Any) -> None:
    assert read_typed(structured, text, wanted, "there") == value


@pytest.mark.parametrize(
    ("structured", "text", "wanted"),
    [({"y": 1}, "", Point), ({"x": "one"}, "", Point), (None, "hello", int), (None, "", Point)],
)
def test_an_answer_that_is_something_else_is_said_so(structured: Any, text: str, wanted: Any) -> None:
    with pytest.raises(MalformedMessage, match=f"there: its result is not a {wanted.__name__}"):
        read_typed(structured, text, wanted, "there")
