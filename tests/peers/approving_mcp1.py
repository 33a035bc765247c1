"""Calls a tool with the official Python client, 1.x, and approves the call if it is asked."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, _mode: str, tool: str) -> None:
    asked: list[str] = []

    async def approve(_: Any, question: Any) -> types.ElicitResult:
        asked.append(question.mode)
        return types.ElicitResult(action="accept", content={"approve": True} if question.mode == "form" else None)

    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=approve) as session,
    ):
        await session.initialize()
        called = await session.call_tool(tool, {"name": "old"})
    print(json.dumps({"asked": asked, "text": called.content[0].text}))


asyncio.run(main(*sys.argv[1:]))
