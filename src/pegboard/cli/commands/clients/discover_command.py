"""`pegboard discover`: list the servers in the files of all clients on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from pegboard.call import Json
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, show_json
from pegboard.cli.terminal.tables import show_rows, show_wrapped
from pegboard.config.foreign.found_servers import FoundFile, FoundServer, find_files
from pegboard.config.foreign.known_clients import CLIENTS
from pegboard.middleware.observability.masking import mask, mask_command, mask_text
from pegboard.protocol.json_values import as_list
from pegboard.tools.naming import counted

OK, FOUND_PROBLEMS = 0, 1


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard discover",
        description="List the servers in the files of all clients, the user's and those of this folder. Nothing is started.",
        examples=("pegboard discover cursor --json",),
        codes="0 ok, 1 a file cannot be read, 2 wrong usage",
    )
    parser.add_argument(
        "client", metavar="CLIENT", nargs="?", choices=["", *CLIENTS], default="", help=", ".join(CLIENTS)
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    files = list(find_files(Path.cwd(), os.environ, chosen.client))
    if chosen.json:
        show_json([_as_json(file) for file in files])
    else:
        for file in files:
            _print(file)
    servers = sum(len(file.servers) for file in files)
    note(
        f"{counted(servers, 'server')} in {counted(len(files), 'file')}; `pegboard import` puts them into one configuration"
    )
    return FOUND_PROBLEMS if any(file.problem for file in files) else OK


def _print(file: FoundFile) -> None:
    show_wrapped(f"{CLIENTS[file.client].title}, {file.scope}: {file.path}")
    show_rows([(server.name, transport(server), target(server)) for server in file.servers], "  ")
    for server in file.servers:
        for problem in server.problems(os.environ):
            show_wrapped(f"{server.name}: {problem}", "  ")
    for line in (*file.warnings, *file.problem.splitlines()):
        show_wrapped(line, "  ")


def transport(server: FoundServer) -> str:
    """How the server is reached."""
    named = server.entry.get("transport") or server.entry.get("type")
    return str(named or ("http" if server.entry.get("url") else "stdio"))


def target(server: FoundServer) -> str:
    """The command or the URL of a server, without secrets."""
    command, url = server.entry.get("command"), server.entry.get("url")
    if url:
        return mask_text(str(url))
    words = [*(command if isinstance(command, list) else [command or ""]), *as_list(server.entry.get("args"))]
    return " ".join(mask_command([str(word) for word in words]))


def _as_json(file: FoundFile) -> Json:
    return {
        "client": file.client,
        "scope": file.scope,
        "path": str(file.path),
        "problem": file.problem,
        "warnings": list(file.warnings),
        "servers": [
            {
                "name": server.name,
                "transport": transport(server),
                "target": target(server),
                "env": sorted(str(name) for name in mask(server.entry.get("env") or {})),
                "problems": list(server.problems(os.environ)),
            }
            for server in file.servers
        ],
    }
