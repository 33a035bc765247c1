"""Strands Agents."""

import json
import sys
from pathlib import Path

from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

job = json.loads(Path(sys.argv[1]).read_text())
client = MCPClient(
    (lambda: stdio_client(StdioServerParameters(command=job["command"][0], args=job["command"][1:])))
    if job["command"]
    else (lambda: streamable_http_client(job["url"]))
)
model = OpenAIModel(client_args={"base_url": f"{job['model']}/v1", "api_key": "no-key"}, model_id="scripted")
with client:
    agent = Agent(model=model, tools=client.list_tools_sync())
    agent(job["prompt"])
