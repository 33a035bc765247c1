"""`pegboard login CONFIG SERVER`: log in to a server of a gateway."""

from __future__ import annotations

import asyncio
import os

from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.terminal.output import note, note_lines, show_json
from pegboard.client.client import Client
from pegboard.client.login.browser import BrowserLogin
from pegboard.config.gateway_config import ServerConfig, read_config
from pegboard.errors import LoginFailed, Refusal, ServerFault, SetupError
from pegboard.gateway.servers.server_logins import Logins, token_storage
from pegboard.tools.naming import suggest

OK, USAGE, CANNOT_CONNECT = 0, 2, 3


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard login",
        description="Log in to a server of a configuration, in the browser; `pegboard up` then uses the token.",
        examples=("pegboard login gateway.json crm",),
        codes="0 ok, 2 wrong usage or set-up, 3 cannot connect",
        epilog="If this machine has no browser, open the printed link anywhere that can reach 127.0.0.1 here.",
    )
    parser.add_argument("config", metavar="CONFIG", help="the configuration file of the gateway")
    parser.add_argument(
        "server", metavar="SERVER", help="the server, or TOOLBOX/SERVER if two toolboxes have one of that name"
    )
    parser.add_argument("--no-browser", action="store_false", dest="browser", help="only print the link")
    parser.add_argument("--port", type=int, default=0, help="port for the browser's redirect (any free port)")
    parser.add_argument("--principal", default="", metavar="NAME", help="log in for this principal of the gateway only")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="how long to wait (300)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    toolbox, server = _find(chosen.config, chosen.server)
    if server.kind not in ("http", "sse"):
        raise SetupError(f"{server.name} uses {server.kind}; only servers with a URL can be logged in to")
    shown: list[str] = []

    def show(text: str) -> None:
        shown.append(text)
        note_lines(text)

    login = BrowserLogin(port=chosen.port, browser=chosen.browser, seconds=chosen.timeout, show=show)
    auth = Logins(token_storage(), login=login).auth(server, chosen.principal)
    if auth is None:
        raise SetupError(f"{server.name} already has a header Authorization, or its auth is none")
    client = Client(server.url, headers=server.headers, auth=auth)
    return asyncio.run(_log_in(f"{toolbox}/{server.name}", client, shown, as_json=chosen.json))


async def _log_in(name: str, client: Client, shown: list[str], *, as_json: bool) -> int:
    try:
        async with client:
            tools = await client.list_tools()
    except (LoginFailed, Refusal) as problem:
        note(f"pegboard login: {name}: {problem}")
        return USAGE
    except ServerFault as fault:
        note(f"pegboard login: {fault}")
        return CANNOT_CONNECT
    # It may need no login, or the last token may still be valid.
    done = "logged in" if shown else "needs no new login"
    if as_json:
        show_json({"server": name, "logged_in": bool(shown), "tools": len(tools)})
    note(f"{name}: {done}, {len(tools)} tool{'' if len(tools) == 1 else 's'}")
    return OK


def _find(config: str, wanted: str) -> tuple[str, ServerConfig]:
    read = read_config(config, os.environ)
    toolbox, slash, name = wanted.rpartition("/")
    found = [
        (box.name, box.servers[name])
        for box in read.toolboxes.values()
        if name in box.servers and (not slash or box.name == toolbox)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise SetupError(
            f"{config}: several toolboxes have a server {name!r}; name one, for example {found[0][0]}/{name}"
        )
    known = [server for box in read.toolboxes.values() for server in box.servers]
    close = suggest(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(known)}"
    raise SetupError(f"{config}: unknown server {wanted!r}{hint}")
