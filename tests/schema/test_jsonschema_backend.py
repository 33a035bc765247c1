"""The JSON Schema library is loaded by the first schema that needs it, and by nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pegboard.schema.jsonschema_backend import LENIENT, SchemaProblem, compile_schema
from pegboard.schema.validator import Validator

SERVING = """
import asyncio, sys
from pegboard import Board, Client

board = Board("light")

@board.tool
async def add(a: float, b: float = 1) -> float:
    return a + b

@board.tool
async def keep(words: list[str], exact: bool | None = None) -> dict[str, int]:
    return {word: len(word) for word in words}

async def main() -> None:
    async with Client(board) as client:
        assert (await client.call("add", {"a": 2})).structured == 3
        await client.list_tools()
        print("jsonschema_rs" in sys.modules)
        assert (await client.call("add", {"a": "2"})).structured == 3
        print("jsonschema_rs" in sys.modules)

asyncio.run(main())
"""


def test_a_board_whose_calls_fit_does_not_load_the_library() -> None:
    ran = subprocess.run([sys.executable, "-c", SERVING], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["False", "True"]


def test_an_invalid_schema_is_reported_with_the_path_of_its_error() -> None:
    with pytest.raises(SchemaProblem) as told:
        compile_schema({"properties": {"a": {"type": "int"}}}, LENIENT)
    assert list(told.value.path) == ["properties", "a", "type"]


def test_a_schema_that_is_none_is_never_taken_for_one_that_nothing_fits() -> None:
    with pytest.raises(SchemaProblem):
        Validator({"type": "int"}).is_valid(1)
