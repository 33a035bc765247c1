"""What annotations say, in whose words they may."""

from __future__ import annotations

import re

import annotated_types
import msgspec
import pydantic
import pytest

from pegboard.schema.types.constraints import (
    NO_NOTES,
    Description,
    EnumConstraint,
    Header,
    MaxLength,
    MinLength,
    Pattern,
    Range,
    ValueNotes,
    has_bounds,
    read_notes,
)
from tests.depth import every_case

pytestmark = every_case


def test_no_words_say_nothing() -> None:
    assert read_notes([]) is NO_NOTES
    assert read_notes([object(), int, 5]) is NO_NOTES
    assert not has_bounds(NO_NOTES)


def test_our_own_words_take_their_values_by_position() -> None:
    words = [Range(1, 100), MinLength(3), MaxLength(50), Pattern("^a"), Description("D"), Header("Region")]
    assert read_notes(words) == ValueNotes(
        minimum=1, maximum=100, min_length=3, max_length=50, pattern="^a", description="D", header="Region"
    )
    assert read_notes([EnumConstraint(["a"], case_sensitive=True)]) == ValueNotes(allowed=("a",), case_sensitive=True)
    assert read_notes([Pattern(re.compile("^a"))]).pattern == "^a"


def test_the_later_word_counts() -> None:
    assert read_notes(["first", Description("second")]).description == "second"
    assert read_notes([Range(1, 2)], ValueNotes(description="kept")) == ValueNotes(
        minimum=1, maximum=2, description="kept"
    )


@pytest.mark.parametrize(
    "word",
    [
        annotated_types.Interval(gt=1, le=5),
        pydantic.Field(gt=1, le=5),
        msgspec.Meta(gt=1, le=5),
    ],
)
def test_every_library_says_the_same(word: object) -> None:
    notes = read_notes([word])
    assert (notes.above, notes.maximum, notes.minimum, notes.below) == (1, 5, None, None)
    assert has_bounds(notes)


def test_a_field_says_alias_default_and_extras() -> None:
    field = pydantic.Field(3, alias="from", json_schema_extra={"x": 1}, examples=[1], description="D")
    assert read_notes([field]) == ValueNotes(alias="from", default=3, extra={"x": 1}, examples=(1,), description="D")
    assert read_notes([pydantic.Field(validation_alias="a", serialization_alias="b")]).alias == "a"


def test_words_are_values() -> None:
    assert Range(1, 2) == Range(1, 2)
    assert hash(MinLength(1)) == hash(MinLength(1))
    with pytest.raises(AttributeError):
        Range(1).minimum = 2  # type: ignore[misc]
