"""The TARGET argument: a file, a URL or a command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pegboard
from pegboard import config
from pegboard.cli.terminal.output import note
from pegboard.cli.terminal.progress_bar import waiting
from pegboard.cli.terminal.terminal_form import fill_in, on_terminal
from pegboard.client.client import Client
from pegboard.client.client_channel import OnElicit
from pegboard.errors import Refusal, ResponseTimeout, ServerFault, SetupError
from pegboard.loading import FILES, has_board, load_board
from pegboard.protocol.revisions import SUPPORTED
from pegboard.tools.naming import counted

# host:port, as in a browser
_URL: Final = re.compile(r"[\w.-]+:\d{1,5}(/.*)?")

OK, TOOL_ERROR, USAGE, CANNOT_CONNECT = 0, 1, 2, 3

_CONNECT_SECONDS = 60.0
_SERVERS = "dev.pegboard/servers"


class TargetArgument:
    """A parsed command line: the target, and the flags."""

    def __init__(self, chosen: argparse.Namespace, command: list[str]) -> None:
        self.chosen = chosen
        self.command = command

    @property
    def name(self) -> str:
        return " ".join(self.command) or str(self.chosen.target)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of the target; its output goes to stderr, since stdout is for the result."""
        with contextlib.redirect_stdout(sys.stderr):
            if self._is_config():
                async with self._gateway_client() as client:
                    yield client
                return
            async with AsyncExitStack() as opened:
                limit = asyncio.timeout(self.chosen.timeout)
                try:
                    async with limit:
                        client = await opened.enter_async_context(self._open())
                except TimeoutError:
                    if not limit.expired():
                        raise
                    raise ResponseTimeout(f"{self.name}: not connected within {self.chosen.timeout:g} s") from None
                yield client

    def _is_config(self) -> bool:
        return not self.command and self.chosen.target.endswith((".json", ".toml"))

    @asynccontextmanager
    async def _gateway_client(self) -> AsyncIterator[Client]:
        """A client of all servers of a configuration, once each of them has responded or failed."""
        # Imported here: requests to a single server do not need the gateway.
        gateway = pegboard.Gateway(self.chosen.target)
        async with Client(
            gateway, timeout=self.chosen.timeout, version=self.chosen.protocol, elicit=elicit()
        ) as client:
            async with waiting(f"connecting to {counted(len(gateway.downstreams), 'server')}"):
                await gateway.wait_connected(self.chosen.timeout or _CONNECT_SECONDS, lazy=True)
            yield client

    def _open(self) -> Client:
        chosen = self.chosen
        flags: dict[str, Any] = {
            "version": chosen.protocol,
            "ca": chosen.ca,
            "timeout": chosen.timeout,
            "elicit": elicit(),
        }
        if chosen.timeout is not None:
            flags["connect_timeout"] = chosen.timeout
        if self.command:
            # A command typed in a shell gets the environment of the shell.
            return Client(self.command, env=dict(os.environ), **flags)
        if is_url(chosen.target):
            return Client(with_default_path(chosen.target), headers=read_headers(chosen.header), **flags)
        if _URL.fullmatch(chosen.target):
            raise SetupError(
                f"{chosen.target} is not a file; the URL of a server starts with http://, https://, ws:// or wss://"
            )
        return Client(load_board(chosen.target), timeout=chosen.timeout, version=chosen.protocol, elicit=elicit())


def find_target() -> str:
    """What the current folder has: a board, or a configuration."""
    folder = Path()
    if has_board(folder):
        return str(folder)
    for name in config.FILES:
        if (folder / name).is_file():
            return name
    raise SetupError(
        "There is no board in this folder: name a file, such as tools.py, or make a project with `pegboard new NAME`; "
        f"looked for [tool.pegboard] in pyproject.toml and for {', '.join((*FILES, *config.FILES))}"
    )


def is_url(target: str) -> bool:
    return target.startswith(("http://", "https://", "ws://", "wss://"))


def elicit() -> OnElicit | None:
    """How questions of the server are answered: by the person at the terminal, if there is one."""
    return fill_in if on_terminal() else None


def read_target(
    parser: argparse.ArgumentParser, argv: list[str], arguments: dict[str, dict[str, Any]]
) -> TargetArgument:
    """Parse a command line with a target first, or a command after `--`, and these arguments."""
    words, command = argv, list[str]()
    if "--" in argv:
        words, command = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
        if not command:
            parser.error("add the command that starts the server after --")
    shown = " ".join(str(about.get("metavar") or "") for about in arguments.values())
    # Before other words, a target that is left out would be one of them.
    is_optional = not arguments
    parser.usage = (
        f"{parser.prog} [options] {'[TARGET]' if is_optional else 'TARGET'} {shown}".rstrip()
        + f"\n       {parser.prog} [options] {shown}".rstrip()
    )
    parser.usage += " -- COMMAND …"
    if not command:
        parser.add_argument(
            "target",
            metavar="TARGET",
            nargs="?" if is_optional else None,
            help="a board (a Python file, a module or a folder), a gateway configuration, or the URL of a server: http(s), ws(s)"
            + ("; default: what this folder has" if is_optional else ""),
        )
    for name, about in arguments.items():
        added = parser.add_argument(name, **about)
        # Otherwise argparse lists them as required when another argument is missing.
        added.required = added.required and added.nargs != "*"
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    add_url_flags(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="fail after SECONDS without a connection, or without any message from the server",
    )
    parser.add_argument(
        "--protocol", choices=SUPPORTED, metavar="REVISION", help=f"protocol revision, one of {', '.join(SUPPORTED)}"
    )
    chosen = parser.parse_args(words)
    if not command and chosen.target is None:
        chosen.target = find_target()
    return TargetArgument(chosen, command)


def add_url_flags(parser: argparse.ArgumentParser) -> None:
    """The flags for a server behind a URL."""
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="send a header to the URL")
    parser.add_argument("--ca", metavar="FILE", help="CA bundle for verifying the server")


def run(verb: str, work: Coroutine[Any, Any, int]) -> int:
    """Run the work of a verb; errors of a server become a line on stderr and an exit code."""
    try:
        return asyncio.run(work)
    except ServerFault as fault:
        note(f"pegboard {verb}: {fault}")
        return CANNOT_CONNECT
    except Refusal as refusal:
        note(f"pegboard {verb}: {refusal.message} (code {refusal.code})")
        return USAGE


def with_default_path(url: str) -> str:
    """The URL; without a path, that of our own servers."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and not parts.path:
            return parts._replace(path="/ws" if parts.scheme.startswith("ws") else "/mcp").geturl()
    return url


def read_headers(lines: list[str]) -> dict[str, str]:
    """The headers of `--header NAME:VALUE`."""
    headers = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not colon:
            # It may be a secret without its name.
            which = f" number {number}" if len(lines) > 1 else ""
            raise SetupError(
                f"--header{which} has no colon: write it as NAME:VALUE, for example 'Authorization: Bearer KEY'"
            )
        headers[name.strip()] = value.strip()
    return headers


async def report_missing(client: Client) -> None:
    """Print the servers behind a gateway that are unavailable, and why."""
    listed = await client.request("tools/list")
    meta = listed.get("_meta")
    servers = meta.get(_SERVERS) if isinstance(meta, dict) else None
    for name, entry in servers.items() if isinstance(servers, dict) else ():
        state, problem = (entry.get("state"), entry.get("problem")) if isinstance(entry, dict) else ("", "")
        note(f"missing    {name}: {problem or state}")
