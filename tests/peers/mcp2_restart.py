"""Calls before and after a restart of the server with the official Python client, 2.x; tells what it sent and got."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def live(url: str, tool: str) -> dict[str, Any]:
    posted: list[tuple[str, str | None]] = []

    async def note(request: httpx2.Request) -> None:
        if request.method == "POST":
            posted.append((json.loads(request.content)["method"], request.headers.get("mcp-session-id")))

    async with (
        httpx2.AsyncClient(event_hooks={"request": [note]}, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        before = await client.call_tool(tool, {})
        print("called", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        after = await client.call_tool(tool, {})
        return {"posted": posted, "texts": [before.content[0].text, after.content[0].text]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(live(*sys.argv[1:]))), flush=True)
