"""Writes the table of docs/agents.md that the console shows beside a call: which parts of a result each agent's model sees.

`.venv/bin/python scripts/agents_table.py` after `make agents`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "agents.md"
MODULE = ROOT / "src" / "pegboard" / "console" / "static" / "agents.js"

PARTS = {
    "text": "text block, no structured content",
    "textBeside": "text block after, beside structured content",
    "embedded": "embedded resource beside structured content",
    "link": "a resource link",
    "image": "text and an image",
    "structured": "structured output",
    "failed": "a tool error",
    "refused": "a JSON-RPC error",
}


def tables(page: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The tables of a page: the heads and the rows of each."""
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()]
        yield head, rows


def read_agents(page: str) -> list[dict[str, str]]:
    """For each agent, what becomes of each part of a result: yes, partly, no or ended."""
    found: dict[str, dict[str, str]] = {}
    for head, rows in tables(page):
        if head[0]:
            continue
        for name, *cells in rows:
            by_head = dict(zip(head[1:], cells, strict=True))
            parts = {part: by_head[text].rstrip("*") for part, text in PARTS.items() if text in by_head}
            found.setdefault(name, {"agent": name}).update(parts)
    return [agent for agent in found.values() if len(agent) == len(PARTS) + 1]


def write_module(agents: list[dict[str, str]]) -> str:
    lines = ",\n".join(f"  {json.dumps(agent)}" for agent in agents)
    return (
        "// Which parts of a result the model of each agent sees: from docs/agents.md, by scripts/agents_table.py.\n"
        f"export const AGENTS = [\n{lines},\n];\n"
    )


if __name__ == "__main__":
    MODULE.write_text(write_module(read_agents(PAGE.read_text())))
