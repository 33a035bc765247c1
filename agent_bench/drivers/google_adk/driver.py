"""Google Agent Development Kit."""

import asyncio
import json
import os
import sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
os.environ |= {"GOOGLE_API_KEY": "no-key", "GOOGLE_GEMINI_BASE_URL": job["model"], "GOOGLE_GENAI_USE_VERTEXAI": "0"}

from google.adk.agents import LlmAgent  # noqa: E402  # it reads the variables above
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.tools.mcp_tool.mcp_session_manager import (  # noqa: E402
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset  # noqa: E402
from google.genai import types  # noqa: E402
from mcp import StdioServerParameters  # noqa: E402

server = (
    StdioConnectionParams(
        server_params=StdioServerParameters(command=job["command"][0], args=job["command"][1:]), timeout=60
    )
    if job["command"]
    else StreamableHTTPConnectionParams(url=job["url"], timeout=60)
)


async def main() -> None:
    tools = McpToolset(connection_params=server)
    agent = LlmAgent(model="gemini-2.5-flash", name="bench", tools=[tools])
    runner = InMemoryRunner(agent, app_name="bench")
    session = await runner.session_service.create_session(app_name="bench", user_id="bench")
    prompt = types.Content(role="user", parts=[types.Part(text=job["prompt"])])
    async for _ in runner.run_async(user_id="bench", session_id=session.id, new_message=prompt):
        pass
    await runner.close()


asyncio.run(main())
