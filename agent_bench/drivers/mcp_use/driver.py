"""mcp-use."""

import asyncio
import json
import sys
from pathlib import Path

from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient

job = json.loads(Path(sys.argv[1]).read_text())
server = {"command": job["command"][0], "args": job["command"][1:]} if job["command"] else {"url": job["url"]}


async def main() -> None:
    client = MCPClient.from_dict({"mcpServers": {"bench": server}})
    model = ChatOpenAI(model="scripted", base_url=f"{job['model']}/v1", api_key="no-key")
    agent = MCPAgent(llm=model, client=client, max_steps=200)
    try:
        await agent.run(job["prompt"])
    finally:
        await client.close_all_sessions()


asyncio.run(main())
