"""Gemini CLI, in prompt mode."""

import json
from pathlib import Path

from agent_bench.job import KEY, ROOT, become, read_job, write

HERE = Path(__file__).parent
job = read_job()
server = {"command": job.command[0], "args": job.command[1:]} if job.command else {"httpUrl": job.url}
settings = {
    "mcpServers": {"bench": {**server, "trust": True}},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "disableUpdateNag": True},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "model": {"disableLoopDetection": True},
}
write(Path(job.home) / ".gemini" / "settings.json", json.dumps(settings))
become(
    [
        ROOT / ".peers" / "bin" / "node",
        HERE / "node_modules" / "@google" / "gemini-cli" / "bundle" / "gemini.js",
        "--model",
        "gemini-2.5-pro",
        "--yolo",
        "--prompt",
        job.prompt,
    ],
    GEMINI_API_KEY=KEY,
    GOOGLE_GEMINI_BASE_URL=job.model,
    GEMINI_CLI_TRUST_WORKSPACE="true",
)
