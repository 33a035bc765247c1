"""Opens and closes a toolbox of each gateway it is given with the official Python client, 1.x; prints what it was shown."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def visit(target: list[str]) -> dict[str, Any]:
    changed = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and message.root.method == "notifications/tools/list_changed":
            changed.set()

    async with AsyncExitStack() as stack:
        if len(target) == 1:
            read, write, _ = await stack.enter_async_context(streamable_http_client(target[0]))
        else:
            command = StdioServerParameters(command=target[0], args=target[1:])
            read, write = await stack.enter_async_context(stdio_client(command))
        session = await stack.enter_async_context(ClientSession(read, write, message_handler=hear))
        await session.initialize()

        async def names() -> list[str]:
            return [tool.name for tool in (await session.list_tools()).tools]

        async def change(how: str) -> list[str]:
            changed.clear()
            await session.call_tool(f"workbench_{how}_toolbox", {"toolbox_name": "office"})
            await asyncio.wait_for(changed.wait(), 10)
            return await names()

        before, opened = await names(), await change("open")
        called = await session.call_tool("office__hello__add", {"a": 2, "b": 3})
        return {"before": before, "opened": opened, "result": called.content[0].text, "closed": await change("close")}


if __name__ == "__main__":
    for target in json.loads(sys.argv[1]):
        print(json.dumps(asyncio.run(visit(target))), flush=True)
