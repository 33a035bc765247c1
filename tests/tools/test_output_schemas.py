"""The output schema of a tool describes what the tool sends: the serialized form of its return type."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import attrs
import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, field_serializer, model_serializer

from pegboard import Board, Client

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Rectangle(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int
    height: int

    @computed_field  # type: ignore[prop-decorator]  # mypy does not follow a decorated property
    @property
    def area(self) -> int:
        return self.width * self.height


class Event(BaseModel):
    when: datetime

    @field_serializer("when")
    def write_when(self, when: datetime) -> int:
        return int(when.timestamp())


class Renamed(BaseModel):
    first_name: str = Field(serialization_alias="firstName", validation_alias="given")


class Account(BaseModel):
    model_config = ConfigDict(extra="forbid")
    user: str
    password: str = Field(exclude=True)


class Celsius(BaseModel):
    degrees: float

    @model_serializer
    def write(self) -> dict[str, float]:
        return {"celsius": self.degrees}


@pydantic.dataclasses.dataclass
class Login:
    user: str
    password: str = Field(exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not follow a decorated property
    @property
    def shown(self) -> str:
        return self.user.title()


Timestamp = Annotated[datetime, PlainSerializer(lambda when: int(when.timestamp()), return_type=int)]


class Camel(msgspec.Struct, rename="camel", omit_defaults=True):
    file_name: str
    line_count: int = 0


@attrs.define
class Parcel:
    weight: float
    _secret: str
    price: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.price = self.weight * 2


@dataclass
class Invoice:
    net: int
    rate: InitVar[int]
    gross: int = dataclasses.field(init=False)

    def __post_init__(self, rate: int) -> None:
        self.gross = self.net * rate


@dataclass
class Mixed:
    rectangle: Rectangle
    events: list[Event]
    parcel: Parcel | None


def login_stream() -> Iterator[Login]:
    yield Login("ann", "hunter2")


RECTANGLE = {"width": 2, "height": 3, "area": 6}
LOGIN = {"user": "ann", "shown": "Ann"}


@pytest.mark.parametrize(
    ("returned", "value", "sent"),
    [
        (Rectangle, Rectangle(width=2, height=3), RECTANGLE),
        (list[Rectangle], [Rectangle(width=2, height=3)], [RECTANGLE]),
        (Rectangle | None, Rectangle(width=2, height=3), RECTANGLE),
        (Event, Event(when=NOON), {"when": 1769860800}),
        (Renamed, Renamed(given="Ann"), {"firstName": "Ann"}),
        (Account, Account(user="ann", password="hunter2"), {"user": "ann"}),
        (Celsius, Celsius(degrees=21.5), {"celsius": 21.5}),
        (Login, Login("ann", "hunter2"), LOGIN),
        (list[Login], [Login("ann", "hunter2")], [LOGIN]),
        (dict[str, Timestamp], {"noon": NOON}, {"noon": 1769860800}),
        (Camel, Camel("a.py"), {"fileName": "a.py"}),
        (Parcel, Parcel(1.5, "x"), {"weight": 1.5, "price": 3.0}),
        (Invoice, Invoice(100, 2), {"net": 100, "gross": 200}),
        (
            Mixed,
            Mixed(Rectangle(width=2, height=3), [Event(when=NOON)], Parcel(1.5, "x")),
            {"rectangle": RECTANGLE, "events": [{"when": 1769860800}], "parcel": {"weight": 1.5, "price": 3.0}},
        ),
    ],
    ids=lambda part: str(getattr(part, "__name__", part))[:40],
)
async def test_the_schema_lists_the_names_that_are_sent(returned: Any, value: Any, sent: Any) -> None:
    def give() -> Any:
        return value

    give.__annotations__["return"] = returned
    board = Board()
    board.add(give)
    async with Client(board) as client:
        result = await client.call("give")
        assert not result.is_error, result.text
        assert result.structured == sent
        schema: Any = (await client.list_tools())[0]["outputSchema"]
    # An omitted default, and a model that writes itself as a dict, are all that the names of the schema do not show.
    if "properties" in schema:
        assert set(schema["properties"]) - {"lineCount"} == set(sent)


async def test_each_value_of_a_generator_is_written_by_pydantic() -> None:
    board = Board()
    board.add(login_stream)
    async with Client(board) as client:
        assert (await client.call("login_stream")).structured == [LOGIN]


async def test_an_excluded_field_of_a_pydantic_dataclass_is_not_sent_without_a_return_annotation() -> None:
    board = Board()

    @board.tool
    def login():  # type: ignore[no-untyped-def]  # the missing annotation is the point
        return Login("ann", "hunter2")

    async with Client(board) as client:
        result = await client.call("login")
    assert "hunter2" not in result.text
    assert '"shown":"Ann"' in result.text


async def test_a_tool_takes_a_model_by_its_input_schema_and_returns_it_by_its_output_schema() -> None:
    board = Board()

    @board.tool
    def rename(person: Renamed) -> Renamed:
        """Returns the person."""
        return person

    async with Client(board) as client:
        result = await client.call("rename", {"person": {"given": "Ann"}})
    assert result.structured == {"firstName": "Ann"}
