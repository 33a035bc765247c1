"""The examples of the lifecycle hooks: a tool with its own middleware, and the custom middleware of the document."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pegboard import Board, Middleware, Parameter, Tool, ToolError, ToolExecutionContext, ToolResult
from pegboard.middleware import Call, Logging, TokenCount

_logger = logging.getLogger("example")


# -- Performance monitoring --------------------------------------------------------------------------------------------


@dataclass
class Metrics:
    executions: dict[str, list[float]] = field(default_factory=dict)
    slow: Counter[str] = field(default_factory=Counter)

    def record_tool_execution(self, name: str, elapsed_ms: float) -> None:
        self.executions.setdefault(name, []).append(elapsed_ms)


class PerformanceMiddleware(Middleware):
    order = 20  # Run after logging

    def __init__(self, metrics: Metrics, slow_ms: float = 1000) -> None:
        self._metrics = metrics
        self._slow_ms = slow_ms

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        self._metrics.record_tool_execution(call.name, elapsed_ms)
        if elapsed_ms > self._slow_ms:
            self._metrics.slow[call.name] += 1


# -- Audit trail -------------------------------------------------------------------------------------------------------


@dataclass
class AuditEntry:
    tool_name: str
    parameters: Mapping[str, Any]
    result: Mapping[str, Any]
    elapsed_ms: float
    timestamp: datetime


class AuditMiddleware(Middleware):
    order = 30

    def __init__(self, entries: list[AuditEntry]) -> None:
        self._entries = entries

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        self._entries.append(AuditEntry(call.name, call.arguments, result, elapsed_ms, datetime.now(UTC)))


# -- Rate limiting -----------------------------------------------------------------------------------------------------


class RateLimitMiddleware(Middleware):
    order = 5  # Run very early

    def __init__(self, allowed: int) -> None:
        self._left = Counter[str]()
        self._allowed = allowed

    async def before(self, call: Call) -> None:
        self._left[call.name] += 1
        if self._left[call.name] > self._allowed:
            raise ToolError(f"Rate limit exceeded for tool '{call.name}'")


# -- Conditional logic, by name and by category ------------------------------------------------------------------------


class SecurityMiddleware(Middleware):
    async def before(self, call: Call) -> None:
        # Only apply to specific tools
        if call.name.startswith("sensitive_") and call.arguments.get("token") != "secret":
            raise ToolError("Not allowed")


class DatabaseMiddleware(Middleware):
    def __init__(self) -> None:
        self.transactions = 0

    async def before(self, call: Call) -> None:
        # Only apply to database tools
        if call.tool.category == "data_access":
            self.transactions += 1


# -- Errors in an error hook do not break the chain --------------------------------------------------------------------


class ErrorMiddleware(Middleware):
    def __init__(self) -> None:
        self.handled: list[str] = []

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        self.handled.append(type(exception).__name__)
        raise RuntimeError("logged by the board, and not raised")


# -- A tool with middleware of its own ---------------------------------------------------------------------------------


class MyTool(Tool):
    name = "my_tool"
    description = "Says hello"
    parameters = (Parameter("value", description="What to say"),)

    def __init__(self, logger: logging.Logger, *more: Middleware) -> None:
        self._logger = logger
        self._more = more

    @property
    def middleware(self) -> Sequence[Middleware]:  # type: ignore[override]  # read once, when the tool is added
        return [Logging(logger=self._logger.name), TokenCount(), *self._more]

    async def execute(self, context: ToolExecutionContext) -> ToolResult:
        return ToolResult(f"Hello, {context.request.arguments['value']}")


metrics = Metrics()
entries: list[AuditEntry] = []
database = DatabaseMiddleware()

board = Board("lifecycle")
board.use(PerformanceMiddleware(metrics), AuditMiddleware(entries), SecurityMiddleware(), database)
board.add(MyTool(_logger))


@board.tool(category="data_access", middleware=[RateLimitMiddleware(2)])
def query(table: str) -> int:
    """Counts the rows of a table"""
    return len(table)


@board.tool
def sensitive_read(token: str) -> str:
    """Reads what not everyone may read"""
    return "the answer"


if __name__ == "__main__":
    board.run()
