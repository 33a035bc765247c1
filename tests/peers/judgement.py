"""What every Python judge is asked on its command line, and the lines of JSON it answers with."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Question:
    """Connect to this server in this mode, list its tools, call one."""

    mode: str
    tool: str
    arguments: dict[str, Any]
    url: str | None = None
    command: list[str] = field(default_factory=list)


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


def questions() -> list[Question]:
    """Read the one argument: a JSON list of `{mode, tool, arguments, url}` or `{mode, tool, arguments, command}`."""
    (asked,) = sys.argv[1:]
    return [Question(**one) for one in json.loads(asked)]


def answer(judge: Callable[[Question], Coroutine[Any, Any, Verdict]]) -> None:
    """Judge each server in an event loop of its own, and print a line of JSON for each."""
    for asked in questions():
        print(json.dumps(vars(asyncio.run(judge(asked)))), flush=True)
