"""LlamaIndex, with llama-index-tools-mcp."""

import asyncio
import json
import sys
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

job = json.loads(Path(sys.argv[1]).read_text())
client = (
    BasicMCPClient(job["command"][0], args=job["command"][1:], timeout=60)
    if job["command"]
    else BasicMCPClient(job["url"], timeout=60)
)
model = OpenAILike(
    "scripted", api_base=f"{job['model']}/v1", api_key="no-key", is_chat_model=True, is_function_calling_model=True
)


async def main() -> None:
    tools = await McpToolSpec(client).to_tool_list_async()
    agent = FunctionAgent(tools=tools, llm=model, timeout=120)
    await agent.run(job["prompt"], max_iterations=200)


asyncio.run(main())
