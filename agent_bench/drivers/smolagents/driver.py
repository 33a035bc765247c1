"""smolagents, with its tool-calling agent."""

import json
import sys
from pathlib import Path

from mcp import StdioServerParameters
from smolagents import MCPClient, OpenAIServerModel, ToolCallingAgent

job = json.loads(Path(sys.argv[1]).read_text())
server = (
    StdioServerParameters(command=job["command"][0], args=job["command"][1:])
    if job["command"]
    else {"url": job["url"], "transport": "streamable-http"}
)
model = OpenAIServerModel("scripted", api_base=f"{job['model']}/v1", api_key="no-key")
with MCPClient(server, structured_output=False) as tools:
    ToolCallingAgent(tools=tools, model=model, max_steps=32).run(job["prompt"])
