"""A server on stdio that does what no server should: at its start as it is told, later as it is called.

`python bad_server.py HOW WELL`: while there is no file WELL it misbehaves as HOW says; then it is a good server of the
legacy era.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
WELL = Path(sys.argv[2]) if len(sys.argv) > 2 else None
BAD = HOW if HOW != "well" and (WELL is None or not WELL.exists()) else ""

cancelled: list[Any] = []
asked: dict[str, Any] = {}
grown: list[str] = []
told: list[dict[str, Any]] = []
sulking = threading.Event()


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(call: Any, said: str) -> None:
    say({"id": call, "result": {"content": [{"type": "text", "text": said}]}})


def notify(method: str, **params: Any) -> None:
    say({"method": f"notifications/{method}", "params": params})


def ask(call: Any, method: str, params: dict[str, Any]) -> None:
    key = f"ask-{call}"
    asked[key] = call
    say({"id": key, "method": method, "params": params})


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


# -- what it does when it is called -------------------------------------------------------------------------------------


def late(call: Any, arguments: dict[str, Any]) -> None:
    """Answers when there is the file."""

    def answer() -> None:
        while not Path(arguments["file"]).exists():
            time.sleep(0.01)
        text(call, "late")

    threading.Thread(target=answer, daemon=True).start()


def twice(call: Any, _: dict[str, Any]) -> None:
    text(call, "first")
    text(call, "second")


def huge(call: Any, _: dict[str, Any]) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % call)
    for _megabyte in range(50):
        write(b"x" * (1 << 20))
    write(b'"}]}}\n')


def garbled(call: Any, _: dict[str, Any]) -> None:
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}\n' % call)


def flood(call: Any, _: dict[str, Any]) -> None:
    for _line in range(2000):
        sys.stderr.write("x" * 1000 + "\n")
        write(b"this is no message " * 50 + b"\n")
    text(call, "flooded")


def confirm(call: Any, _: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {}}
    ask(call, "elicitation/create", {"message": "Sure?", "requestedSchema": schema})


def climb(call: Any, arguments: dict[str, Any]) -> None:
    for step in range(int(arguments["steps"])):
        notify("progress", progressToken=arguments["token"], progress=step)
        time.sleep(float(arguments["seconds"]))
    text(call, "up")


def grow(call: Any, arguments: dict[str, Any]) -> None:
    grown.append(str(arguments["name"]))
    for _ in range(int(arguments.get("times", 1))):
        notify("tools/list_changed")
    text(call, "grown")


def mute(call: Any, _: dict[str, Any]) -> None:
    text(call, "mute from now on")
    os.close(1)


def deaf(call: Any, _: dict[str, Any]) -> None:
    text(call, "deaf from now on")
    os.close(0)
    time.sleep(600)


def refuse(call: Any, _: dict[str, Any]) -> None:
    say({"id": call, "error": {"code": -32050, "message": "the quota is used up"}})


def log(call: Any, _: dict[str, Any]) -> None:
    notify("message", level="warning", data="mind the\ngap")
    text(call, "logged")


TOOLS: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "echo": lambda call, arguments: text(call, str(arguments.get("text", ""))),
    "never": lambda _call, _arguments: None,
    "late": late,
    "twice": twice,
    "stranger": lambda _call, _arguments: text(999_999, "to nobody"),
    "huge": huge,
    "garbled": garbled,
    "null": lambda call, _: say({"id": call, "result": None}),
    "die": lambda _call, _arguments: os._exit(3),
    "flood": flood,
    "ask": confirm,
    "sample": lambda call, _: ask(call, "sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "roots": lambda call, _: ask(call, "roots/list", {}),
    "climb": climb,
    "grow": grow,
    "pid": lambda call, _: text(call, str(os.getpid())),
    "seen": lambda call, _: text(call, json.dumps({"cancelled": cancelled, "told": told, "env": dict(os.environ)})),
    "log": log,
    "mute": mute,
    "deaf": deaf,
    "refuse": refuse,
    "sulk": lambda _call, _arguments: sulking.set(),
}

LIES: list[Any] = [
    {"name": "no_schema"},
    {"name": "a_string", "inputSchema": "none"},
    {"name": "an_array", "inputSchema": {"type": "array"}},
    tool(""),
    tool("bell\x07"),
    {"name": 7, "inputSchema": {"type": "object"}},
    {**tool("described"), "description": ["no text"]},
    tool("echo"),
    "no tool at all",
    None,
    tool("x" * 5000),
    {"name": "big", "inputSchema": {"type": "object", "description": "x" * (1 << 20)}},
]

# Definitions that look well and are not.
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
# Each definition applies the next one twice: what looks small costs 2^28 steps a value.
DOUBLING: dict[str, Any] = {
    "properties": {"a": {"$ref": "#/$defs/D0"}},
    "$defs": {
        **{f"D{at}": {"allOf": [{"$ref": f"#/$defs/D{at + 1}"}] * 2} for at in range(28)},
        "D28": {"type": "string"},
    },
}
CROOKED: list[Any] = [
    {**tool("no_such_type"), "inputSchema": {"type": "object", "properties": {"a": {"type": "text"}}}},
    {**tool("no_such_pattern"), "inputSchema": {"type": "object", "properties": {"a": {"pattern": "("}}}},
    {**tool("doubling"), "inputSchema": {**DOUBLING, "type": "object"}},
    {**tool("doubled"), "outputSchema": DOUBLING},
    {**tool("promise"), "outputSchema": NUMBERS},
    {**tool("vague"), "outputSchema": {"type": "no such type"}},
    tool("untyped"),
]


def promise(call: Any, _: dict[str, Any]) -> None:
    say({"id": call, "result": {"content": [], "structuredContent": {"n": "a secret of the server"}}})


TOOLS.update(
    {
        "promise": promise,
        "doubling": lambda call, _: text(call, "never called"),
        "doubled": lambda call, _: say({"id": call, "result": {"content": [], "structuredContent": {"a": "x"}}}),
        "vague": lambda call, _: say({"id": call, "result": {"content": [], "structuredContent": {"any": 1}}}),
        "untyped": lambda call, _: say({"id": call, "result": {"content": "no list", "isError": "perhaps"}}),
    }
)


# -- what it does when it is spoken to ----------------------------------------------------------------------------------


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    told.append(params)
    capabilities = {"tools": {"listChanged": True}, "logging": {}}
    info = {"name": "bad", "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}


def list_tools(params: dict[str, Any]) -> dict[str, Any]:
    if BAD == "floods":
        page = int(params.get("cursor", "0"))
        return {"tools": [tool(f"t{page}_{n}") for n in range(1000)], "nextCursor": str(page + 1)}
    if BAD == "crooked":
        return {"tools": [tool("echo"), *CROOKED]}
    plain = [name for name in TOOLS if name not in ("promise", "vague", "untyped", "doubling", "doubled")]
    return {"tools": [*map(tool, [*plain, *grown]), *(LIES if BAD == "lies" else ())]}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": initialize,
    "tools/list": list_tools,
    "ping": lambda _: {},
    "logging/setLevel": lambda _: {},
}


def take(message: dict[str, Any]) -> None:
    method, request, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        answer = message.get("result") or {"error": message.get("error")}
        text(asked.pop(request), json.dumps(answer))
    elif method == "notifications/cancelled":
        cancelled.append(params.get("requestId"))
    elif method == "tools/call":
        token = (params.get("_meta") or {}).get("progressToken")
        TOOLS[params["name"]](request, {"token": token, **(params.get("arguments") or {})})
    elif request is not None and method in ANSWERS:
        if not (method == "tools/list" and BAD == "never_lists"):
            say({"id": request, "result": ANSWERS[method](params)})
    elif request is not None:
        say({"id": request, "error": {"code": -32601, "message": "no such method"}})


if BAD == "slow":
    time.sleep(1.5)
if BAD == "dies":
    sys.exit("I would rather not")
while line := sys.stdin.readline():
    if not sulking.is_set() and BAD != "silent":
        take(json.loads(line))
