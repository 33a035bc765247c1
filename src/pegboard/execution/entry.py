"""What a request has to bring along before a tool, or any hook around it, hears of it."""

from __future__ import annotations

from pegboard.call import Call, Handler, Reply
from pegboard.protocol.headers import check_params
from pegboard.tools.headers import mirrored
from pegboard.tools.tool import Tool


def enter(tool: Tool, inner: Handler) -> Handler:
    """The Handler of a tool behind what it demands of its requests; the same Handler where that is nothing."""
    mirrors = mirrored(tool.input_schema)
    return _mirroring(mirrors, inner) if mirrors else inner


def _mirroring(mirrors: dict[str, tuple[str, ...]], inner: Handler) -> Handler:
    """Compare headers with arguments as sent: what stands between us and the client saw the headers, and no repair."""

    async def compare(call: Call) -> Reply:
        if call.headers is not None:
            check_params(call.headers, mirrors, call.arguments)
        return await inner(call)

    return compare
