"""The tool framework: a declared tool, a catalog, a provider that parses its calls, and an executor that runs them."""

from __future__ import annotations

import asyncio
from typing import Any

from pegboard import (
    Cardinality,
    EnumConstraint,
    Parameter,
    Tool,
    ToolCatalog,
    ToolExecutionContext,
    ToolExecutor,
    ToolResult,
    ValueKind,
)
from pegboard.providers import Provider


class MemorySearchTool(Tool):
    name = "memory.search"
    description = "根据关键词在记忆库中查找相关片段，并返回摘要"
    parameters = (
        Parameter(
            name="query",
            kind=ValueKind.STRING,
            cardinality=Cardinality.SINGLE,
            required=True,
            description="用户输入的检索关键词",
            example="agent state consistency",
        ),
        Parameter(
            name="limit",
            kind=ValueKind.INTEGER,
            cardinality=Cardinality.OPTIONAL,
            required=False,
            description="需要返回的最大片段数",
            example="3",
        ),
    )

    async def execute(self, context: ToolExecutionContext) -> ToolResult:
        args = context.request.arguments
        limit = args.get("limit", 3)
        await asyncio.sleep(0)
        return ToolResult(f"命中 {limit} 条记录", metadata={"query": args["query"]})


class DiagnosticsTool(Tool):
    """One parameter for each rule of the provider contract."""

    name = "diagnostics"
    parameters = (
        Parameter("flag", ValueKind.BOOLEAN, required=False),
        Parameter("text", ValueKind.STRING, required=False),
        Parameter("count", ValueKind.INTEGER, required=False),
        Parameter("options", ValueKind.JSON_OBJECT, required=False),
        Parameter("tags", ValueKind.STRING, Cardinality.LIST, required=False),
        Parameter("since", ValueKind.TIMESTAMP, required=False),
        Parameter("link", ValueKind.URI, required=False),
        Parameter("level", ValueKind.ENUM_TOKEN, required=False, enum=EnumConstraint(["info", "debug"])),
    )

    async def execute(self, context: ToolExecutionContext) -> ToolResult:
        return ToolResult("ok", metadata={"arguments": context.request.arguments, **context.environment})


catalog = ToolCatalog([MemorySearchTool(), DiagnosticsTool()])
provider = Provider("openai", catalog)
executor = ToolExecutor(catalog, environment={"session": "debug"})


async def run(calls: list[dict[str, Any]]) -> Any:
    """LLM output → parsed arguments → ToolCallRequest → ToolExecutor → records."""
    return await executor.execute_batch(provider.parse({"choices": [{"message": {"tool_calls": calls}}]}))


if __name__ == "__main__":
    function = {"name": provider.names.alias("memory.search"), "arguments": '{"query": "state", "limit": "5"}'}
    print(asyncio.run(run([{"id": "1", "type": "function", "function": function}])).records)
