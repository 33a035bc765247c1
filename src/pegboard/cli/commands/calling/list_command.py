"""`pegboard list TARGET`: list the tools of a file or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.cli.arguments.target_argument import TargetArgument, read_target, report_missing, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show_json
from pegboard.cli.terminal.tables import show_rows


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard list",
        description="List tools with their arguments.",
        examples=("pegboard list examples/hello.py", "pegboard list http://127.0.0.1:7332 --json"),
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
    )
    return run("list", _list(read_target(parser, argv, {})))


async def _list(pointed: TargetArgument) -> int:
    async with pointed.client() as client:
        tools = await client.list_tools()
        await report_missing(client)
    if pointed.chosen.json:
        show_json(tools)
        return 0
    print_tools(tools)
    if not tools:
        note("no tools")
    return 0


def print_tools(tools: Sequence[Mapping[str, object]], indent: str = "") -> None:
    """Each tool on its own line, with its arguments and the first line of its description."""
    show_rows([(_signature(tool), str(tool.get("description") or "").partition("\n")[0]) for tool in tools], indent)


def _signature(tool: Mapping[str, object]) -> str:
    schema = tool.get("inputSchema")
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", []) if isinstance(schema, dict) else []
    names = [name if name in required else f"{name}?" for name in properties]
    return f"{tool.get('name')}({', '.join(names)})"
