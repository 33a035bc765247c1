"""Codex CLI, in exec mode."""

import json
from pathlib import Path

from agent_bench.job import KEY, become, read_job, write

HERE = Path(__file__).parent
job = read_job()
server = (
    f"command = {json.dumps(job.command[0])}\nargs = {json.dumps(job.command[1:])}"
    if job.command
    else f"url = {json.dumps(job.url)}"
)
write(
    Path(job.home) / ".codex" / "config.toml",
    f"""
model = "scripted"
model_provider = "script"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.script]
name = "script"
base_url = "{job.model}/v1"
wire_api = "responses"
env_key = "SCRIPT_KEY"

[mcp_servers.bench]
{server}
startup_timeout_sec = 60
required = true
default_tools_approval_mode = "approve"
""",
)
become(
    [
        next(HERE.glob("node_modules/@openai/codex-*/vendor/*/bin/codex")),
        "exec",
        "--skip-git-repo-check",
        job.prompt,
    ],
    SCRIPT_KEY=KEY,
)
