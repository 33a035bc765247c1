"""Agno."""

import asyncio
import json
import shlex
import sys
from pathlib import Path

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.tools.mcp import MCPTools

job = json.loads(Path(sys.argv[1]).read_text())
tools = (
    MCPTools(command=shlex.join(job["command"]), timeout_seconds=60)
    if job["command"]
    else MCPTools(url=job["url"], transport="streamable-http", timeout_seconds=60)
)


async def main() -> None:
    async with tools:
        model = OpenAILike(id="scripted", base_url=f"{job['model']}/v1", api_key="no-key")
        await Agent(model=model, tools=[tools], telemetry=False).arun(job["prompt"])


asyncio.run(main())
