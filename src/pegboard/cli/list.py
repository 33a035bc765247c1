"""`pegboard list TARGET`: the tools of a file or a server."""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec

from pegboard.cli.target import CannotConnect, open_target


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="pegboard list", description="List tools with their arguments.")
    parser.add_argument("target", metavar="TARGET", help="a Python file with a board, or the URL of a server")
    parser.add_argument("--json", action="store_true", help="print the definitions as JSON")
    chosen = parser.parse_args(argv)
    try:
        tools = asyncio.run(open_target(chosen.target).list_tools())
    except CannotConnect as error:
        print(f"pegboard list: {error}", file=sys.stderr)
        return 3
    if chosen.json:
        print(msgspec.json.format(msgspec.json.encode(tools), indent=2).decode())
        return 0
    width = max((len(_signature(tool)) for tool in tools), default=0)
    for tool in tools:
        print(
            f"{_signature(tool):<{min(width, 60)}}  {str(tool.get('description', '')).partition(chr(10))[0]}".rstrip()
        )
    return 0


def _signature(tool: dict[str, object]) -> str:
    schema = tool.get("inputSchema")
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", []) if isinstance(schema, dict) else []
    names = [name if name in required else f"{name}?" for name in properties]
    return f"{tool['name']}({', '.join(names)})"
