"""Judges a server with the official Python client, 2.x."""

from __future__ import annotations

from judgement import Question, Verdict, answer
from mcp import Client, StdioServerParameters


async def judge(asked: Question) -> Verdict:
    target = asked.url or StdioServerParameters(command=asked.command[0], args=asked.command[1:])
    async with Client(target, mode=asked.mode) as client:
        listed = await client.list_tools()
        info = client.server_info
        verdict = Verdict(
            server={"name": info.name, "version": info.version} if info else {},
            protocol=client.protocol_version,
            tools=[tool.name for tool in listed.tools],
        )
        called = await client.call_tool(asked.tool, asked.arguments, progress_callback=verdict.on_progress)
        verdict.result = getattr(called.content[0], "text", None) if called.content else None
        verdict.structured = called.structured_content
        verdict.is_error = called.is_error
    return verdict


if __name__ == "__main__":
    answer(judge)
