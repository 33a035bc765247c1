"""opencode, with a provider that speaks chat completions."""

import json
from pathlib import Path

from agent_bench.job import KEY, become, read_job, write

HERE = Path(__file__).parent
job = read_job()
server = {"type": "local", "command": job.command} if job.command else {"type": "remote", "url": job.url}
config = {
    "model": "script/scripted",
    "small_model": "script/scripted",
    "autoupdate": False,
    "share": "disabled",
    "permission": "allow",
    "provider": {
        "script": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "script",
            "options": {"baseURL": f"{job.model}/v1", "apiKey": KEY},
            "models": {
                "scripted": {
                    "name": "scripted",
                    "tool_call": True,
                    "attachment": True,
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                }
            },
        }
    },
    "mcp": {"bench": {**server, "enabled": True}},
}
write(Path(job.home) / "work" / "opencode.json", json.dumps(config))
become(
    [next(HERE.glob("node_modules/opencode-linux-x64/bin/opencode")), "run", job.prompt],
    OPENCODE_DISABLE_AUTOUPDATE="1",
    OPENCODE_DISABLE_MODELS_FETCH="1",
    OPENCODE_DISABLE_LSP_DOWNLOAD="1",
)
