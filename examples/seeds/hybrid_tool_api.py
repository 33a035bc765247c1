"""The examples of the hybrid tool API: explicit, magic and mixed tools on one board."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pegboard import Board, Description, JsonRpcMessage, Range, Request, ToolResponse

board = Board("hybrid", version="1.1")


# -- Services, registered before the tools that take them --------------------------------------------------------------


@dataclass
class User:
    id: int
    name: str


class UserRepository(Protocol):
    async def get_by_id(self, user_id: int) -> User: ...


class Users:
    async def get_by_id(self, user_id: int) -> User:
        return User(user_id, "Ada")


@dataclass
class QueryResult:
    rows: int
    order: str


class Database:
    async def execute(self, filters: list[str], options: dict[str, Any]) -> QueryResult:
        return QueryResult(len(filters), options.get("order", "none"))


board.services.value(UserRepository, Users())
board.services.factory(Database, Database)


# -- Explicit: full control, manual schema -----------------------------------------------------------------------------


@dataclass
class NumbersRequest:
    number1: float
    number2: float


@board.tool(
    "add_numbers",
    title="Add Numbers",
    description="Adds two numbers and return result. Example: 5 + 3 = 8",
    input_schema={
        "type": "object",
        "properties": {
            "number1": {"type": "number", "description": "First number to add"},
            "number2": {"type": "number", "description": "Second number to add"},
        },
        "required": ["number1", "number2"],
    },
)
def add_numbers_explicitly(request: JsonRpcMessage) -> JsonRpcMessage:
    args = request.params_as(NumbersRequest)
    return ToolResponse.success(request.id, {"result": args.number1 + args.number2})


# -- Magic: name, title, description and schema from the function ------------------------------------------------------


@board.tool
def AddNumbersTool(number1: float, number2: float) -> float:  # noqa: N802 — the name is converted to snake_case
    """Adds two numbers and return result. Example: 5 + 3 = 8"""
    return number1 + number2


@board.tool(name="add_by_property")
def add_tool(a: float, b: float) -> float:
    return a + b


@board.tool("add", title="Add Numbers", description="Adds two numbers")
async def add(a: float, b: float) -> float:
    await asyncio.sleep(0)
    return a + b


@board.tool("greet")
def greet(name: str, prefix: str | None = None) -> str:
    """Greets a user by name"""
    return f"{prefix} {name}!" if prefix is not None else f"Hello, {name}!"


@board.tool
def divide(
    numerator: Annotated[float, Description("Numerator")],
    denominator: Annotated[float, Description("Denominator (cannot be zero)"), Range(0.001, 1.7976931348623157e308)],
) -> float:
    return numerator / denominator


@board.tool
def forget() -> None:
    """Returns nothing: success with an empty result"""


# -- Hybrid: parameters from JSON, services from the board -------------------------------------------------------------


@board.tool
async def get_user(user_id: int, repo: UserRepository, logger: logging.Logger) -> User:
    """Fetches user by ID"""
    logger.info("Fetching user %s", user_id)
    return await repo.get_by_id(user_id)


@board.tool("ping")
def ping(request: JsonRpcMessage, logger: logging.Logger) -> JsonRpcMessage:
    logger.info("Ping received")
    return ToolResponse.success(request.id, {"message": "Pong"})


@dataclass
class ComplexQueryRequest:
    filters: list[str]
    options: dict[str, Any]


@board.tool(
    "complex_query",
    description="Executes a complex database query",
    input_schema={
        "type": "object",
        "properties": {
            "filters": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
        },
        "required": ["filters", "options"],
    },
)
async def complex_query(request: JsonRpcMessage, db: Database) -> QueryResult:
    args = request.params_as(ComplexQueryRequest)
    return await db.execute(args.filters, args.options)


# -- Typed message: what was built in place of the magic style ---------------------------------------------------------


@board.tool
def multiply(request: Request[NumbersRequest]) -> JsonRpcMessage:
    """Multiplies two numbers"""
    return ToolResponse.success(request.id, {"result": request.args.number1 * request.args.number2})


if __name__ == "__main__":
    board.run()
