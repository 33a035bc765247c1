"""The figures that README and docs show: `figures.json`, written by `run.py --keep`, with versions, date and noise of each part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "figures.json"
PACKAGES = ("msgspec", "uvloop", "uvicorn", "httptools", "mcp", "fastmcp")


@dataclass(frozen=True)
class Run:
    """One part of the measurements: when and where it was taken, and what it gave."""

    date: str
    machine: str
    versions: dict[str, str]
    noise: dict[str, float]
    figures: dict[str, dict[str, float]]


def read() -> dict[str, Run]:
    """The kept runs by part."""
    return {part: Run(**run) for part, run in json.loads(FILE.read_text()).items()} if FILE.exists() else {}


def keep(runs: dict[str, Run]) -> None:
    """Put these parts in place of older ones."""
    parts: dict[str, Any] = {part: vars(run) for part, run in (read() | runs).items()}
    FILE.write_text(json.dumps(_rounded(parts), indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def versions(python: str, node: str) -> dict[str, str]:
    """What was measured, and with what."""
    return {"python": python, "node": node, **{package: version(package) for package in PACKAGES}}


def _rounded(value: Any) -> Any:
    """Four digits: more would only make the file change."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
