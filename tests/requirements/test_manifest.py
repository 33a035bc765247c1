"""The requirements of the specification and the tests that prove them, checked against each other."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.same_on_every_python

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
ERAS = {"2026-07-28": "modern", "2025-11-25": "legacy"}
# A page of the revision, or a proposal that an extension is written in, and the heading on it.
LINK = re.compile(r"(basic|server|client|schema|seps)[a-z0-9/-]*(#[a-z0-9]+(-[a-z0-9]+)*)?")
ID = re.compile(r"(modern|legacy)/[a-z]+/[a-z0-9]+(-[a-z0-9]+)*")


class Requirement(NamedTuple):
    """One duty of a server, as a file of the manifest states it."""

    file: Path
    id: str
    link: str
    sentence: str
    later: str  # why it is not proven yet
    outside: str  # why nothing we write could prove it


@cache
def manifest() -> tuple[Requirement, ...]:
    return tuple(
        Requirement(file, **{"later": "", "outside": "", **table})
        for file in sorted(HERE.glob("*/*.toml"))
        for table in tomllib.loads(file.read_text("utf-8"))["requirement"]
    )


@cache
def claims() -> dict[str, list[str]]:
    """The ids that tests carry, and the tests that carry each."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for place, requirement in _marks(file):
            found.setdefault(requirement, []).append(place)
    return found


def _marks(file: Path) -> Iterator[tuple[str, str]]:
    source = file.read_text("utf-8")
    if "pytest.mark.requirement" not in source:
        return
    for test in ast.walk(ast.parse(source)):
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in test.decorator_list:
            if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.requirement":
                continue
            place = f"{file.relative_to(TESTS)}:{mark.lineno}"
            assert test.name.startswith("test_"), f"{place} marks {test.name}, which is no test"
            assert mark.args, f"{place} names no requirement"
            for argument in mark.args:
                assert isinstance(argument, ast.Constant), f"{place}: ids are written out, so that they can be found"
                yield place, str(argument.value)


def test_ids_are_unique_and_say_where_they_are() -> None:
    requirements = manifest()

    assert [name for name, count in Counter(one.id for one in requirements).items() if count > 1] == []
    assert [one.id for one in requirements if not ID.fullmatch(one.id)] == []
    assert [
        one.id for one in requirements if not one.id.startswith(f"{ERAS[one.file.parent.name]}/{one.file.stem}/")
    ] == []


def test_links_have_the_form_of_a_page_and_its_heading() -> None:
    assert [one.link for one in manifest() if not LINK.fullmatch(one.link)] == []


def test_every_requirement_is_one_sentence_of_ours() -> None:
    assert [one.id for one in manifest() if not re.fullmatch(r"\S.{15,200}\.", one.sentence)] == []


@pytest.mark.parametrize("revision", ERAS)
def test_every_requirement_is_proven_or_says_why_not(revision: str) -> None:
    unproven = [
        f"{one.id}: {one.sentence}"
        for one in manifest()
        if one.file.parent.name == revision and not (one.later or one.outside) and one.id not in claims()
    ]

    assert unproven == []


def test_what_is_proven_gives_no_excuse() -> None:
    assert [one.id for one in manifest() if (one.later or one.outside) and one.id in claims()] == []
    assert [one.id for one in manifest() if one.later and one.outside] == []


def test_every_id_that_a_test_carries_is_a_requirement() -> None:
    known = {one.id for one in manifest()}

    assert {name: places for name, places in claims().items() if name not in known} == {}
