"""Functions marked as tools before there is a board."""

from __future__ import annotations

import types

import pytest

from pegboard.errors import DeclarationError
from pegboard.tools.tool_discovery import mark_of, tool


@tool
def plain(a: int) -> int:
    return a


@tool("other_name", title="Other")
def named(a: int) -> int:
    return a


def unmarked() -> None: ...


class Kit:
    @tool
    def first(self, a: int) -> int:
        return a + 1

    @tool(category="x")
    async def second(self) -> None: ...

    @property
    def dangerous(self) -> None:
        raise AssertionError("a property must not be read")


def test_a_marked_function_is_still_the_function() -> None:
    assert plain(3) == 3
    assert isinstance(plain, types.FunctionType)
    mark = mark_of(plain)
    assert mark is not None
    assert (mark.name, mark.options) == (None, {})
    mark = mark_of(named)
    assert mark is not None
    assert (mark.name, mark.options) == ("other_name", {"title": "Other"})
    assert mark_of(unmarked) is None


def test_what_takes_no_mark_says_so() -> None:
    with pytest.raises(DeclarationError, match=r"cannot be marked with @tool; pass it to board\.tool"):
        tool(Kit().first)
