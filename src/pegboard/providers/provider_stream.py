"""Assembles the streamed events of a model provider to the response that it sends without streaming."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pegboard.call import Json
from pegboard.protocol.json_values import as_list, as_object, objects_in

Event = Mapping[str, Json]


def assemble(provider: str, payload: Json) -> Json:
    """The whole response if the payload is a list of events of a stream; any other payload as it is."""
    if not isinstance(payload, list) or not payload:
        return payload
    is_event, gather = _STREAMS[provider]
    events = list(objects_in(payload))
    return gather(events) if any(map(is_event, events)) else payload


def _gather_openai(events: Sequence[Event]) -> Json:
    calls: dict[Json, dict[str, Json]] = {}
    usage: Json = None
    for event in events:
        usage = event.get("usage") or usage
        for choice in objects_in(event.get("choices")):
            delta = as_object(choice.get("delta"))
            if choice.get("index", 0) != 0:
                continue
            for piece in objects_in(delta.get("tool_calls")):
                call = calls.setdefault(piece.get("index", len(calls)), {"id": "", "name": "", "arguments": ""})
                function = as_object(piece.get("function"))
                call["id"] = piece.get("id") or call["id"]
                call["name"] = function.get("name") or call["name"]
                call["arguments"] = f"{call['arguments']}{function.get('arguments') or ''}"
    listed = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in calls.values()
    ]
    return {"choices": [{"message": {"role": "assistant", "tool_calls": listed}}], "usage": usage}


def _gather_openai_responses(events: Sequence[Event]) -> Json:
    items: dict[Json, dict[str, Json]] = {}
    for event in events:
        match event.get("type"):
            case "response.completed" | "response.incomplete":
                return as_object(event.get("response"))
            case "response.output_item.added" | "response.output_item.done":
                items[event.get("output_index")] = dict(as_object(event.get("item")))
            case "response.function_call_arguments.delta":
                item = items.setdefault(event.get("output_index"), {})
                item["arguments"] = f"{item.get('arguments') or ''}{event.get('delta') or ''}"
            case "response.function_call_arguments.done":
                items.setdefault(event.get("output_index"), {})["arguments"] = event.get("arguments")
    return {"output": list(items.values())}


def _gather_anthropic(events: Sequence[Event]) -> Json:
    blocks: dict[Json, dict[str, Json]] = {}
    pieces: dict[Json, list[str]] = {}
    usage: dict[str, Json] = {}
    for event in events:
        index = event.get("index")
        match event.get("type"):
            case "message_start":
                usage.update(as_object(as_object(event.get("message")).get("usage")))
            case "message_delta":
                usage.update(
                    {name: count for name, count in as_object(event.get("usage")).items() if count is not None}
                )
            case "content_block_start":
                blocks[index] = dict(as_object(event.get("content_block")))
            case "content_block_delta":
                piece = as_object(event.get("delta")).get("partial_json")
                if isinstance(piece, str):
                    pieces.setdefault(index, []).append(piece)
    content = [
        {**block, "input": "".join(pieces[index])} if index in pieces else block for index, block in blocks.items()
    ]
    return {"role": "assistant", "content": content, "usage": usage}


def _gather_gemini(events: Sequence[Event]) -> Json:
    """Its events are whole responses, with some of the parts each."""
    parts: list[Json] = []
    usage: Json = None
    for event in events:
        usage = event.get("usageMetadata") or event.get("usage_metadata") or usage
        for candidate in list(objects_in(event.get("candidates")))[:1]:
            parts += as_list(as_object(candidate.get("content")).get("parts"))
    return {"candidates": [{"content": {"role": "model", "parts": parts}}], "usageMetadata": usage}


def _gather_ollama(events: Sequence[Event]) -> Json:
    """Its events are whole messages; the last one has the counts."""
    calls = [call for event in events for call in as_list(as_object(event.get("message")).get("tool_calls"))]
    return {**events[-1], "message": {"role": "assistant", "tool_calls": calls}}


_STREAMS: Mapping[str, tuple[Callable[[Event], bool], Callable[[Sequence[Event]], Json]]] = {
    "openai": (lambda event: "choices" in event, _gather_openai),
    "openai-responses": (lambda event: str(event.get("type")).startswith("response."), _gather_openai_responses),
    "anthropic": (lambda event: str(event.get("type")).startswith(("content_block_", "message_")), _gather_anthropic),
    "gemini": (lambda event: "candidates" in event, _gather_gemini),
    "ollama": (lambda event: "message" in event, _gather_ollama),
}
