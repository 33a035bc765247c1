"""The Anthropic Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_bench.model_server.conversation import (
    CallTool,
    Conversation,
    Event,
    ListedTool,
    Message,
    Part,
    Say,
    Turn,
    id_of,
)

_USAGE = {"input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class AnthropicMessages:
    name = "Anthropic Messages"

    def matches(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def side_answer(self, path: str) -> Mapping[str, Any] | None:
        return {"input_tokens": 10} if path.endswith("/count_tokens") else None

    def read(self, path: str, body: Mapping[str, Any]) -> Conversation:
        tools = tuple(
            ListedTool(tool["name"], tool.get("description", ""), tool["input_schema"])
            for tool in body.get("tools", ())
            if "input_schema" in tool
        )
        messages = tuple(message for given in body.get("messages", ()) for message in _messages(given))
        return Conversation(tools, messages, bool(body.get("stream")))

    def write(self, turn: Turn) -> Mapping[str, Any]:
        reason = "tool_use" if isinstance(turn, CallTool) else "end_turn"
        return {**_head(turn), "content": [_block(turn)], "stop_reason": reason}

    def stream(self, turn: Turn) -> Sequence[Event]:
        block = _block(turn)
        if isinstance(turn, Say):
            opening, delta = {**block, "text": ""}, {"type": "text_delta", "text": turn.text}
        else:
            opening = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        reason = "tool_use" if isinstance(turn, CallTool) else "end_turn"
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**_head(turn), "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": opening},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": _USAGE},
            {"type": "message_stop"},
        ]
        return [Event(event, event["type"]) for event in events]


def _head(turn: Turn) -> dict[str, Any]:
    return {
        "id": f"msg_{id_of(turn)}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _block(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Say):
        return {"type": "text", "text": turn.text}
    return {"type": "tool_use", "id": turn.id, "name": turn.tool.name, "input": turn.arguments}


def _messages(given: Mapping[str, Any]) -> Iterator[Message]:
    role = "assistant" if given["role"] == "assistant" else "user"
    content = given["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        match block["type"]:
            case "tool_use":
                yield Message("call", call=block["id"])
            case "tool_result":
                inner = block.get("content") or []
                blocks = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
                yield Message("result", tuple(map(_part, blocks)), block["tool_use_id"], block.get("is_error"))
            case _:
                yield Message("assistant" if role == "assistant" else "user", (_part(block),))


def _part(block: Mapping[str, Any]) -> Part:
    match block["type"]:
        case "text":
            return Part("text", block["text"])
        case "image":
            source = block["source"]
            return Part("image", str(source.get("media_type", source["type"])))
    return Part("other", json.dumps(block))
