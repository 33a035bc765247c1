"""Tools in your own agent loop: export definitions, parse calls, run them. No server is needed."""

import asyncio
from typing import Any

from pegboard import Board, Client, ToolCatalog, ToolExecutor
from pegboard.providers import Provider


def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


tools = ToolCatalog([add])
provider = Provider("anthropic", tools)
executor = ToolExecutor(tools, environment={"user": "Ada"})


def ask_model(definitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Stands in for a model: returns one call with a number sent as a string."""
    call = {"type": "tool_use", "id": "call-1", "name": definitions[0]["name"], "input": {"a": "2", "b": 3}}
    return {"role": "assistant", "content": [call]}


async def main() -> None:
    requests = provider.parse(ask_model(provider.definitions))
    batch = await executor.execute_batch(requests)
    for request, record in zip(requests, batch.records, strict=True):
        print(record.status, record.text_with_warnings())
        print(provider.answer(request, record.result, is_error=record.failed))
    print(batch.metadata["tool_call_count"], batch.metadata["tool_failed_count"])


async def use_server(server: Board) -> str:
    async with Client(server) as client:  # or a URL, a command, or a Gateway
        provider = Provider("anthropic", await client.list_tools())
        requests = provider.parse(ask_model(provider.definitions))
        batch = await ToolExecutor(client).execute_batch(requests, parallel=4)
        return batch.records[0].result


if __name__ == "__main__":
    asyncio.run(main())
