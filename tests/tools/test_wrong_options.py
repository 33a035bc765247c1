"""Options of the wrong type fail where they are written, with what is expected; defaults are not shared by calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Raw
from pydantic import Field

from pegboard import Audio, Board, Cardinality, Client, File, Image, Parameter, Tool, ToolExecutionContext, ValueKind
from pegboard.errors import DeclarationError
from pegboard.middleware import ConcurrencyLimit, Logging, RateLimit


def ping() -> str:
    return "pong"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tags": "read"}, "tags='read'; use a list of texts, for example tags=['read']"),
        ({"tags": [1]}, "tags=[1]; use a list of texts"),
        ({"tags": 5}, "tags=5; use a list of texts"),
        ({"middleware": Logging()}, "middleware must be a list, for example middleware=[Logging(…)]"),
        ({"annotations": "readOnlyHint"}, "annotations='readOnlyHint'; use a dict"),
        ({"meta": ["a"]}, "meta=['a']; use a dict"),
        ({"input_schema": '{"type":'}, "input_schema is not JSON"),
        ({"output_schema": "[1]"}, "output_schema='[1]'; use a dict, or the JSON text of an object"),
        ({"icons": 5}, "icons=5; use a URL, an icon, or a list of them"),
    ],
)
def test_an_option_of_the_wrong_type_is_rejected_with_what_is_expected(options: Any, expected: str) -> None:
    with pytest.raises(DeclarationError) as rejected:
        Board().tool(**options)(ping)
    assert expected in str(rejected.value)
    assert f"{__file__}:" in str(rejected.value)


def test_a_declared_tool_with_one_text_as_tags_is_rejected() -> None:
    class Ping(Tool):
        name = "ping"
        tags = "read"

        async def execute(self, context: ToolExecutionContext) -> str:
            return "pong"

    with pytest.raises(DeclarationError, match="use a list of texts"):
        Board().add(Ping())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: RateLimit("100/minute"), "limit='100/minute': use a whole number, for example RateLimit(100, per=\"minute\")"),
        (lambda: RateLimit(1.5), "limit=1.5: use a whole number"),
        (lambda: RateLimit(1, per=None), "per=None: use seconds greater than 0"),
        (lambda: RateLimit(1, burst="2"), "burst='2': use a whole number"),
        (lambda: ConcurrencyLimit("4"), "limit='4'"),
    ],
)  # fmt: skip
def test_a_limit_of_the_wrong_type_is_rejected_with_what_is_expected(make: Callable[[], Any], expected: str) -> None:
    with pytest.raises(DeclarationError) as rejected:
        make()
    assert expected in str(rejected.value)


def test_content_takes_its_media_type_as_the_second_argument() -> None:
    assert Image(b"x", "image/png").to_block()["mimeType"] == "image/png"
    assert Audio(b"x", "audio/wav").to_block()["mimeType"] == "audio/wav"
    assert File(b"x", "application/pdf", uri="a://b").to_block()["resource"]["mimeType"] == "application/pdf"


@dataclass
class Bag:
    items: list[str] = field(default_factory=list)


async def grown_twice(board: Board) -> list[str]:
    async with Client(board) as client:
        results = [await client.request("tools/call", name="grow", arguments=Raw(b"{}")) for _ in range(2)]
    return [result["content"][0]["text"] for result in results]


@pytest.mark.parametrize("annotation", [list[str], dict[str, Any], set[str], Bag, "own schema", "factory", "loaded"])
async def test_a_mutable_default_is_new_in_each_call(annotation: Any) -> None:
    board = Board()
    if annotation is Bag:

        def grow(bag: Bag = Bag()) -> str:  # noqa: B008 (what is tested)
            bag.items.append("x")
            return str(len(bag.items))
    elif annotation == "factory":

        def grow(items: list[str] = Field(default_factory=list)) -> str:  # noqa: B008 (what is tested)
            items.append("x")
            return str(len(items))
    elif annotation == "loaded":

        def grow(items: list[Bag] = [Bag()]) -> str:  # noqa: B006, B008 (what is tested)
            items[0].items.append("x")
            return str(len(items[0].items))
    else:
        empty: Any = {dict[str, Any]: {}, set[str]: set()}.get(annotation, [])

        def grow(items: Any = empty) -> str:
            if isinstance(items, dict):
                items[str(len(items))] = 1
            else:
                (items.add if isinstance(items, set) else items.append)(str(len(items)))
            return str(len(items))

        grow.__annotations__ = {"items": list[str] if annotation == "own schema" else annotation, "return": str}
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    board.tool(input_schema=schema)(grow) if annotation == "own schema" else board.tool(grow)
    assert await grown_twice(board) == ["1", "1"]


async def test_an_object_that_stands_for_an_absent_value_is_passed_itself() -> None:
    absent = object()
    board = Board()

    @board.tool
    def grow(items: Any = absent) -> str:
        return str(items is absent)

    assert await grown_twice(board) == ["True", "True"]


async def test_a_mutable_default_of_a_declared_parameter_is_new_in_each_call() -> None:
    class Grow(Tool):
        name = "grow"
        parameters = (Parameter("items", ValueKind.STRING, Cardinality.LIST, default=[]),)

        async def execute(self, context: ToolExecutionContext) -> str:
            items = context.request.arguments["items"]
            items.append("x")
            return str(len(items))

    board = Board()
    board.add(Grow())
    assert await grown_twice(board) == ["1", "1"]
