"""Pydantic AI."""

import asyncio
import json
import os
import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

job = json.loads(Path(sys.argv[1]).read_text())
server = StdioTransport(job["command"][0], job["command"][1:], env=dict(os.environ)) if job["command"] else job["url"]
model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=f"{job['model']}/v1", api_key="no-key"))
agent = Agent(model, toolsets=[MCPToolset(server, init_timeout=60)], retries=100)


async def main() -> None:
    async with agent:
        await agent.run(job["prompt"], usage_limits=UsageLimits(request_limit=200))


asyncio.run(main())
