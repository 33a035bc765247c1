"""`pegboard inspect TARGET`: describe a server and all it offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import OK, TargetArgument, read_target, run
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.calling.list_command import print_tools
from pegboard.cli.terminal.output import show, show_json
from pegboard.cli.terminal.tables import show_rows
from pegboard.client.client import Client
from pegboard.errors import MethodNotFound
from pegboard.protocol.params import PREFIX
from pegboard.tools.naming import counted


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard inspect",
        description="Show a server's name, protocol revision, capabilities, tools, resources and prompts.",
        examples=(
            "pegboard inspect http://127.0.0.1:7332",
            "pegboard inspect -- npx -y @modelcontextprotocol/server-everything",
        ),
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
    )
    return run("inspect", _inspect(read_target(parser, argv, {})))


async def _inspect(pointed: TargetArgument) -> int:
    async with pointed.client() as client:
        about = await client.discover()
        offered = about.get("capabilities") or {}
        found = await _offers(client, offered)
        version = client.version
    info = about.get("_meta", {}).get(PREFIX + "serverInfo", {})
    whole = {
        "server": info,
        "protocol": version,
        "speaks": about.get("supportedVersions", []),
        "capabilities": offered,
        "instructions": about.get("instructions"),
        **found,
    }
    if pointed.chosen.json:
        show_json(whole)
        return OK
    show(f"{info.get('name', 'unnamed')} {info.get('version', '')}".rstrip())
    show(f"protocol {version}")
    show(f"capabilities {', '.join(sorted(offered)) or 'none'}")
    if about.get("instructions"):
        show()
        for line in str(about["instructions"]).split("\n"):
            show(f"  {line}")
    _print(found)
    return OK


async def _offers(client: Client, offered: Mapping[str, Json]) -> dict[str, Sequence[Mapping[str, Json]]]:
    found: dict[str, Sequence[Mapping[str, Json]]] = {"tools": [], "resources": [], "templates": [], "prompts": []}
    if "tools" in offered:
        found["tools"] = await client.list_tools()
    if "resources" in offered:
        found["resources"] = await client.list_resources()
        try:
            found["templates"] = await client.list_templates()
        except MethodNotFound:
            # A server may have resources but no templates.
            pass
    if "prompts" in offered:
        found["prompts"] = await client.list_prompts()
    return found


def _print(found: Mapping[str, Sequence[Mapping[str, Json]]]) -> None:
    if found["tools"]:
        show()
        show(counted(len(found["tools"]), "tool"))
        print_tools(found["tools"], "  ")
    for kind, member in (("resources", "uri"), ("templates", "uriTemplate"), ("prompts", "name")):
        if found[kind]:
            show()
            show(counted(len(found[kind]), kind[:-1]))
        summaries = [str(item.get("description") or item.get("title") or "").partition("\n")[0] for item in found[kind]]
        show_rows([(str(item.get(member)), text) for item, text in zip(found[kind], summaries, strict=True)], "  ")
