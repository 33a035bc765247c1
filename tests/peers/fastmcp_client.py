"""Judges a server with FastMCP's client."""

from __future__ import annotations

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from judgement import Question, Verdict, answer


async def judge(asked: Question) -> Verdict:
    target = asked.url or StdioTransport(command=asked.command[0], args=asked.command[1:], keep_alive=False)
    async with Client(target, mode=asked.mode) as client:
        listed = await client.list_tools()
        info = client.server_info
        verdict = Verdict(
            server={"name": info.name, "version": info.version} if info else {},
            protocol=client.protocol_version,
            tools=[tool.name for tool in listed],
        )
        called = await client.call_tool(
            asked.tool, asked.arguments, progress_handler=verdict.on_progress, raise_on_error=False
        )
        verdict.result = getattr(called.content[0], "text", None) if called.content else None
        verdict.structured = called.structured_content
        verdict.is_error = called.is_error
    return verdict


if __name__ == "__main__":
    answer(judge)
