"""Sloppy calls through whole boards: of explicit tools, of functions, and behind a client."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec
import pytest
from msgspec import Raw

from pegboard import Board, Client, JsonRpcMessage
from tests.repair.sloppy import CALLS, FITTING, REFUSED, TOOLS, Sloppy
from tests.repair.sloppy_functions import FUNCTIONS, HANDED

WARNINGS = "dev.pegboard/parseWarnings"
ERRORS = "dev.pegboard/parseErrors"

# A model knows JSON: names of Python's types, addresses and traces of the stack tell it nothing.
FOREIGN = re.compile(
    r"\b(str|int|float|bool|dict|NoneType|datetime\.|timedelta|dataclass|pydantic|msgspec|Traceback|File \")\b|https?://"
)

# Where a function says something else than the schema of the same tool.
OF_FUNCTIONS: Final[dict[tuple[str, str], Any]] = {
    # `T | None` takes null: there is nothing to repair.
    ("null for something optional", "search"): ({"query": "q"}, ()),
    ("null for an optional list", "tag"): ({}, ()),
    ("nested null", "register"): ({"user": {"name": "Ada"}}, ()),
    ("null as text", "query"): ({"level": 1}, ("string_literal_converted_to_null", "null_left_out")),
    # A Literal has no titles, and a function takes no arguments that it does not declare.
    ("choice by title", "paint"): (REFUSED, ("enum_out_of_range",)),
    ("name unknown where allowed", "query"): (REFUSED, ("unknown_parameter",)),
    ("bad field in JSON text", "register"): (REFUSED, ("no_branch_matches",)),
}


@cache
def explicit_board() -> Board:
    board = Board("explicit")

    def show(request: JsonRpcMessage) -> JsonRpcMessage:
        return JsonRpcMessage(id=request.id, result={"arguments": request.params})

    for name, schema in TOOLS.items():
        board.add(show, name=name, input_schema=schema)
    return board


@cache
def board_of_functions() -> Board:
    board = Board("functions")
    for function in FUNCTIONS.values():
        board.add(function)
    return board


@cache
def strict_board(make: Callable[[], Board]) -> Board:
    board = Board("strict", arguments="strict")
    for tool in make().tools:
        board.add(tool)
    return board


async def call(board: Board, sloppy: Sloppy) -> dict[str, Any]:
    async with Client(board) as client:
        arguments = Raw(msgspec.json.encode(sloppy.sent))
        return dict(await client.request("tools/call", name=sloppy.tool, arguments=arguments))


def codes(result: dict[str, Any], kind: str) -> tuple[str, ...]:
    return tuple(note["code"] for note in result.get("_meta", {}).get(kind, ()))


def name(sloppy: Sloppy) -> str:
    return f"{sloppy.kind}-{sloppy.tool}"


every_call = pytest.mark.parametrize("sloppy", CALLS, ids=name)


def test_there_are_ninety_calls_of_six_tools() -> None:
    assert len(CALLS) >= 90
    assert len(TOOLS) == len(FUNCTIONS) == 6
    assert TOOLS.keys() == FUNCTIONS.keys()


@every_call
async def test_explicit_tools_receive_the_intended_arguments_and_every_repair_is_reported(sloppy: Sloppy) -> None:
    result = await call(explicit_board(), sloppy)
    if sloppy.becomes is REFUSED:
        assert codes(result, ERRORS) == sloppy.codes
        assert_readable_refusal(result, sloppy.tool)
        return
    handed = msgspec.json.decode(result["content"][0]["text"])["arguments"]
    assert handed == sloppy.becomes
    assert codes(result, WARNINGS) == sloppy.codes
    assert handed == sloppy.sent or codes(result, WARNINGS), "changed without a warning"


@every_call
async def test_functions_receive_the_intended_arguments_and_every_repair_is_reported(sloppy: Sloppy) -> None:
    board = board_of_functions()
    becomes, said = OF_FUNCTIONS.get((sloppy.kind, sloppy.tool), (sloppy.becomes, sloppy.codes))
    HANDED.clear()
    result = await call(board, sloppy)
    if becomes is REFUSED:
        assert HANDED == []
        assert codes(result, ERRORS) == said
        assert_readable_refusal(result, sloppy.tool)
        return
    meant = board.tools.find(sloppy.tool).parse(msgspec.json.encode(becomes), "strict")
    assert not meant.errors
    assert [meant.arguments] == HANDED
    assert codes(result, WARNINGS) == said
    # A function that takes null takes it as it is: `OF_FUNCTIONS` lists those calls.
    if (sloppy.kind, sloppy.tool) not in OF_FUNCTIONS:
        assert becomes == sloppy.sent or codes(result, WARNINGS), "changed without a warning"


def assert_readable_refusal(result: dict[str, Any], tool: str) -> None:
    assert result["isError"]
    first, *problems = result["content"][0]["text"].splitlines()
    assert first.startswith(f"{tool}: ")
    assert problems
    for problem in problems:
        assert len(problem.removeprefix("- ")) < 120
        assert FOREIGN.search(problem) is None, problem
    listed = result["_meta"][ERRORS]
    assert [f"- {error['message']}" for error in listed] == problems
    assert all(error.keys() == {"path", "code", "message", "got"} for error in listed)


@every_call
@pytest.mark.parametrize("make", [explicit_board, board_of_functions])
async def test_a_strict_board_repairs_nothing(sloppy: Sloppy, make: Any) -> None:
    HANDED.clear()
    result = await call(strict_board(make), sloppy)
    assert codes(result, WARNINGS) == ()
    if not result.get("isError") and make is board_of_functions:
        as_sent = make().tools.find(sloppy.tool).parse(msgspec.json.encode(sloppy.sent), "strict")
        assert [as_sent.arguments] == HANDED


@pytest.mark.parametrize(("tool", "sent"), FITTING)
async def test_what_fits_is_handed_over_as_it_is(tool: str, sent: Any) -> None:
    result = await call(explicit_board(), Sloppy("fits", tool, sent, sent, ()))
    assert msgspec.json.decode(result["content"][0]["text"])["arguments"] == sent
    assert codes(result, WARNINGS) == ()


async def test_a_large_value_is_not_sent_back_once_for_each_problem_in_it() -> None:
    board = Board("large")

    @board.tool
    def store(flags: list[bool], rows: list[int] = []) -> None: ...  # noqa: B006 — nothing changes it

    flags = [{"text": "y" * 20_000} for _ in range(40)]
    async with Client(board) as client:
        refused = await client.call("store", {"flags": flags})
        repaired = await client.call("store", {"flags": [], "rows": str(list(range(5_000)))})
    assert refused.is_error
    assert not repaired.is_error
    assert len(refused.meta[ERRORS]) == 40
    assert refused.meta[ERRORS][0]["got"] == f'{{"text":"{"y" * 190}…'
    assert repaired.meta[WARNINGS][0]["became"].startswith("[0,1,2,")
    for result in (refused, repaired):
        assert len(msgspec.json.encode(result.meta)) < 20_000
