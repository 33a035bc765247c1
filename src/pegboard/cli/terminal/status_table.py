"""The status of a gateway's servers as a table."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Final

from pegboard.cli.terminal.connect_commands import connect_lines
from pegboard.cli.terminal.tables import render_rows, width_of
from pegboard.config.mistakes import redact
from pegboard.gateway.gateway import Gateway
from pegboard.gateway.servers.downstream import Downstream
from pegboard.tools.naming import counted

_INDENT: Final = "    "
_WIDEST: Final = 110
_WORDS = {"needs_login": "needs login"}


def render_status(gateway: Gateway, url: str, seconds: float, command: str, store: str = "") -> list[str]:
    """The connected servers, the token costs, and the next steps; `store` is the flag that names its store."""
    lines = render_servers(gateway, seconds)
    costs = gateway.endpoints[0].costs()
    lines.append("")
    lines += [f"  {'tokens' if number == 0 else '':<8} {line}" for number, line in enumerate(costs.lines())]
    lines.append(f"  MCP      {url}")
    if url.startswith("http"):
        base = url.removesuffix("/mcp")
        lines += [f"           {base}/toolboxes/{name}/mcp" for name in gateway.config.toolboxes]
        lines += connect_lines(gateway, url, f"{command} list {url}", f"{command} keys add NAME {store}")
    lines += _next_steps(gateway, command)
    return [redact(line, gateway.config.secrets) for line in lines]


def render_servers(gateway: Gateway, seconds: float) -> list[str]:
    """How many servers are ready, and each of them."""
    servers = gateway.downstreams
    ready = sum(one.state == "ready" for one in servers)
    starting = sum(one.state == "connecting" for one in servers)
    waiting = sum(one.config.lazy and one.state == "idle" for one in servers)
    lines = [
        f"  {ready} of {counted(len(servers), 'server')} ready in {seconds:.1f} s"
        + (f", {starting} still starting" if starting else "")
        + (f", {waiting} {'starts when it is' if waiting == 1 else 'start when they are'} needed" if waiting else "")
        + f": {counted(len(gateway.endpoints[0].directory), 'tool')}"
    ]
    lines += _table([_row(gateway, one) for one in servers])
    return [redact(line, gateway.config.secrets) for line in lines]


def _row(gateway: Gateway, server: Downstream) -> tuple[str, ...]:
    catalog = server.catalog
    shown = sum(
        entry.place.server == server.name for entry in gateway.endpoints[0].directory.of_toolbox(server.toolbox)
    )
    listed = len(catalog.tools) if catalog is not None else 0
    tools = "" if catalog is None else ("" if shown == listed else f"{shown} of ") + counted(listed, "tool")
    if server.config.lazy and server.state == "idle" and catalog is None:
        tools = "not started"
    return (
        server.toolbox,
        server.name,
        _WORDS.get(server.state, server.state),
        server.config.kind,
        tools,
        server.problem[:600],
    )


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The rows; the problem of a server is below its row, in full, since its last output explains its failure."""
    width = width_of(sys.stderr)
    before = [None, *(row[0] for row in rows)]
    cells = [("" if row[0] == last else row[0], *row[1:5]) for row, last in zip(rows, before, strict=False)]
    for row, line in zip(rows, render_rows(cells, width, _INDENT), strict=True):
        yield line
        if row[5]:
            below = _INDENT + "  "
            yield from textwrap.wrap(row[5], width or _WIDEST, initial_indent=below, subsequent_indent=below)


def _next_steps(gateway: Gateway, command: str) -> Iterator[str]:
    if not gateway.pinned and gateway.config.path:
        yield f"  pin      {command} lock {gateway.config.path}   (to be notified when a server changes its tools)"
    for server in gateway.downstreams:
        if server.state == "needs_login":
            yield f"  log in   {command} login {gateway.config.path} {server.toolbox}/{server.name}"
