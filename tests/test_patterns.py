"""No text from outside can make a regular expression slow."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import pegboard
from pegboard.gateway.lock.injection_rules import RULES
from tests.patterns import find_slow

pytestmark = pytest.mark.same_on_every_python

WAYS = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}

# Patterns that the judge cannot clear by their form alone, and what bounds their work.
BOUNDED = {
    "pegboard.gateway.state_folder:_STORE_NAME": "a file name: at most 255 bytes",
    "pegboard.gateway.lock.hidden_characters:_PADDING": "an attempt spans twenty lines, so a character is looked at twenty times",
    "pegboard.middleware.observability.masking:_WORDS": "the first 200 characters of a key",
    "pegboard.config.annotated_types:_DESCRIBED": "docstrings of our own classes",
    "pegboard.config.editing.toml_text:_PART": "tomllib has accepted the text before, so every string ends",
    "pegboard.config.source_file:_LONG_KEY": "an attempt ends after 64 parts, so a character is looked at 64 times",
    "pegboard.loading:_LOCATED": "one attempt, at the beginning of a message of ours",
    "pegboard.schema.literals:_COMMENT": "a comment always ends: at the end of the text if not before",
}


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(pegboard.__path__, "pegboard."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def uses(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Every use of a pattern in a module: what it is called, the pattern and the way it is used."""
    called: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Attribute) or node.attr not in WAYS or not isinstance(node.value, ast.Name):
            continue
        called.setdefault(node.value.id, set()).add(node.attr)
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern):
            for way in called.get(name, {"search"}):
                yield f"{module.__name__}:{name}", value, way
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), way), [ast.Constant(str(text)), *_]) if way in WAYS:
                yield f"{module.__name__}:{text}", re.compile(text), way


def test_no_pattern_of_ours_can_be_made_slow_by_a_text() -> None:
    slow: dict[str, list[str]] = {}
    for module in modules():
        for name, pattern, way in uses(module):
            if problems := find_slow(pattern, way):
                slow[name] = problems
    assert {name: problems for name, problems in slow.items() if name not in BOUNDED} == {}
    assert BOUNDED.keys() <= slow.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_link_of_a_rule_can_be_made_slow_by_a_text(rule: Any) -> None:
    assert {
        pattern.pattern: problems
        for chain in rule.chains
        for pattern in chain.patterns
        if (problems := find_slow(pattern))
    } == {}


@pytest.mark.parametrize(
    "slow",
    [r"(?:a+)+b", r"a*a*b", r"(?:a|a?)+b", r"[ab]*b", r"\s+x", r"(?:[ \t]*\r?\n){20,}(?=\s*\S)", r"[ \t]{120,}(?=\S)",
     r"[\w.+-]+@", r"a.{0,90}b.{0,90}c.{0,90}d", r"(?=[a-z]*[0-9])[a-z]+\b"],
)  # fmt: skip
def test_what_is_known_to_be_slow_is_found(slow: str) -> None:
    assert find_slow(re.compile(slow)) != []


@pytest.mark.parametrize(
    "fast", [r"\bab\w*+\b", r"\s+", r"x[^y]*y", r"(?<![a-z])[a-z]++!", r"[^/]+/[a-z]{0,40}", r"^[ \t]*:"]
)
def test_what_is_known_to_be_fast_is_let_through(fast: str) -> None:
    assert find_slow(re.compile(fast), "match") == []
