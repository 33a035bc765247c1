"""Haystack, with mcp-haystack."""

import json
import sys
from pathlib import Path

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo

job = json.loads(Path(sys.argv[1]).read_text())
server = (
    StdioServerInfo(command=job["command"][0], args=job["command"][1:])
    if job["command"]
    else StreamableHttpServerInfo(url=job["url"])
)
tools = MCPToolset(server, connection_timeout=60, invocation_timeout=60)
model = OpenAIChatGenerator(api_key=Secret.from_token("no-key"), model="scripted", api_base_url=f"{job['model']}/v1")
agent = Agent(chat_generator=model, tools=tools, max_agent_steps=200)
agent.run(messages=[ChatMessage.from_user(job["prompt"])])
