"""The agents and frameworks, each with a folder in `drivers/` that holds its driver and its pinned packages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent_bench.job import ROOT

DRIVERS = Path(__file__).resolve().parent / "drivers"


@dataclass(frozen=True)
class Agent:
    """An agent: its name, its folder, the package that connects it to MCP, and the model API that it uses here.

    `own` is how its driver runs: "command" starts a program of the agent, "python" and "node" are scripts that import
    a framework.
    """

    name: str
    folder: str
    package: str
    api: str
    own: Literal["command", "python", "node"]

    @property
    def home(self) -> Path:
        return DRIVERS / self.folder

    @property
    def environment(self) -> Path:
        """Where its Python packages are installed."""
        return ROOT / ".agents" / self.folder

    @property
    def is_npm(self) -> bool:
        return (self.home / "package.json").exists()

    @property
    def version(self) -> str:
        """The pinned version of its package."""
        if self.is_npm:
            return str(json.loads((self.home / "package.json").read_text())["dependencies"][self.package])
        found = re.search(rf"^{re.escape(self.package)}==([^\s;]+)", (self.home / "pins.txt").read_text(), re.MULTILINE)
        return found[1] if found else "?"


_CHAT = "chat completions"

AGENTS = (
    Agent("Claude Code", "claude_code", "@anthropic-ai/claude-code", "Messages", "command"),
    Agent("Codex CLI", "codex", "@openai/codex", "Responses", "command"),
    Agent("opencode", "opencode", "opencode-linux-x64", _CHAT, "command"),
    Agent("Gemini CLI", "gemini_cli", "@google/gemini-cli", "generateContent", "command"),
    Agent("LangChain", "langchain", "langchain-mcp-adapters", _CHAT, "python"),
    Agent("Pydantic AI", "pydantic_ai", "pydantic-ai-slim", _CHAT, "python"),
    Agent("OpenAI Agents SDK", "openai_agents", "openai-agents", "Responses", "python"),
    Agent("LlamaIndex", "llama_index", "llama-index-tools-mcp", _CHAT, "python"),
    Agent("mcp-use", "mcp_use", "mcp-use", _CHAT, "python"),
    Agent("Strands Agents", "strands", "strands-agents", _CHAT, "python"),
    Agent("Haystack", "haystack", "mcp-haystack", _CHAT, "python"),
    Agent("Agno", "agno", "agno", _CHAT, "python"),
    Agent("Google ADK", "google_adk", "google-adk", "generateContent", "python"),
    Agent("smolagents", "smolagents", "smolagents", _CHAT, "python"),
    Agent("Vercel AI SDK", "ai_sdk", "@ai-sdk/mcp", _CHAT, "node"),
    Agent("LangChain.js", "langchain_js", "@langchain/mcp-adapters", _CHAT, "node"),
    Agent("Mastra", "mastra", "@mastra/mcp", _CHAT, "node"),
)
