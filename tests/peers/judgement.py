"""What every Python judge is asked on its command line, and the one line of JSON it answers with."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Question:
    """Connect to this server in this mode, list its tools, call one."""

    mode: str
    tool: str
    arguments: dict[str, Any]
    url: str | None
    command: list[str]


@dataclass
class Verdict:
    """What a foreign client saw."""

    server: dict[str, Any]
    protocol: str | None
    tools: list[str]
    result: str | None = None
    structured: Any = None
    is_error: bool = False
    progress: list[list[Any]] = field(default_factory=list)

    async def on_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append([done, total, message])

    def give(self) -> None:
        print(json.dumps(vars(self)), flush=True)


def question() -> Question:
    """Reads `[--mode M] TOOL ARGUMENTS URL`, or `[--mode M] TOOL ARGUMENTS --stdio -- COMMAND…`."""
    # The command's own flags are not ours, so it is cut off before the parser sees it.
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    command = words[cut + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("tool")
    parser.add_argument("arguments", type=json.loads)
    parser.add_argument("url", nargs="?")
    asked = parser.parse_args(words[:cut])
    if asked.stdio != bool(command) or asked.stdio == bool(asked.url):
        parser.error("name one target: a URL, or --stdio -- COMMAND…")
    return Question(asked.mode, asked.tool, asked.arguments, asked.url, command)
