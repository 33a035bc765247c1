"""What a driver is given: the address of the model, the server to use, a private home, and the prompt."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEY = "no-key"
"""What agents send as their key: the scripted model needs none."""


@dataclass(frozen=True)
class Job:
    """One run of an agent. The server is a command for stdio, or a URL."""

    model: str
    command: list[str] | None
    url: str | None
    home: str
    prompt: str

    def save(self) -> Path:
        path = Path(self.home) / "job.json"
        path.write_text(json.dumps(asdict(self)))
        return path


def read_job() -> Job:
    return Job(**json.loads(Path(sys.argv[1]).read_text()))


def become(command: list[str | Path], **variables: str) -> None:
    """Replace this process by an agent."""
    os.environ.update(variables)
    words = [str(word) for word in command]
    os.execv(words[0], words)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
