"""A server without any framework that says what others have said: `replayed.py FILE` lists the tools in it, over stdio.

Any of them answers with its own name. It starts in no time, so that twenty of them tell of the gateway and not of themselves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = json.loads(Path(sys.argv[1]).read_text())
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "replayed", "version": "1"},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {"result": ABOUT}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": params["name"]}], "isError": params["name"] == ""}}
        case _:
            return {"error": {"code": -32601, "message": f"no {method}"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        told = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **told}), flush=True)
