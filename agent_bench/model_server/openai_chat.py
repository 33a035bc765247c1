"""The OpenAI chat-completions API, which most frameworks and local model servers speak."""

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

_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


class OpenAiChat:
    name = "OpenAI chat completions"

    def matches(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def side_answer(self, path: str) -> Mapping[str, Any] | None:
        return None

    def read(self, path: str, body: Mapping[str, Any]) -> Conversation:
        tools = tuple(
            ListedTool(
                tool["function"]["name"],
                tool["function"].get("description") or "",
                tool["function"].get("parameters") or {},
            )
            for tool in body.get("tools") or ()
            if tool.get("type") == "function"
        )
        messages = tuple(message for given in body.get("messages", ()) for message in _messages(given))
        return Conversation(tools, messages, bool(body.get("stream")))

    def write(self, turn: Turn) -> Mapping[str, Any]:
        message = {"role": "assistant", **_delta(turn)}
        message.setdefault("content", None)
        choice = {"index": 0, "message": message, "finish_reason": _reason(turn), "logprobs": None}
        return {**_head("chat.completion", id_of(turn)), "choices": [choice], "usage": _USAGE}

    def stream(self, turn: Turn) -> Sequence[Event]:
        head = _head("chat.completion.chunk", id_of(turn))

        def chunk(delta: dict[str, Any], reason: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
            return Event({**head, "choices": [choice]})

        delta = _delta(turn)
        for call in delta.get("tool_calls", ()):
            call["index"] = 0
        return [
            chunk({"role": "assistant", "content": ""}),
            chunk(delta),
            chunk({}, _reason(turn)),
            Event({**head, "choices": [], "usage": _USAGE}),
            Event("[DONE]"),
        ]


def _head(kind: str, name: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{name}", "object": kind, "created": 0, "model": "scripted"}


def _reason(turn: Turn) -> str:
    return "tool_calls" if isinstance(turn, CallTool) else "stop"


def _delta(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Say):
        return {"content": turn.text}
    function = {"name": turn.tool.name, "arguments": json.dumps(turn.arguments)}
    return {"tool_calls": [{"id": turn.id, "type": "function", "function": function}]}


def _messages(given: Mapping[str, Any]) -> Iterator[Message]:
    match given["role"]:
        case "tool":
            yield Message("result", _parts(given.get("content")), given.get("tool_call_id"))
        case "assistant":
            if given.get("content"):
                yield Message("assistant", _parts(given["content"]))
            for call in given.get("tool_calls") or ():
                yield Message("call", call=call["id"])
        case "user":
            yield Message("user", _parts(given.get("content")))
        case _:
            yield Message("system", _parts(given.get("content")))


def _parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Part("text", content),)
    return tuple(map(_part, content or ()))


def _part(part: Mapping[str, Any]) -> Part:
    match part.get("type"):
        case "text":
            return Part("text", part["text"])
        case "image_url":
            address = str(part["image_url"]["url"])
            return Part("image", address[5:].partition(";")[0] if address.startswith("data:") else address)
    return Part("other", json.dumps(part))
