"""`pegboard add NAME URL|COMMAND …`: add a server to a configuration."""

from __future__ import annotations

import argparse

from pegboard.call import Json
from pegboard.cli.arguments.config_argument import open_config
from pegboard.cli.arguments.target_argument import is_url, read_headers
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.file_change import write_change, write_change_as_json
from pegboard.errors import SetupError

_EXAMPLES = (
    "pegboard add docs https://docs.example/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'",
    "pegboard add memory -- npx -y @modelcontextprotocol/server-memory",
    "pegboard add tools tools.py --to pegboard.toml --toolbox office",
)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard add",
        description="Add a server to a configuration, which is created if it is missing. "
        "The rest of the file stays as it is.",
        examples=_EXAMPLES,
        usage="pegboard add [options] NAME URL|FILE.py|COMMAND\n       pegboard add [options] NAME -- COMMAND …",
    )
    parser.add_argument("name", metavar="NAME", help="the name of the server")
    parser.add_argument("server", metavar="SERVER", nargs="?", help="a URL, the Python file of a board, or a command")
    parser.add_argument(
        "--to", metavar="CONFIG", help="the configuration; default: the one of `pegboard up`, or pegboard.json"
    )
    parser.add_argument("--toolbox", metavar="NAME", help="the toolbox; default: the first, or main")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header for the URL; ${NAME} is a variable",
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the command")
    parser.add_argument("--replace", action="store_true", help="replace the server of that name")
    parser.add_argument("--json", action="store_true", help="print the file, the action and its servers as JSON")
    words = argv[: argv.index("--")] if "--" in argv else argv
    chosen = parser.parse_intermixed_args(words)
    command = argv[len(words) + 1 :] or ([chosen.server] if chosen.server else [])
    if not command or (chosen.server and len(argv) > len(words) + 1):
        parser.error("add one server: a URL, a file, or a command after --")
    config = open_config(chosen.to)
    place = config.toolbox(chosen.toolbox)
    is_known = chosen.name in config.servers(place)
    if is_known and not chosen.replace:
        raise SetupError(f"{config.file.path} already has a server {chosen.name!r}; use --replace, or another name")
    entry = _entry(command, chosen)
    text = config.add(place, {chosen.name: entry}, f"The servers of {config.file.path.name}")
    if chosen.json:
        write_change_as_json(config.file, text, "replace" if is_known else "add", [chosen.name])
    else:
        write_change(config.file, text)
    return 0


def _entry(command: list[str], chosen: argparse.Namespace) -> dict[str, Json]:
    headers = read_headers(chosen.header)
    env = dict(text.partition("=")[::2] for text in chosen.env)
    if is_url(command[0]):
        if env:
            raise SetupError("--env is for a command; a URL has --header")
        return {"url": command[0], **({"headers": headers} if headers else {})}
    if headers:
        raise SetupError("--header is for a URL")
    if len(command) == 1 and command[0].partition(":")[0].endswith(".py"):
        return {"board": command[0]}
    program, *args = command
    return {"command": program, **({"args": args} if args else {}), **({"env": env} if env else {})}
