"""The description of a parameter belongs to the parameter, that of a type to its definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
import pytest
from pydantic import BaseModel

from pegboard import Board, Client


@dataclass
class Plain:
    """A point on the map."""

    x: float


class Typed(TypedDict):
    """A point on the map."""

    x: float


class Structured(msgspec.Struct):
    """A point on the map."""

    x: float


@attrs.define
class Attributed:
    """A point on the map."""

    x: float


class Modelled(BaseModel):
    """A point on the map."""

    x: float


TYPES = [Plain, Typed, Structured, Attributed, Modelled]


async def schema_of(function: Any) -> dict[str, Any]:
    board = Board()
    board.tool(function)
    async with Client(board) as client:
        (tool,) = await client.list_tools()
    return dict(tool["inputSchema"])


@pytest.mark.parametrize("point", TYPES)
async def test_two_parameters_of_one_type_keep_their_own_descriptions(point: Any) -> None:
    def move(start: Any, end: Any, via: Any) -> None: ...

    move.__annotations__ = {
        "start": Annotated[point, "Where it begins."],
        "end": Annotated[point, "Where it ends."],
        "via": point,
    }
    schema = await schema_of(move)
    reference = {"$ref": f"#/$defs/{point.__name__}"}
    assert schema["properties"] == {
        "start": {**reference, "description": "Where it begins."},
        "end": {**reference, "description": "Where it ends."},
        "via": reference,
    }
    assert schema["$defs"][point.__name__]["description"] == "A point on the map."


@pytest.mark.parametrize("point", TYPES)
async def test_the_docstring_describes_parameters_of_a_model_type(point: Any) -> None:
    def move(start: Any, end: Any) -> None:
        """Moves.

        Args:
            start: Where it begins.
            end: Where it ends.
        """

    def show(at: Any) -> None:
        """Shows.

        Args:
            at: What to show.
        """

    move.__annotations__ = {"start": point, "end": point | None}
    show.__annotations__ = {"at": point}
    schema = await schema_of(move)
    assert schema["properties"]["start"]["description"] == "Where it begins."
    assert schema["properties"]["end"]["description"] == "Where it ends."
    assert schema["$defs"][point.__name__]["description"] == "A point on the map."
    assert (await schema_of(show))["properties"]["at"]["description"] == "What to show."


async def test_a_type_used_once_and_not_described_shows_its_own_description() -> None:
    def show(at: Plain, more: list[Plain]) -> None: ...

    def one(at: Plain) -> None: ...

    schema = await schema_of(show)
    assert schema["properties"]["at"] == {"$ref": "#/$defs/Plain"}
    assert (await schema_of(one))["properties"]["at"]["description"] == "A point on the map."


async def test_a_nullable_parameter_of_a_shared_type_keeps_its_description() -> None:
    def move(start: Plain, end: Annotated[Plain | None, "Where it ends."] = Plain(1.0)) -> None: ...  # noqa: B008 — what is tested

    end = (await schema_of(move))["properties"]["end"]
    assert end["description"] == "Where it ends."
    assert end["anyOf"] == [{"$ref": "#/$defs/Plain"}, {"type": "null"}]


class Tree(msgspec.Struct):
    """A tree."""

    left: Annotated[Tree | None, "The left part."] = None


async def test_a_recursive_type_keeps_the_descriptions_apart() -> None:
    def grow(tree: Annotated[Tree, "What to grow."]) -> None: ...

    schema = await schema_of(grow)
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree", "description": "What to grow."}
    assert schema["$defs"]["Tree"]["description"] == "A tree."
    assert schema["$defs"]["Tree"]["properties"]["left"]["description"] == "The left part."
