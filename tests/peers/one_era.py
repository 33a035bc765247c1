"""Serves `examples/everything.py` in one era: what is of the other it refuses, as a server does that never heard of it.

python one_era.py legacy|modern            on stdio
python one_era.py legacy|modern PORT       over HTTP
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
from msgspec import Raw

from pegboard import Board
from pegboard.call import Call, Done, Handler, Reply
from pegboard.loading import load_board
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import LEGACY, MODERN
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.http_types import Answer, EndpointResult, Head, Sink, Upgrade
from pegboard.server.stdio.stdio_server import StdioServer, claim_pipes
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint

EVERYTHING = Path(__file__).resolve().parent.parent.parent / "examples" / "everything.py"
ONLY = {"legacy": LEGACY, "modern": frozenset({MODERN})}


class _Message(msgspec.Struct):
    method: str = ""
    id: Raw = Raw(b"null")
    params: dict[str, Raw] = {}


def of_one_era(handler: Handler, era: str) -> Handler:
    """The handler, which says of itself that it speaks this era only."""

    async def handle(call: Call) -> Reply:
        reply = await handler(call)
        if call.method != "server/discover" or not isinstance(reply, Done):
            return reply
        value = getattr(reply.result, "value", reply.result)
        return Done({**value, "supportedVersions": sorted(ONLY[era], reverse=True)})

    return handle


class OneEraDoor(StdioServer):
    era = "modern"

    def take(self, message: bytes | memoryview) -> None:
        line = bytes(message).strip()
        if not line:
            return
        read = msgspec.json.decode(line, type=_Message)
        modern = PREFIX + "protocolVersion" in msgspec.json.decode(read.params.get("_meta", b"{}"))
        strange = read.method and not read.method.startswith("notifications/") and modern != (self.era == "modern")
        if strange:
            self.line.write(_error(read.id, -32601 if modern else -32022))
        else:
            super().take(line)


class LegacyOnly:
    """An endpoint that has never heard of the newest revision."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self.drain = endpoint.drain

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        stated = head.headers.get(b"mcp-protocol-version", b"")
        if stated and stated.decode() not in LEGACY:
            return Answer(400, _error(Raw(b"null"), -32000))
        return self._endpoint.accept(head, body, sink)


def _error(request_id: Raw, code: int) -> bytes:
    message = {-32022: "Unsupported protocol version", -32601: "Method not found"}.get(code, "Bad Request")
    error: dict[str, object] = {"code": code, "message": message}
    if code == -32022:
        error["data"] = {"supported": [MODERN], "requested": "2025-11-25"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


async def serve_http(board: Board, era: str, port: int) -> None:
    endpoint = HttpEndpoint(
        of_one_era(board.handler, era),
        board.info,
        limits=board.limits,
        guard=Guard(),
        legacy="refused" if era == "modern" else "sessions",
    )
    await listen(LegacyOnly(endpoint) if era == "legacy" else endpoint, board.limits, port=port)
    await asyncio.Event().wait()


async def serve_pipes(board: Board, era: str) -> None:
    loop = asyncio.get_running_loop()
    source, target = claim_pipes()
    door = OneEraDoor(of_one_era(board.handler, era), board.info, board.limits, loop)
    door.era = era
    await loop.connect_write_pipe(lambda: door.line, os.fdopen(target, "wb", buffering=0))
    await loop.connect_read_pipe(lambda: door, os.fdopen(source, "rb", buffering=0))
    await door.closed


async def main(era: str, *port: str) -> None:
    board = load_board(str(EVERYTHING))
    await board.start()
    await (serve_http(board, era, int(port[0])) if port else serve_pipes(board, era))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
