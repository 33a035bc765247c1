"""LangChain, with langchain-mcp-adapters."""

import asyncio
import json
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI

job = json.loads(Path(sys.argv[1]).read_text())
server = (
    {"transport": "stdio", "command": job["command"][0], "args": job["command"][1:]}
    if job["command"]
    else {"transport": "streamable_http", "url": job["url"]}
)


async def main() -> None:
    client = MultiServerMCPClient({"bench": server})
    model = ChatOpenAI(model="scripted", base_url=f"{job['model']}/v1", api_key="no-key")
    async with client.session("bench") as session:
        from langchain_mcp_adapters.tools import load_mcp_tools

        agent = create_agent(model, await load_mcp_tools(session))
        await agent.ainvoke({"messages": [("user", job["prompt"])]}, {"recursion_limit": 200})


asyncio.run(main())
