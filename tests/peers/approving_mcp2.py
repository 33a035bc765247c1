"""Calls a tool with the official Python client, 2.x, and approves the call if it is asked."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import Client, types


async def main(url: str, mode: str, tool: str) -> None:
    asked: list[str] = []

    async def approve(_: Any, question: Any) -> types.ElicitResult:
        asked.append(question.mode)
        return types.ElicitResult(action="accept", content={"approve": True} if question.mode == "form" else None)

    async with Client(url, mode=mode, elicitation_callback=approve) as client:
        called = await client.call_tool(tool, {"name": "old"})
    print(json.dumps({"asked": asked, "text": called.content[0].text}))


asyncio.run(main(*sys.argv[1:]))
