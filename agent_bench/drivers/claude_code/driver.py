"""Claude Code, in print mode."""

import json
from pathlib import Path

from agent_bench.job import KEY, become, read_job, write

HERE = Path(__file__).parent
job = read_job()
server = (
    {"type": "stdio", "command": job.command[0], "args": job.command[1:]}
    if job.command
    else {"type": "http", "url": job.url}
)
config = write(Path(job.home) / "mcp.json", json.dumps({"mcpServers": {"bench": server}}))
become(
    [
        next(HERE.glob("node_modules/@anthropic-ai/claude-code-*/claude")),
        "-p",
        job.prompt,
        "--mcp-config",
        config,
        "--strict-mcp-config",
        "--allowedTools",
        "mcp__bench",
        "--model",
        "claude-sonnet-4-5",
    ],
    ANTHROPIC_BASE_URL=job.model,
    ANTHROPIC_API_KEY=KEY,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    DISABLE_AUTOUPDATER="1",
    ENABLE_TOOL_SEARCH="false",
    MCP_TIMEOUT="60000",
    MCP_CONNECTION_NONBLOCKING="0",
)
