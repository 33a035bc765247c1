"""Calls before and after a restart of the server with the official Python client, 1.x; tells what it sent and got."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def live(url: str, tool: str) -> dict[str, Any]:
    posted: list[tuple[str, str | None]] = []

    async def note(request: httpx.Request) -> None:
        if request.method == "POST":
            posted.append((json.loads(request.content)["method"], request.headers.get("mcp-session-id")))

    async with (
        httpx.AsyncClient(event_hooks={"request": [note]}, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        before = await session.call_tool(tool, {})
        print("called", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        after = await session.call_tool(tool, {})
        return {"posted": posted, "texts": [before.content[0].text, after.content[0].text]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(live(*sys.argv[1:]))), flush=True)
