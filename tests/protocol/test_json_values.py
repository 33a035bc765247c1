"""Narrowing JSON values of unknown shape."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard.protocol.json_values import as_list, as_object, objects_in, texts_in


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [{"a": 1}]])
def test_a_value_that_is_not_an_object_becomes_an_empty_object(value: Any) -> None:
    assert as_object(value) == {}


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", {"a": 1}])
def test_a_value_that_is_not_a_list_becomes_an_empty_list(value: Any) -> None:
    assert not as_list(value)
    assert objects_in(value) == []
    assert texts_in(value) == []


def test_an_object_and_a_list_are_returned_unchanged() -> None:
    whole, items = {"a": 1}, [1, "two"]
    assert as_object(whole) is whole
    assert as_list(items) is items


def test_items_of_another_type_are_left_out() -> None:
    mixed = [{"a": 1}, "text", None, 3, [4]]
    assert objects_in(mixed) == [{"a": 1}]
    assert texts_in(mixed) == ["text"]
