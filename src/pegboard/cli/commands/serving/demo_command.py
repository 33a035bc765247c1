"""`pegboard demo`: a gateway with three sample servers."""

from __future__ import annotations

import logging
import socket
import sys
import time
from pathlib import Path

import pegboard.demo
from pegboard.cli.arguments.console_flags import add_console, add_console_flags, announce_console
from pegboard.cli.arguments.serving_flags import add_flags, read_options
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.commands.serving.run_command import command
from pegboard.cli.commands.serving.up_command import Announcement
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.demo import desk, notes
from pegboard.gateway.gateway import Gateway
from pegboard.limits import Limits
from pegboard.logs.log_lines import set_up_logging
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import Http1Server, WorkerSockets
from pegboard.server.serve import run
from pegboard.server.serving_options import DEFAULT_PORT
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.stores.cluster import SharedStore

# The servers of the demo are ours: they start, however slow the machine is.
_CONNECT_SECONDS = 60.0
_CLOCK = Path(pegboard.demo.__file__).with_name("clock.py")


class Demo(Gateway):
    """A gateway that starts one of its servers itself, and connects to it over HTTP like to any other."""

    def __init__(self) -> None:
        self._places = WorkerSockets(1, "127.0.0.1", 0, None)
        self._server: Http1Server | None = None
        super().__init__(_config(self._places.port), boards={"desk": desk.board})

    async def start(self, shared: SharedStore | None = None) -> None:
        if self._server is None:
            limits = Limits()
            endpoint = HttpEndpoint(notes.board.handler, notes.board.info, limits=limits, guard=Guard())
            self._server = Http1Server(endpoint, limits, self._places.take(0))
            await self._server.start()
        await super().start(shared)

    async def stop(self) -> None:
        await super().stop()
        if self._server is not None:
            await self._server.close()
            self._server = None


def _config(port: int) -> GatewayConfig:
    clock = (sys.executable, "-m", "pegboard", "run", str(_CLOCK), "--stdio")
    everyday = (
        ServerConfig(name="desk", kind="board", board="desk"),
        ServerConfig(name="clock", kind="stdio", command=clock),
    )
    office = (ServerConfig(name="notes", kind="http", url=f"http://127.0.0.1:{port}/mcp"),)
    return GatewayConfig(
        path="",
        name="demo",
        lock="off",
        toolboxes={
            "everyday": _toolbox("everyday", "Sums, units, texts, trips and the time", everyday),
            "office": _toolbox("office", "Notes to write, find and delete", office),
        },
    )


def _toolbox(name: str, description: str, servers: tuple[ServerConfig, ...]) -> ToolboxConfig:
    return ToolboxConfig(name=name, description=description, servers={server.name: server for server in servers})


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard demo",
        usage="pegboard demo [options]",
        description="Serve a gateway with three sample servers (in process, stdio, HTTP), on this machine only.",
        examples=("pegboard demo --open",),
    )
    add_flags(parser)
    add_console_flags(parser)
    chosen = parser.parse_args(argv)
    options = read_options(chosen)
    if options["transport"] == "auto":
        options["transport"] = "http"
    if options["port"] == DEFAULT_PORT and options["uds"] is None:
        options["port"] = _free_port(options["port"])
    set_up_logging(options["log_level"], options["log_format"])
    if options["log_level"] == "info":
        # Hide that the gateway starts a server of its own; the table says what is ready.
        for name in ("pegboard.client", "pegboard.gateway"):
            logging.getLogger(name).setLevel(logging.WARNING)
    began = time.monotonic()
    demo = Demo()
    console = add_console(demo, chosen, options)

    def on_ready(url: str) -> None:
        first = announce_console(console, chosen, url)
        Announcement(demo, url, began, _more(url), wait=_CONNECT_SECONDS, first=first).start()

    run(demo, options, on_ready)
    return 0


def _more(url: str) -> list[str]:
    sloppy = """'{"city": "Oslo", "days": "3", "travellers": "Ada", "flexible": "yes"}'"""
    return [
        f"  call     {command()} call {url} everyday__desk__calculate a=2 b=3",
        f"  sloppy   {command()} call {url} everyday__desk__plan_trip {sloppy}",
        "  stop     Ctrl+C",
    ]


def _free_port(wanted: int) -> int:
    """The requested port, or any free one if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
    return wanted
