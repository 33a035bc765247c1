"""Checks the messages of a sampling request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.protocol.json_values import as_object, objects_in

_BALANCE = "each tool use needs one result with its id, in the next message"


def check_sampling_messages(messages: Sequence[Json]) -> None:
    """Reject messages without a role or content, and tool uses and results that do not match."""
    used: set[Json] = set()
    for number, message in enumerate(messages):
        role, blocks = _parts(message, number)
        results = [block.get("toolUseId") for block in blocks if block.get("type") == "tool_result"]
        if results and (role != "user" or len(results) != len(blocks)):
            raise _problem(number, "tool results must be alone, in a user message")
        if len(set(results)) != len(results) or set(results) != used:
            raise _problem(number, _BALANCE)
        used = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
        if used and role != "assistant":
            raise _problem(number, "only the assistant uses tools")
    if used:
        raise _problem(len(messages) - 1, _BALANCE)


def _parts(message: Json, number: int) -> tuple[str, Sequence[Mapping[str, Json]]]:
    given = as_object(message)
    role, content = given.get("role"), given.get("content")
    listed: Sequence[Json] = content if isinstance(content, list | tuple) else [content]
    blocks = [block for block in objects_in(listed) if "type" in block]
    if role not in ("user", "assistant") or len(blocks) != len(listed):
        raise _problem(number, 'expected text, content, or {"role": "user" or "assistant", "content": …}')
    return str(role), blocks


def _problem(number: int, rule: str) -> DeclarationError:
    return DeclarationError(f"sampling message {number + 1}: {rule}")
