"""OpenAI Agents SDK, over the Responses API."""

import asyncio
import json
import sys
from pathlib import Path

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from openai import AsyncOpenAI

job = json.loads(Path(sys.argv[1]).read_text())
server = (
    MCPServerStdio({"command": job["command"][0], "args": job["command"][1:]}, client_session_timeout_seconds=60)
    if job["command"]
    else MCPServerStreamableHttp({"url": job["url"]}, client_session_timeout_seconds=60)
)
client = AsyncOpenAI(base_url=f"{job['model']}/v1", api_key="no-key")


async def main() -> None:
    set_tracing_disabled(True)
    async with server:
        agent = Agent("bench", mcp_servers=[server], model=OpenAIResponsesModel("scripted", client))
        await Runner.run(agent, job["prompt"], max_turns=200)


asyncio.run(main())
