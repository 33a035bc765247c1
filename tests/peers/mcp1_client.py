"""Judges a server with the official Python client, 1.x, which knows only the handshake."""

from __future__ import annotations

from contextlib import AsyncExitStack

from judgement import Question, Verdict, answer
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def judge(asked: Question) -> Verdict:
    async with AsyncExitStack() as stack:
        if asked.url and asked.mode == "sse":
            read, write = await stack.enter_async_context(sse_client(asked.url))
        elif asked.url:
            read, write, _ = await stack.enter_async_context(streamable_http_client(asked.url))
        else:
            command = StdioServerParameters(command=asked.command[0], args=asked.command[1:])
            read, write = await stack.enter_async_context(stdio_client(command))
        session = await stack.enter_async_context(ClientSession(read, write))
        opened = await session.initialize()
        listed = await session.list_tools()
        verdict = Verdict(
            server={"name": opened.serverInfo.name, "version": opened.serverInfo.version},
            protocol=str(opened.protocolVersion),
            tools=[tool.name for tool in listed.tools],
        )
        called = await session.call_tool(asked.tool, asked.arguments, progress_callback=verdict.on_progress)
        verdict.result = getattr(called.content[0], "text", None) if called.content else None
        verdict.structured = called.structuredContent
        verdict.is_error = called.isError
    return verdict


if __name__ == "__main__":
    answer(judge)
