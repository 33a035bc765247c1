"""Adds insights and suggested next actions to a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegboard.call import Json
from pegboard.next_action import NextAction
from pegboard.protocol.content import note_block
from pegboard.protocol.json_values import as_list, as_object
from pegboard.schema.plain_json import as_plain

INSIGHTS: Final = "dev.pegboard/insights"
NEXT_ACTIONS: Final = "dev.pegboard/nextActions"


def add_suggestions(
    result: Mapping[str, Json], insights: Sequence[str], actions: Sequence[NextAction]
) -> dict[str, Json]:
    """The result with insights and actions as a note for the model, and in `_meta` for programs."""
    lines = [f"- {insight}" for insight in insights]
    if actions:
        lines.append(describe_actions(actions))
    meta = dict(as_object(result.get("_meta")))
    if insights:
        meta[INSIGHTS] = list(insights)
    if actions:
        meta[NEXT_ACTIONS] = as_plain([action.as_json() for action in actions])
    note = note_block("suggestions", "\n".join(lines), beside_structured="structuredContent" in result)
    content = [*as_list(result.get("content")), note]
    return {**result, "content": content, "_meta": meta}


def describe_actions(actions: Sequence[NextAction]) -> str:
    """The lines that list the actions for the model."""
    return "\n".join(["What to do next:", *(f"- {action}" for action in actions)])
