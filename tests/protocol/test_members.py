"""A repeated member is found at any depth, and nothing else is taken for one: against a look at every member."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.protocol.members import repeated_member
from tests.depth import examples

pytestmark = pytest.mark.same_on_every_python

LONG = "x" * 1100
NAMES = ["a", "b", "\\u0061", "", '\\"', "\\u0022", "\\\\", "\\\\u0022", "é", LONG]
STRINGS = [
    '""',
    '"a"',
    '"\\""',
    '"\\u0022"',
    '"\\\\u0022"',
    '"{\\"a\\":1,\\"a\\":2}"',
    '"é"',
    f'"{LONG}"',
    '"' + '\\"' * 600 + '"',
]
SCALARS = [*STRINGS, "1", "-2.5e3", "1e999", "9" * 40, "true", "null"]
BLANK = st.sampled_from(["", " ", "\n", "\t \r"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
    return st.builds(
        lambda pairs, blank: f"{{{blank}" + f"{blank},".join(f'"{name}"{blank}:{value}' for name, value in pairs) + "}",
        members,
        BLANK,
    )


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, blank: f"[{blank}" + f"{blank},".join(items) + "]", st.lists(values, max_size=3), BLANK
    )


TEXTS = st.recursive(st.sampled_from(SCALARS), lambda inner: objects(inner) | arrays(inner), max_leaves=12)


def repeats(text: str) -> bool:
    """The rule itself: an object has fewer names than members."""
    found: list[bool] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        found.append(len(pairs) != len({name for name, _ in pairs}))

    json.loads(text, object_pairs_hook=note)
    return any(found)


@settings(deadline=None, max_examples=examples(75))
@given(objects(TEXTS) | TEXTS)
def test_a_repeated_member_is_never_missed_and_nothing_else_is_taken_for_one(text: str) -> None:
    assert (repeated_member(text.encode()) is not None) == repeats(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":{"b":[{"c":1,"c":2}]},"d":1}',
        '{"a":1,"\\u0061":2}',
        f'{{"a":"{LONG}","a":2}}',
        f'{{"a":2,"b":"{LONG}","a":2}}',
        f'{{"x":"{LONG}","y":{{"x":"{LONG}","y":{{"x":"{LONG}","y":{{"x":"{LONG}","y":{{"c":1,"c":2}}}}}}}}}}',
        f'{{"x":"{LONG}","y":[{{"c":1,"c":2}}]}}',
        f'{{"x":"{LONG}","y":{{"c":"\\u0022\\u0022","c":2}}}}',
    ],
)
def test_the_name_of_a_repeated_member_is_returned(text: str) -> None:
    assert repeated_member(text.encode()) in ("a", "c")
