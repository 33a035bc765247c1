"""Four styles of writing a tool: choose by how much you want to say yourself."""

import logging
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pegboard import (
    Board,
    Cardinality,
    Description,
    JsonRpcMessage,
    Parameter,
    Range,
    Request,
    Tool,
    ToolExecutionContext,
    ToolResponse,
    ToolResult,
    ValueKind,
)

board = Board("styles", version="1.0.0")


# What tools need beside their arguments is registered by type, before the tools that ask for it.


@dataclass
class User:
    id: int
    name: str


class UserRepository(Protocol):
    async def get(self, user_id: int) -> User: ...


class Users:
    """A UserRepository in memory."""

    async def get(self, user_id: int) -> User:
        return User(user_id, {1: "Ada", 2: "Alan"}.get(user_id, "nobody"))


class Database:
    """Answers queries, as far as an example needs to."""

    async def execute(self, filters: list[str], options: dict[str, Any]) -> dict[str, Any]:
        return {"rows": len(filters), "order": options.get("order", "none")}


board.services.value(UserRepository, Users())
board.services.factory(Database, Database)


# Magic: a function. Its name, docstring and annotations say everything.


@board.tool
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool("greet")
def greet(name: str, prefix: str | None = None) -> str:
    """Greets a user by name."""
    return f"{prefix} {name}!" if prefix is not None else f"Hello, {name}!"


@board.tool
def divide(
    numerator: Annotated[float, Description("Numerator")],
    denominator: Annotated[float, Description("Denominator (cannot be zero)"), Range(0.001, 1.7976931348623157e308)],
) -> float:
    """Divides one number by another."""
    return numerator / denominator


@board.tool
async def get_user(user_id: int, repo: UserRepository, log: logging.Logger) -> User:
    """Fetches a user by id."""
    log.debug("fetching user %d", user_id)
    return await repo.get(user_id)


# Explicit: your own schema, the raw message in, a raw message out.


@dataclass
class Numbers:
    number1: float
    number2: float


@board.tool(
    "add_numbers",
    title="Add Numbers",
    description="Adds two numbers and return result. Example: 5 + 3 = 8",
    input_schema={
        "type": "object",
        "properties": {
            "number1": {"type": "number", "description": "First number"},
            "number2": {"type": "number", "description": "Second number"},
        },
        "required": ["number1", "number2"],
    },
)
def add_tool(request: JsonRpcMessage) -> JsonRpcMessage:
    args = request.params_as(Numbers)
    return ToolResponse.success(request.id, {"result": args.number1 + args.number2})


# Typed: a message whose schema comes from a type.


@board.tool
def multiply(request: Request[Numbers]) -> JsonRpcMessage:
    """Multiplies two numbers."""
    return ToolResponse.success(request.id, {"result": request.args.number1 * request.args.number2})


# Hybrid: your own schema and raw message where the arguments are complicated, services and a plain result all the same.


@dataclass
class ComplexQuery:
    filters: list[str]
    options: dict[str, Any]


@board.tool(
    "complex_query",
    description="Executes a complex database query",
    input_schema={
        "type": "object",
        "properties": {
            "filters": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object", "properties": {"order": {"enum": ["rising", "falling"]}}},
        },
        "required": ["filters", "options"],
    },
)
async def complex_query(request: JsonRpcMessage, db: Database) -> dict[str, Any]:
    args = request.params_as(ComplexQuery)
    return await db.execute(args.filters, args.options)


# Declared: a class, with its parameters as values that a program can read.


class MemorySearch(Tool):
    name = "memory.search"
    description = "Finds notes by keyword and returns them in brief"
    parameters = (
        Parameter("query", ValueKind.STRING, description="Words to look for", example="agent state consistency"),
        Parameter(
            "limit",
            ValueKind.INTEGER,
            Cardinality.OPTIONAL,
            required=False,
            description="How many notes to return at most",
            example="3",
        ),
    )

    async def execute(self, context: ToolExecutionContext) -> ToolResult:
        args = context.request.arguments
        return ToolResult(f"{args.get('limit', 3)} notes about {args['query']}")


board.add(MemorySearch())


if __name__ == "__main__":
    board.run()
