"""No module outside `protocol/` compares protocol versions: it asks the table of revisions for a property."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pegboard

pytestmark = pytest.mark.same_on_every_python

SOURCE = Path(pegboard.__file__).parent
NAMES = frozenset({"MODERN", "LEGACY", "NEWEST_LEGACY", "ASSUMED"})
DATE = re.compile(r"20\d\d-\d\d-\d\d")


def names_a_version(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in NAMES
        case ast.Constant(value=str(text)):
            return DATE.fullmatch(text) is not None
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(map(names_a_version, items))
        case ast.Subscript(value=inner):
            return names_a_version(inner)
    return False


def comparisons(source: str) -> Iterator[int]:
    """The lines that compare a value with a version or a set of versions."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(names_a_version, [left, *others])):
                yield node.lineno
            case ast.MatchValue(value=value) if names_a_version(value):
                yield value.lineno


def test_versions_are_compared_only_in_protocol() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "protocol"
        for line in comparisons(path.read_text())
    ]
    assert not found, "ask REVISIONS for a property instead; a revision is added in protocol/ alone"


@pytest.mark.parametrize(
    "line",
    [
        "version == MODERN",
        "revisions.MODERN != version",
        "version in LEGACY",
        "version not in revisions.LEGACY",
        "version >= '2025-06-18'",
        "version in {'2025-03-26', '2025-06-18'}",
        "match version:\n    case '2025-11-25': pass",
        "match version:\n    case revisions.MODERN: pass",
    ],
)
def test_a_comparison_of_versions_is_found(line: str) -> None:
    assert list(comparisons(line))


@pytest.mark.parametrize(
    "line",
    ["REVISIONS[version].has_sessions", "version in SUPPORTED", "caller = Caller(version=MODERN)", "header == version"],
)
def test_the_use_of_the_table_is_not_a_comparison(line: str) -> None:
    assert not list(comparisons(line))
