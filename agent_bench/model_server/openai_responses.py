"""The OpenAI Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_bench.model_server.conversation import (
    Conversation,
    Event,
    ListedTool,
    Message,
    Part,
    Say,
    Turn,
    id_of,
)


class OpenAiResponses:
    name = "OpenAI Responses"

    def matches(self, path: str) -> bool:
        return path.endswith("/responses")

    def side_answer(self, path: str) -> Mapping[str, Any] | None:
        return None

    def read(self, path: str, body: Mapping[str, Any]) -> Conversation:
        given = body.get("input", ())
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        messages = tuple(_message(item) for item in given)
        return Conversation(tuple(_tools(body.get("tools") or ())), messages, bool(body.get("stream")))

    def write(self, turn: Turn) -> Mapping[str, Any]:
        return _response(id_of(turn), "completed", [_item(turn)])

    def stream(self, turn: Turn) -> Sequence[Event]:
        name, item = id_of(turn), _item(turn)
        place = {"output_index": 0, "item_id": item["id"]}
        opened: dict[str, Any] = {**item, "status": "in_progress"}
        if isinstance(turn, Say):
            opened["content"] = []
            part = {"type": "output_text", "text": "", "annotations": []}
            middle: list[dict[str, Any]] = [
                {"type": "response.content_part.added", **place, "content_index": 0, "part": part},
                {"type": "response.output_text.delta", **place, "content_index": 0, "delta": turn.text},
                {"type": "response.output_text.done", **place, "content_index": 0, "text": turn.text},
                {
                    "type": "response.content_part.done",
                    **place,
                    "content_index": 0,
                    "part": {**part, "text": turn.text},
                },
            ]
        else:
            opened["arguments"] = ""
            arguments = item["arguments"]
            middle = [
                {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
                {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
            ]
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": _response(name, "in_progress", [])},
            {"type": "response.output_item.added", "output_index": 0, "item": opened},
            *middle,
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": _response(name, "completed", [item])},
        ]
        return [Event({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]


def _tools(given: Sequence[Mapping[str, Any]], namespace: str | None = None) -> Iterator[ListedTool]:
    for tool in given:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools", ()), tool["name"])
        elif tool.get("type") == "function":
            yield ListedTool(tool["name"], tool.get("description") or "", tool.get("parameters") or {}, namespace)


def _item(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Say):
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        return {
            "id": f"msg_{id_of(turn)}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    call = {
        "id": f"fc_{turn.id}",
        "type": "function_call",
        "status": "completed",
        "call_id": turn.id,
        "name": turn.tool.name,
        "arguments": json.dumps(turn.arguments),
    }
    return call if turn.tool.namespace is None else {**call, "namespace": turn.tool.namespace}


def _response(name: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "status": status,
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20,
        },
    }


def _message(item: Mapping[str, Any]) -> Message:
    match item.get("type", "message"):
        case "function_call":
            return Message("call", call=item["call_id"])
        case "function_call_output":
            return Message("result", _parts(item["output"]), item["call_id"])
        case "message":
            role = item.get("role", "user")
            parts = _parts(item["content"])
            return Message("assistant" if role == "assistant" else "user" if role == "user" else "system", parts)
    return Message("system", (Part("other", json.dumps(item)),))


def _parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Part("text", content),)
    return tuple(map(_part, content))


def _part(part: Mapping[str, Any]) -> Part:
    match part.get("type"):
        case "input_text" | "output_text":
            return Part("text", part["text"])
        case "input_image":
            address = str(part.get("image_url", ""))
            return Part("image", address[5:].partition(";")[0] if address.startswith("data:") else address)
    return Part("other", json.dumps(part))
