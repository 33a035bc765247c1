"""The six tools of `sloppy.py` as plain functions, which any framework can hang: each keeps what it was handed."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

HANDED: Final[list[dict[str, Any]]] = []


class Color(Enum):
    RED = "red"
    GREEN = "green"
    NIGHT = "dark-blue"


@dataclass
class Address:
    street: str
    zip_code: str | None = None
    floor: int | None = None


@dataclass
class User:
    name: str
    age: int | None = None
    address: Address | None = None
    emails: list[str] = field(default_factory=list)


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclass
class Square:
    kind: Literal["square"]
    side: float


@dataclass
class Node:
    value: int
    children: list[Node] = field(default_factory=list)


async def search(
    query: str,
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    min_score: float | None = None,
    exact: bool = False,
    page_token: str | None = None,
) -> str:
    return _keep(locals())


async def tag(
    ids: list[int] | None = None,
    tags: list[str] | None = None,
    labels: set[str] | None = None,
    point: tuple[float, float] | None = None,
    matrix: list[list[int]] | None = None,
) -> str:
    return _keep(locals())


async def paint(
    color: Color,
    finish: Literal["matt", "gloss"] = "matt",
    coats: Literal[1, 2, 3] = 1,
    case: Literal["A", "a", "b"] = "b",
    note: str | None = None,
) -> str:
    return _keep(locals())


async def register(
    user: User | None = None,
    contacts: list[Address] | None = None,
    settings: dict[str, int] | None = None,
    notify: bool = False,
) -> str:
    return _keep(locals())


async def schedule(
    at: dt.datetime | None = None,
    day: dt.date | None = None,
    time: dt.time | None = None,
    lasts: dt.timedelta | None = None,
    event: uuid.UUID | None = None,
    link: Annotated[str | None, Field(json_schema_extra={"format": "uri"})] = None,
) -> str:
    return _keep(locals())


async def query(
    level: int,
    maybe: int | None = None,
    flag_or_count: int | bool | None = None,
    one_or_many: int | list[int] | None = None,
    text_or_number: str | float | None = None,
    shape: Circle | Square | None = None,
    tree: Node | None = None,
    anything: Any = None,
) -> str:
    return _keep(locals())


def _keep(handed: dict[str, Any]) -> str:
    HANDED.append(handed)
    return "ok"


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (search, tag, paint, register, schedule, query)
}
