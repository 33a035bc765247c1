"""A board with a magic tool for every row of the design's table of types, of names, of returns and of services."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec

from pegboard import (
    Board,
    CancellationToken,
    Context,
    JsonRpcMessage,
    MaxLength,
    MinLength,
    Parameter,
    Pattern,
    Range,
    Tool,
    ToolConnector,
    ToolExecutionContext,
    ToolResponse,
    ToolResult,
    ValueKind,
)

board = Board("types")
types = board.group("types")


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Place:
    street: str
    number: int = 1


def seen(value: Any) -> str:
    return f"{type(value).__name__} {msgspec.json.encode(value).decode()}"


@types.tool
def integer(value: int) -> str:
    return seen(value)


@types.tool
def double(value: float) -> str:
    return seen(value)


@types.tool
def decimal(value: Decimal) -> str:
    return f"Decimal {value}"


@types.tool
def string(value: str) -> str:
    return seen(value)


@types.tool
def boolean(value: bool) -> str:
    return seen(value)


@types.tool
def nullable_integer(value: int | None) -> str:
    return seen(value)


@types.tool
def nullable_double(value: float | None) -> str:
    return seen(value)


@types.tool
def nullable_string(value: str | None) -> str:
    return seen(value)


@types.tool
def timestamp(value: datetime) -> str:
    return seen(value)


@types.tool
def guid(value: UUID) -> str:
    return seen(value)


@types.tool
def choice(value: Level) -> str:
    return seen(value)


@types.tool
def array(value: list[int]) -> str:
    return seen(value)


@types.tool
def anything(value: dict[str, Any]) -> str:
    return seen(value)


@types.tool
def custom(value: Place) -> str:
    return seen(value)


@types.tool
def constrained(
    percent: Annotated[int, Range(1, 100)],
    code: Annotated[str, MinLength(3), MaxLength(5), Pattern(r"^[A-Z]+$")],
) -> str:
    return f"{percent} {code}"


# -- names, titles and descriptions ------------------------------------------------------------------------------------


def AddNumbersTool(a: float, b: float) -> float:  # noqa: N802 — the design's own example of a name
    """Adds two numbers and return result. Example: 5 + 3 = 8"""
    return a + b


def HTTPRequest(url: str) -> str:  # noqa: N802 — an acronym to split
    return url


def add_four(a: float) -> float:
    """Adds four.

    Args:
        a: the number
    """
    return a + 4


board.add(AddNumbersTool)
board.add(HTTPRequest)
board.tool("positional")(add_four)
board.tool(name="by_keyword")(add_four)
board.tool("everything", title="All Given", description="All of it given")(add_four)
board.tool("titled", title="Only Title")(add_four)
board.tool("described", description="Only description")(add_four)


# -- returns -----------------------------------------------------------------------------------------------------------

returns = board.group("returns")


@returns.tool
def message(request: JsonRpcMessage) -> JsonRpcMessage:
    return ToolResponse.success(request.id, {"content": [{"type": "text", "text": "raw"}]})


@returns.tool
async def awaited_message(request: JsonRpcMessage) -> JsonRpcMessage:
    return ToolResponse.success(request.id, {"answer": 1})


@returns.tool
def error_message(request: JsonRpcMessage) -> JsonRpcMessage:
    return ToolResponse.error(request.id, -32001, "not here", {"where": "there"})


@returns.tool
def value() -> dict[str, int]:
    return {"answer": 1}


@returns.tool
async def awaited_value() -> dict[str, int]:
    return {"answer": 1}


@returns.tool
def nothing() -> None:
    return None


@returns.tool
async def awaited_nothing() -> None:
    return None


@returns.tool(input_schema={"type": "object"})
async def hybrid_value(request: JsonRpcMessage, log: logging.Logger) -> dict[str, int]:
    log.debug("called")
    return {"answer": 1}


@returns.tool(input_schema={"type": "object"})
def explicit_nothing(request: JsonRpcMessage) -> None:
    return None


class DeclaredValue(Tool):
    name = "declared_value"

    def execute(self, context: ToolExecutionContext) -> dict[str, int]:
        return {"answer": 1}


class DeclaredNothing(Tool):
    name = "declared_nothing"

    async def execute(self, context: ToolExecutionContext) -> None:
        return None


class DeclaredResult(Tool):
    name = "declared_result"
    parameters = (Parameter("limit", ValueKind.INTEGER),)

    async def execute(self, context: ToolExecutionContext, token: CancellationToken) -> ToolResult:
        request = context.request
        said = [warning.code for warning in request.warnings]
        text = f"{request.tool_name} {request.arguments} {request.raw_arguments} {said} {token.cancelled}"
        return ToolResult(text, structured={"limit": request.arguments["limit"]}, meta={"mine": 1})


for declared in (DeclaredValue(), DeclaredNothing(), DeclaredResult()):
    returns.add(declared)


# -- services and special parameters -----------------------------------------------------------------------------------

special = board.group("special")


class Repository:
    def find(self, key: int) -> str:
        return f"entry {key}"


board.services.factory(Repository, Repository)


@special.tool
def mixed(key: int, repository: Repository, log: logging.Logger) -> str:
    log.debug("looking for %d", key)
    return repository.find(key)


@special.tool
def ping(request: JsonRpcMessage, repository: Repository, log: logging.Logger) -> JsonRpcMessage:
    log.debug("ping")
    return ToolResponse.success(request.id, {"message": f"pong {request.get('word')} {repository.find(1)}"})


@special.tool
async def everything_of_the_call(
    request: JsonRpcMessage, connector: ToolConnector, token: CancellationToken, ctx: Context
) -> str:
    return f"{request.method} {connector.closed} {token.cancelled} {ctx.cancelled}"


@special.tool
async def stream(count: int, connector: ToolConnector, ctx: Context) -> str:
    for number in range(count):
        await connector.write(f"chunk {number}")
    await ctx.progress(100, message="all sent")
    return "whole"


@special.tool
def stream_in_a_thread(connector: ToolConnector) -> str:
    connector.write("text")
    connector.write("and bytes of text: é".encode())
    return "whole"


@special.tool
async def stream_bytes(connector: ToolConnector) -> str:
    await connector.write(b"\xff\xfe")
    return "never"
