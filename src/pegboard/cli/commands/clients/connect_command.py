"""`pegboard connect CLIENT [TARGET]`: print the entry of a server for a client, or write it into the client's file."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pegboard.call import Json
from pegboard.cli.arguments.target_argument import find_target, is_url, read_headers, with_default_path
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.file_change import write_change
from pegboard.cli.terminal.output import note, show, show_json
from pegboard.config.editing.edits import Edit, apply_edits, parse_text
from pegboard.config.editing.text_file import TextFile, open_text_file
from pegboard.config.foreign.known_clients import (
    CLIENTS,
    REFERENCE,
    KnownClient,
    ServerAddress,
    is_same_server,
    known_client,
    merged_entry,
)
from pegboard.config.gateway_config import find_config
from pegboard.config.source_file import KeyPath
from pegboard.errors import SetupError
from pegboard.middleware.observability.masking import is_secret, mask_command, mask_text
from pegboard.protocol.json_values import as_list, as_object

_EXAMPLES = (
    "pegboard connect claude-code http://127.0.0.1:7332/mcp",
    "pegboard connect cursor tools.py --write",
    "pegboard connect codex https://example.com/mcp --header 'Authorization: Bearer ${SHOP_TOKEN}' --write",
    "pegboard connect vscode --scope project --write -- npx -y @modelcontextprotocol/server-memory",
    "pegboard connect zed --name shop --remove",
)


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard connect",
        description="Print the entry with which a client uses a server, or write it into the client's file. "
        "The rest of the file stays as it is.",
        examples=_EXAMPLES,
        usage="pegboard connect [options] CLIENT [TARGET]\n       pegboard connect [options] CLIENT -- COMMAND …",
    )
    parser.add_argument("client", metavar="CLIENT", choices=CLIENTS, help=", ".join(CLIENTS))
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="a board (a Python file, a module or a folder), a configuration, or a URL; default: what this folder has",
    )
    parser.add_argument("--name", help="the name of the server in the client's file")
    parser.add_argument("--scope", help="whose file: user or project; default: user")
    parser.add_argument("--file", type=Path, metavar="PATH", help="another file of the client")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the entry, and show what changes")
    action.add_argument("--remove", action="store_true", help="remove the entry, and show what changes")
    parser.add_argument("--replace", action="store_true", help="replace an entry of that name for another server")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header for the URL; ${NAME} stands for a variable, which the client or Pegboard fills in",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the command; without a value, it comes from the client's environment",
    )
    parser.add_argument("--json", action="store_true", help="print the client, the file and the entry as JSON")
    words = argv[: argv.index("--")] if "--" in argv else argv
    chosen = parser.parse_intermixed_args(words)
    command = argv[len(words) + 1 :]
    if command and chosen.target:
        parser.error("use either TARGET or a command after --")
    client = known_client(chosen.client)
    path, base = _file(client, chosen)
    if chosen.remove:
        name = chosen.name or (name_of(chosen.target or "", command) if chosen.target or command else "")
        if not name:
            parser.error("--remove needs the --name of the server")
        return _remove(client, open_text_file(path, base), name)
    server = _server(client, chosen, command)
    if chosen.write:
        return _write(client, open_text_file(path, base), server, replace=chosen.replace)
    if chosen.json:
        show_json({"client": chosen.client, "file": str(path), "name": server.name, "entry": client.entry(server)})
        return 0
    document = apply_edits("", _edits(client, {}, server, client.entry(server)), path)
    for line in document.splitlines():
        show(line)
    note(
        f"for {path}; --write adds it there" + (f", or run: {_adder(client, server)}" if _adder(client, server) else "")
    )
    return 0


def _file(client: KnownClient, chosen: argparse.Namespace) -> tuple[Path, Path]:
    if chosen.file is not None:
        return chosen.file, chosen.file.absolute().parent.resolve()
    scope = chosen.scope or next(iter(client.files))
    located = client.locate(scope, Path.cwd(), os.environ)
    return located.path, located.base


def _adder(client: KnownClient, server: ServerAddress) -> str:
    if not client.adder or not server.url or server.headers:
        return ""
    return client.adder.replace("NAME", server.name).replace("URL", server.url)


def _server(client: KnownClient, chosen: argparse.Namespace, command: list[str]) -> ServerAddress:
    """The server as the client will reach it: a URL if its format can say so, else through a process of ours."""
    headers = read_headers(chosen.header)
    env = _read_env(chosen.env)
    if command:
        target, words = "", command
    else:
        target = chosen.target or _find_target()
        words = start_words(target)
    name = server_name(chosen.name or name_of(target, command))
    for key, value in (*headers.items(), *env.items()):
        if is_secret(key) and value and not REFERENCE.search(value):
            note(f"{key}: the client's file will contain this secret; write ${{NAME}} for a variable that holds it")
    if not is_url(target):
        if headers:
            raise SetupError("--header is for a URL")
        return ServerAddress(name=name, command=tuple(words), env=env)
    if env:
        raise SetupError("--env is for a command; a URL has --header")
    server = ServerAddress(name=name, url=with_default_path(target), headers=headers)
    if client.reaches(server) and target.startswith("http"):
        return server
    note(f"{client.title} cannot reach this URL by itself, so Pegboard connects it: `pegboard up URL --stdio`")
    more = [word for key, value in headers.items() for word in ("--header", f"{key}:{value}")]
    return ServerAddress(name=name, command=(*_program(), "up", server.url, *more, "--stdio"))


def _find_target() -> str:
    """The configuration of `pegboard up`; without one, the board of this folder."""
    try:
        return str(find_config(os.environ))
    except SetupError:
        return find_target()


def start_words(target: str) -> list[str]:
    """The command that serves a target over stdio, from any folder."""
    if is_url(target):
        return []
    path, colon, board = target.partition(":") if not Path(target).exists() else (target, "", "")
    file = Path(path)
    if file.suffix in (".json", ".toml") and file.is_file():
        return [*_program(), "up", str(file.resolve()), "--stdio"]
    if file.exists():
        return [*_program(), "run", f"{file.resolve()}{colon}{board}", "--stdio"]
    if "/" in target or "\\" in target or file.suffix in (".py", ".json", ".toml"):
        raise SetupError(f"File not found: {path}")
    return [*_program(), "run", target, "--stdio"]


def _program() -> list[str]:
    """The command that runs Pegboard from anywhere: a client has another PATH than a shell."""
    if "archive-v0" in Path(sys.prefix).parts:
        # A temporary environment of uvx.
        return ["uvx", "pegboard"]
    return [sys.executable, "-m", "pegboard"]


def name_of(target: str, command: list[str]) -> str:
    """A name for a server: that of its file, host or package."""
    if is_url(target):
        host = urlsplit(target).hostname or ""
        return "pegboard" if host in ("localhost", "127.0.0.1", "::1") else host
    if target:
        path = Path(target.partition(":")[0] if not Path(target).exists() else target)
        named = path.stem if path.suffix else path.resolve().name
        return (
            path.resolve().parent.name
            if named in ("pegboard", "board", "server", "app", "main")
            else named.rpartition(".")[2]
        )
    words = [word for word in command[1:] if not word.startswith("-")] or command
    return re.split(r"[/\\]", words[0])[-1].partition("@")[0]


def server_name(name: str) -> str:
    """The name with only the characters that every client accepts."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_") or "server"


def _read_env(given: list[str]) -> dict[str, str]:
    env = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SetupError(f"--env {mask_text(text)!r} is not NAME or NAME=VALUE")
        env[name] = value if equals else f"${{{name}}}"
    return env


def _edits(client: KnownClient, tree: Json, server: ServerAddress, entry: dict[str, Json]) -> list[Edit]:
    edits: list[Edit] = []
    known = as_list(as_object(tree).get("inputs"))
    identities = [as_object(one).get("id") for one in known]
    for asked in client.inputs(server):
        if as_object(asked)["id"] not in identities:
            place: KeyPath = ("inputs", len(known) + len(edits)) if known or edits else ("inputs",)
            edits.append(Edit(place, asked if len(place) > 1 else [asked]))
    return [*edits, Edit((*client.place(tree), server.name), entry)]


def _servers(client: KnownClient, tree: Json) -> Mapping[str, Json]:
    for key in client.place(tree):
        tree = as_object(tree).get(str(key))
    return as_object(tree)


def _write(client: KnownClient, file: TextFile, server: ServerAddress, *, replace: bool) -> int:
    entry = client.entry(server)
    tree = parse_text(file.text, file.path)
    old = _servers(client, tree).get(server.name)
    text = apply_edits(file.text, _edits(client, tree, server, merged_entry(old, entry)), file.path)
    if isinstance(old, dict) and not is_same_server(old, entry) and not replace:
        raise SetupError(
            f"{file.path} already has a server {server.name!r}: {_summary(old)}; "
            "--replace replaces it, --name adds this one with another name"
        )
    write_change(file, text)
    return 0


def _summary(entry: dict[str, Json]) -> str:
    command = entry.get("command")
    words = [*(command if isinstance(command, list) else [command]), *as_list(entry.get("args"))]
    if command:
        return " ".join(mask_command([str(word) for word in words]))
    url = entry.get("url") or entry.get("httpUrl") or entry.get("serverUrl")
    return mask_text(str(url)) if url else "an entry of another form"


def _remove(client: KnownClient, file: TextFile, name: str) -> int:
    tree = parse_text(file.text, file.path)
    servers = _servers(client, tree)
    if name not in servers:
        known = ", ".join(servers) or "none"
        note(f"{file.path} has no server {name!r}, nothing to remove; it has: {known}")
        return 0
    write_change(file, apply_edits(file.text, [Edit((*client.place(tree), name))], file.path))
    return 0
