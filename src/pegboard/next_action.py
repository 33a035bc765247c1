"""A tool call that a result or an error suggests to the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class NextAction:
    """A tool to call next.

    tool: the name of the tool.
    arguments: the arguments to call it with, as far as they are known.
    reason: what the call is good for.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        # Such a text must not fail, whatever the arguments contain.
        arguments = f" {json.dumps(self.arguments, default=str, ensure_ascii=False)}" if self.arguments else ""
        return f"{self.tool}{arguments}{f': {self.reason}' if self.reason else ''}"

    def as_json(self) -> dict[str, Any]:
        """The action as it is sent, without what is empty."""
        parts = {"tool": self.tool, "arguments": dict(self.arguments), "reason": self.reason}
        return {name: value for name, value in parts.items() if value}


NextActions: TypeAlias = str | NextAction | Iterable[str | NextAction]


def read_actions(given: NextActions) -> tuple[NextAction, ...]:
    """One or several actions; a string is the name of a tool."""
    listed = (given,) if isinstance(given, str | NextAction) else tuple(given)
    return tuple(action if isinstance(action, NextAction) else NextAction(str(action)) for action in listed)
