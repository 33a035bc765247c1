"""Lives through a whole session of HTTP with SSE with the official Python client, 1.x; tells what it was told."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp.shared.context import RequestContext
from pydantic import AnyUrl


async def live(url: str) -> dict[str, Any]:
    notices: asyncio.Queue[str] = asyncio.Queue()
    progress: list[list[Any]] = []

    async def tell_roots(context: RequestContext[ClientSession, Any]) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here")])

    async def hear(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and not isinstance(message.root, types.ProgressNotification):
            heard = message.root
            notices.put_nowait(f"{heard.method} {getattr(heard.params, 'uri', '')}".strip())

    async def note(done: float, total: float | None, message: str | None) -> None:
        progress.append([done, total, message])

    async with (
        sse_client(url) as (read, write),
        ClientSession(read, write, list_roots_callback=tell_roots, message_handler=hear) as session,
    ):
        opened = await session.initialize()
        before = [tool.name for tool in (await session.list_tools()).tools]
        asked = await session.call_tool("where", {}, progress_callback=note)
        await session.subscribe_resource(AnyUrl("notes://one"))
        await session.call_tool("change", {})
        heard = [await asyncio.wait_for(notices.get(), 10) for _ in range(2)]
        after = [tool.name for tool in (await session.list_tools()).tools]
        return {
            "protocol": opened.protocolVersion,
            "progress": progress,
            "roots": asked.content[0].text,
            "heard": sorted(heard),
            "new": sorted(set(after) - set(before)),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(live(sys.argv[1]))), flush=True)
