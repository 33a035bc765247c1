"""Collects what a generator tool yields, and sends it to the caller meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from typing import Any

from pegboard.call import Call
from pegboard.execution.connector import ToolConnector, report_step
from pegboard.execution.context import Context
from pegboard.media import Content
from pegboard.schema.plain_json import as_plain
from pegboard.tools.tool_result import unwrap_yielded


async def collect_async(yielded: AsyncGenerator[Any, None], call: Call, context: Context) -> list[Any]:
    """Collect what a generator yields, and send each value on the call's stream or as progress."""
    items = []
    stream = _stream(call, context)
    async with aclosing(yielded):
        async for value in yielded:
            for item in unwrap_yielded(value, call.id):
                if stream is not None:
                    await stream.write(_chunk(item))
                if stream is None or not isinstance(item, bytes):
                    items.append(item)
                if call.token is not None:
                    await report_step(context, _text(item))
    return items


def collect(yielded: Generator[Any, None, None], call: Call, context: Context, left: Sequence[object]) -> list[Any]:
    """The same in a thread; it stops at the next value once the call is cancelled."""
    items = []
    stream = _stream(call, context)
    with closing(yielded):
        for value in yielded:
            if left:
                break
            for item in unwrap_yielded(value, call.id):
                if stream is not None:
                    stream.write(_chunk(item))
                if stream is None or not isinstance(item, bytes):
                    items.append(item)
                if call.token is not None:
                    report_step(context, _text(item))
    return items


def _stream(call: Call, context: Context) -> ToolConnector | None:
    return None if call.stream is None else ToolConnector(context, call.stream)


def _chunk(item: Any) -> Any:
    if isinstance(item, Content):
        item = item.to_block()
    return item if isinstance(item, bytes | str) else as_plain(item)


def _text(item: Any) -> str:
    if isinstance(item, Content):
        return str(item.to_block().get("text", ""))[:200]
    return item if isinstance(item, str) else repr(item)[:200]
