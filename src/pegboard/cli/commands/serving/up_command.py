"""`pegboard up CONFIG`: serve many servers as one."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pegboard import __version__
from pegboard.cli.arguments.console_flags import add_console, add_console_flags, announce_approvals, announce_console
from pegboard.cli.arguments.serving_flags import add_flags, read_options
from pegboard.cli.arguments.target_argument import is_url, read_headers
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.serving.run_command import command
from pegboard.cli.source_watch import SourceWatch
from pegboard.cli.terminal.connect_commands import store_flag
from pegboard.cli.terminal.status_table import render_servers, render_status
from pegboard.config.gateway_config import find_config
from pegboard.errors import SetupError
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.state_folder import store_path
from pegboard.logs.log_lines import announce_lines, set_up_logging
from pegboard.server.serve import run, started_by_client
from pegboard.server.serving_options import ServingOptions

_CONNECT_SECONDS = 15.0
_START_SECONDS = 300.0


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard up",
        usage="pegboard up [options] [CONFIG]",
        description="Serve the servers of a configuration file as one: over HTTP, or over stdio to one client.",
        examples=("pegboard up .vscode/mcp.json", "pegboard up --mode proxy --stdio"),
        epilog="The file is JSON or TOML: ours, or that of Claude, Cursor, VS Code, Codex or Gemini. It is reloaded when it changes. Every flag has an environment variable, for example PEGBOARD_PORT=8000.",
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="a configuration file, or the URL of one server; default: PEGBOARD_CONFIG, or pegboard.json or pegboard.toml here",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="send a header to the URL; ${NAME} is a variable",
    )
    parser.add_argument("--mode", choices=("all", "dynamic", "proxy", "auto"), help="which tools clients see")
    parser.add_argument("--no-watch", action="store_false", dest="watch", help="do not reload the file on change")
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart a server when the file of its board, or the script in its command, is edited",
    )
    add_flags(parser, store="a SQLite file of this user")
    add_console_flags(parser)
    chosen = parser.parse_args(argv)
    options = read_options(chosen, store="")
    set_up_logging(options["log_level"], options["log_format"])
    path = chosen.config or str(find_config(os.environ))
    if is_url(path):
        gateway = Gateway(_bridge(path, read_headers(chosen.header)), mode=chosen.mode)
        options["store"] = options["store"] or "memory"
    elif path.endswith(".py"):
        raise SetupError(f"{path} is a Python file: serve its board with `pegboard run {path}`")
    elif chosen.header:
        parser.error("--header is for a URL; a configuration file has the headers of its servers")
    else:
        gateway = Gateway(path, mode=chosen.mode, watch=chosen.watch)
    serve_gateway(gateway, path, chosen, options, restart=chosen.reload)
    return 0


def serve_gateway(
    gateway: Gateway, path: str, chosen: argparse.Namespace, options: ServingOptions, *, restart: bool
) -> None:
    """Serve a gateway that was made from this file or URL; `restart` its servers whose own source is edited."""
    began = time.monotonic()
    store = store_flag(options["store"]) if options["store"] else f"--config {path}"
    if not options["store"]:
        # A client over stdio is one connection, and none of its state outlives it, except what a person has to approve.
        alone = not any(rule.approve for rule in gateway.config.rules)
        stdio = options["transport"] == "stdio" or (options["transport"] == "auto" and started_by_client())
        options["store"] = "memory" if stdio and alone else f"sqlite:{store_path(path)}"

    console = add_console(gateway, chosen, options)

    def on_ready(url: str) -> None:
        _reload_on_hangup(gateway)
        if restart:
            gateway._tasks.start(SourceWatch(gateway).run())
        first = [*announce_console(console, chosen, url), *announce_approvals(gateway)]
        Announcement(gateway, url, began, first=first, store=store).start()

    run(gateway, options, on_ready)


def _bridge(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """The configuration for one server, whose tools keep their names."""
    server = {"url": url, **({"headers": headers} if headers else {})}
    toolbox = {"description": f"The server at {url}", "names": "plain", "mcpServers": {"server": server}}
    return {"name": urlsplit(url).hostname or "server", "toolboxes": {"main": toolbox}}


def _reload_on_hangup(gateway: Gateway) -> None:
    """Read the file again on SIGHUP, where the system has that signal."""
    number = getattr(signal, "SIGHUP", None)
    if number is not None:
        asyncio.get_running_loop().add_signal_handler(number, gateway.reload_file)


class Announcement:
    """What is printed once the servers have responded, or the time is up."""

    def __init__(
        self,
        gateway: Gateway,
        url: str,
        began: float,
        more: Sequence[str] = (),
        wait: float = _CONNECT_SECONDS,
        first: Sequence[str] = (),
        store: str = "",
    ) -> None:
        self._store = store
        self._gateway = gateway
        self._url = url
        self._began = began
        self._first = first
        self._more = more
        self._wait = wait

    def start(self) -> None:
        self._gateway._tasks.start(self._announce())

    async def _announce(self) -> None:
        announce_lines([f"pegboard {__version__}   {self._gateway.config.name}: {self._url}", *self._first])
        await self._gateway.wait_connected(self._wait)
        took = time.monotonic() - self._began
        announce_lines([*render_status(self._gateway, self._url, took, command(), self._store), *self._more])
        await self._announce_late()

    async def _announce_late(self) -> None:
        """Print the table once more when the servers that were still starting have started or failed."""
        if not self._starting():
            return
        until = time.monotonic() + _START_SECONDS
        while self._starting() and time.monotonic() < until:  # noqa: ASYNC110 — states have no event of their own
            await asyncio.sleep(1)
        announce_lines(render_servers(self._gateway, time.monotonic() - self._began))

    def _starting(self) -> bool:
        return any(one.state == "connecting" for one in self._gateway.downstreams)
