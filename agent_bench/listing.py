"""Compares the tools that a model is offered with their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_bench.bench_board import board
from agent_bench.model_server.conversation import ListedTool


def describe_listing(listed: Sequence[ListedTool]) -> str:
    """One sentence: how many of our tools arrived, and what happened to their descriptions and schemas."""
    ours = {tool.name: tool for tool in board.tools}
    found = {name: tool for tool in listed for name in ours if tool.name.endswith(name)}
    if not found:
        names = ", ".join(tool.name for tool in listed if "tool" in tool.name)
        return f"none of the tools; meta-tools: {names}" if names else "none"
    lost: set[str] = set()
    added: set[str] = set()
    descriptions = 0
    for name, tool in found.items():
        descriptions += str(ours[name].description).strip() in tool.description
        before, after = set(_keywords(ours[name].input_schema)), set(_keywords(tool.schema))
        lost |= before - after
        added |= after - before
    said = [f"{len(found)} of {len(ours)} tools, {descriptions} descriptions"]
    said.append("schemas unchanged" if not lost and not added else "schemas")
    if lost:
        said.append(f"without {', '.join(f'`{word}`' for word in sorted(lost))}")
    if added:
        said.append(f"with {', '.join(f'`{word}`' for word in sorted(added))} added")
    return f"{said[0]}, {' '.join(said[1:])}"


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for word, inner in schema.items():
            if word == "properties" and isinstance(inner, Mapping):
                if inner:
                    yield word
                for one in inner.values():
                    yield from _keywords(one)
            else:
                yield word
                if word not in ("enum", "default", "const", "examples"):
                    yield from _keywords(inner)
    elif isinstance(schema, list):
        for one in schema:
            yield from _keywords(one)
