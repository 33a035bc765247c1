"""The Gemini generateContent API."""

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
)

# The client library of Google also sends a spelling of its own.
_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "parameters")
_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}


class GeminiContent:
    name = "Gemini generateContent"

    def matches(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def side_answer(self, path: str) -> Mapping[str, Any] | None:
        return {"totalTokens": 10} if path.endswith(":countTokens") else None

    def read(self, path: str, body: Mapping[str, Any]) -> Conversation:
        tools = tuple(
            ListedTool(
                tool["name"],
                tool.get("description", ""),
                next((tool[key] for key in _SCHEMAS if tool.get(key)), {}),
            )
            for group in body.get("tools") or ()
            for tool in group.get("functionDeclarations") or ()
        )
        return Conversation(tools, tuple(_messages(body.get("contents", ()))), path.endswith(":streamGenerateContent"))

    def write(self, turn: Turn) -> Mapping[str, Any]:
        if isinstance(turn, Say):
            part: dict[str, Any] = {"text": turn.text}
        else:
            # Without this signature, agents that resend their history expect a real model to reject it.
            part = {"functionCall": {"name": turn.tool.name, "args": turn.arguments}, "thoughtSignature": "c2NyaXB0"}
        content = {"role": "model", "parts": [part]}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "scripted"}

    def stream(self, turn: Turn) -> Sequence[Event]:
        return [Event(self.write(turn))]


def _messages(contents: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    # Calls have no ids here: the nth response belongs to the nth call.
    calls = results = 0
    for content in contents:
        for part in content.get("parts", ()):
            if "functionCall" in part:
                calls += 1
                yield Message("call", call=f"call_{calls}")
            elif "functionResponse" in part:
                results += 1
                response = part["functionResponse"]
                nested = tuple(map(_part, response.get("parts") or ()))
                yield Message("result", (_response_part(response.get("response", {})), *nested), f"call_{results}")
            else:
                yield Message("assistant" if content.get("role") == "model" else "user", (_part(part),))


def _response_part(response: Mapping[str, Any]) -> Part:
    return Part("text", json.dumps(response, ensure_ascii=False))


def _part(part: Mapping[str, Any]) -> Part:
    if "text" in part:
        return Part("text", part["text"])
    if "inlineData" in part:
        return Part("image", part["inlineData"].get("mimeType", "inlineData"))
    return Part("other", json.dumps(part))
