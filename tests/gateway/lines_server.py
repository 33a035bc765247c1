"""A server on stdio that notes each line it reads: `python lines_server.py legacy|modern`.

As in the official SDK for Python, stdin is read as text with universal newlines: a carriage return ends a line as well.
"""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ERA = sys.argv[1]
INFO = {"name": "lines", "version": "1"}
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
MODE = {"type": "object", "properties": {"mode": {"type": "string"}, "text": {"type": "string"}}}
LINE = {"type": "object", "properties": {"price": {}, "many": {}, "text": {}}}
SEEN = {
    "tools": [
        {"name": "echo", "inputSchema": {"type": "object"}},
        {"name": "write", "inputSchema": MODE},
        {"name": "secret", "inputSchema": {"type": "object"}},
        {"name": "wait", "inputSchema": {"type": "object"}},
        {"name": "release", "inputSchema": {"type": "object"}},
        {"name": "pretty", "inputSchema": {"type": "object"}},
        {"name": "pretty_error", "inputSchema": {"type": "object"}},
        {"name": "line", "inputSchema": LINE},
        {"name": "received", "inputSchema": {"type": "object"}},
    ],
    "prompts": [{"name": "review", "arguments": [{"name": "code"}]}],
    "resources": [{"uri": "memo:one", "name": "one"}],
    "resourceTemplates": [{"uriTemplate": "memo:{name}", "name": "any"}],
}
received: list[Any] = []
waiting: list[Any] = []


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def say_pretty(message: dict[str, Any]) -> None:
    """A message with carriage returns between its tokens, and with each member twice."""

    def written(value: Any) -> str:
        if isinstance(value, list):
            return "[\r" + ",\r".join(map(written, value)) + "\r]"
        if isinstance(value, dict):
            members = [f"{json.dumps(name)}\r:\r{written(one)}" for name, one in value.items()]
            return "{\r" + ",\r".join(['"stray":"first"', *members, '"stray":"last"']) + "\r}"
        return json.dumps(value)

    print(written({"jsonrpc": "2.0", **message}), flush=True)


def call(request_id: Any, params: dict[str, Any], line: str) -> dict[str, Any] | None:
    name, arguments = params["name"], params.get("arguments", {})
    if name == "wait":
        waiting.append(request_id)
        return None
    if name == "release":
        while waiting:
            say({"id": waiting.pop(), "result": text("waited")})
    if name.startswith("pretty"):
        token = params.get("_meta", {}).get("progressToken")
        say_pretty({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        data: dict[str, Any] = {"stray": [{"jsonrpc": "2.0", "id": guess, "result": {}} for guess in range(5)]}
        if name == "pretty":
            say_pretty({"id": request_id, "result": {**text("pretty"), "structuredContent": data}})
        else:
            say_pretty({"id": request_id, "error": {"code": -32602, "message": "pretty", "data": data}})
        return None
    if name == "line":
        return text(line)
    if name == "received":
        return text(json.dumps(received))
    return text("the secret" if name == "secret" else json.dumps(arguments))


def answer(request_id: Any, method: str, params: dict[str, Any], line: str) -> dict[str, Any] | None:
    match method:
        case "initialize" if ERA == "legacy":
            return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}
        case "server/discover" if ERA == "modern":
            return {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": CAPABILITIES}
        case "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list":
            member = "resourceTemplates" if "templates" in method else method.partition("/")[0]
            return {member: SEEN[member]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "Review"}}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "read"}]}
        case "completion/complete":
            return {"completion": {"values": []}}
        case "tools/call":
            return call(request_id, params, line)
    raise KeyError(method)


def serve(line: str) -> None:
    try:
        message = json.loads(line)
        method, params = message["method"], message.get("params", {})
    except (ValueError, TypeError, KeyError):
        received.append(["unreadable", line])
        return
    request_id = message.get("id")
    received.append([method, request_id, params])
    if request_id is None:
        return
    try:
        result = answer(request_id, method, params, line)
    except KeyError:
        say({"id": request_id, "error": {"code": -32601, "message": "no such method"}})
    else:
        if result is not None:
            say({"id": request_id, "result": result})


for each in TextIOWrapper(sys.stdin.buffer, encoding="utf-8"):
    serve(each)
