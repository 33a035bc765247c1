"""`pegboard export TARGET --format FORMAT`: the tools of a server for a model's API, or the server for a registry or a client."""

from __future__ import annotations

import getpass
from pathlib import Path

import msgspec

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import TargetArgument, is_url, read_target, run, with_default_path
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.clients.connect_command import name_of, server_name, start_words
from pegboard.cli.server_package import ServerFacts, bundle, registry_entry
from pegboard.cli.terminal.output import note, show_text
from pegboard.config.foreign.known_clients import CLIENTS, ServerAddress
from pegboard.errors import SetupError
from pegboard.protocol.params import PREFIX
from pegboard.providers.markdown import write_markdown
from pegboard.providers.tool_export import FORMATS, ExportOptions, ListedTool, export_tools

_TOOLS = tuple(name for name in FORMATS if name not in ("microsoft-ai", "mcp"))
_CHOICES = (*_TOOLS, "markdown", "server.json", "mcp.json", "mcpb")
_EXAMPLES = (
    "pegboard export tools.py --format openai",
    "pegboard export http://127.0.0.1:7332/mcp --format markdown --output TOOLS.md",
    "pegboard export https://shop.example/mcp --format server.json --name com.example/shop",
    "pegboard export tools.py --format mcpb",
)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard export",
        description="Write the tools of a server for the API of a model provider, or the server itself for a registry "
        "(server.json), for clients (mcp.json), or as a bundle (mcpb).",
        examples=_EXAMPLES,
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
    )
    parser.add_argument("--format", required=True, choices=_CHOICES, metavar="FORMAT", help=", ".join(_CHOICES))
    parser.add_argument("--output", type=Path, metavar="FILE", help="the file to write; it must not exist")
    parser.add_argument("--name", help="the name in the registry, or in the client's file")
    parser.add_argument("--author", default="", help="the author of a bundle")
    parser.add_argument("--no-strict", action="store_true", help="openai: do not use the strict subset of schemas")
    return run("export", _export(read_target(parser, argv, {})))


async def _export(pointed: TargetArgument) -> int:
    chosen = pointed.chosen
    form = chosen.format
    target = str(getattr(chosen, "target", ""))
    if form == "mcp.json":
        # An entry needs only the address: nothing is started.
        _write(chosen.output, _encode(_client_file(pointed, target)))
        return 0
    async with pointed.client() as client:
        tools = await client.list_tools()
        about = await client.discover()
    info = about.get("_meta", {}).get(PREFIX + "serverInfo", {})
    facts = ServerFacts(
        name=str(info.get("name") or "server"),
        version=str(info.get("version") or ""),
        description=str(info.get("description") or info.get("title") or ""),
        tools=tools,
    )
    if form == "mcpb":
        if pointed.command or is_url(target):
            raise SetupError("a bundle is made of a Python file, or of a folder with a pyproject.toml")
        _write_bytes(
            chosen.output or Path(f"{server_name(facts.name)}.mcpb"), bundle(facts, target, chosen.author or _user())
        )
    elif form == "server.json":
        if pointed.command:
            raise SetupError("server.json describes a URL or a published package, not a command")
        url = with_default_path(target) if is_url(target) else target
        _write(chosen.output, _encode(registry_entry(facts, url, chosen.name)))
    elif form == "markdown":
        _write(chosen.output, write_markdown(map(ListedTool.read, tools)))
    else:
        options = ExportOptions(strict=not chosen.no_strict)
        exported = export_tools(map(ListedTool.read, tools), form, options)
        for line in exported.notes:
            note(line)
        _write(chosen.output, _encode(exported.definitions))
    return 0


def _client_file(pointed: TargetArgument, target: str) -> Json:
    chosen = pointed.chosen
    name = server_name(chosen.name or name_of(target, pointed.command))
    if is_url(target):
        if chosen.header:
            note("the headers are not exported; `pegboard connect` writes them with a reference to a variable")
        server = ServerAddress(name=name, url=with_default_path(target))
    else:
        server = ServerAddress(name=name, command=tuple(pointed.command or start_words(target)))
    return CLIENTS["claude-code"].document(server)


def _encode(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _write(output: Path | None, text: str) -> None:
    if output is None:
        show_text(text.rstrip("\n"))
    else:
        _write_bytes(output, text.rstrip("\n").encode() + b"\n")


def _write_bytes(output: Path, data: bytes) -> None:
    try:
        with output.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise SetupError(f"{output} exists already; remove it, or choose another --output") from None
    except OSError as error:
        raise SetupError(f"{output} cannot be written: {error.strerror or error}") from None
    note(f"wrote {output}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
