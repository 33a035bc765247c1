"""A bare ASGI application that does the work of the measured calls and nothing else: `raw_asgi.py http PORT TOOLS`.

It decodes with msgspec, calls the function and writes a correct answer. It checks nothing a correct client would not
send wrong: no Host or Origin, no versions, no sessions, no repeated members, no limits. It is the yardstick, not a server.
"""

import sys
from typing import Any

import msgspec
import uvicorn
from msgspec import UNSET, Struct, UnsetType, field

PREFIX = "io.modelcontextprotocol/"
JSON = [(b"content-type", b"application/json")]
STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
INFO = {"name": "bench", "version": "1.0.0"}
MODERN = {"resultType": "complete", "_meta": {PREFIX + "serverInfo": INFO}}


class Meta(Struct):
    version: str | UnsetType = field(name=PREFIX + "protocolVersion", default=UNSET)
    token: str | int | UnsetType = field(name="progressToken", default=UNSET)


class Params(Struct):
    name: str = ""
    arguments: dict[str, Any] = {}
    meta: Meta = field(name="_meta", default_factory=Meta)


class Message(Struct):
    jsonrpc: str
    method: str
    id: str | int | None = None
    params: Params = field(default_factory=Params)


async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


NUMBER = {"type": "number"}
SCHEMA = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
NAMES = ["add", "steps", *(f"add_{number}" for number in range(int(sys.argv[3]) - 2))]
LISTED = [
    {"name": name, "description": "Adds two numbers.", "inputSchema": SCHEMA, "outputSchema": NUMBER} for name in NAMES
]

decode = msgspec.json.Decoder(Message).decode
encode = msgspec.json.Encoder().encode


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    event = await receive()
    body = event["body"]
    while event["more_body"]:
        event = await receive()
        body += event["body"]
    message = decode(body)
    params = message.params
    modern = params.meta.version is not UNSET
    match message.method:
        case "tools/call" if params.name == "add":
            value = await add(**params.arguments)
            structured: Any = value if modern else {"result": value}
            result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": structured}
        case "tools/call":
            await stream(message, send)
            return
        case "tools/list":
            result = {"tools": LISTED}
        case _:
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
    if modern:
        result = {**MODERN, **result}
    answer = encode({"jsonrpc": "2.0", "id": message.id, "result": result})
    headers = [*JSON, (b"content-length", str(len(answer)).encode())]
    if not modern:
        headers.append((b"mcp-session-id", b"0" * 32))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def stream(message: Message, send: Any) -> None:
    count = message.params.arguments["count"]
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    for step in range(1, count + 1):
        told = {"progressToken": message.params.meta.token, "progress": step, "total": count, "message": f"step {step}"}
        notice = encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        await send({"type": "http.response.body", "body": b"data: %b\n\n" % notice, "more_body": True})
    result = {**MODERN, "content": [{"type": "text", "text": str(count)}], "structuredContent": count}
    answer = encode({"jsonrpc": "2.0", "id": message.id, "result": result})
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % answer})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", log_level="error", access_log=False)
