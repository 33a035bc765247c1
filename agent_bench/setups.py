"""The ways in which an agent reaches the tools: over stdio or HTTP, from the board or through a gateway."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from agent_bench.cases import Case
from agent_bench.job import ROOT

_PEGBOARD = [sys.executable, "-m", "pegboard"]
_BOARD = str(Path(__file__).resolve().parent / "bench_board.py")
START_WITHIN = 30.0


@dataclass(frozen=True)
class Setup:
    """How the tools are served."""

    transport: Literal["stdio", "HTTP"]
    serving: Literal["board", "gateway, all", "gateway, proxy"]

    @property
    def name(self) -> str:
        return f"{self.serving}, {self.transport}"

    def can_show(self, case: Case) -> bool:
        return case.server is None or self.serving == "gateway, proxy"

    def command(self, home: Path, vault: str) -> list[str]:
        """The command that serves; it needs `--stdio`, or `--http` and a port."""
        if self.serving == "board":
            return [*_PEGBOARD, "run", _BOARD]
        config = home / "gateway.json"
        entry = {"command": sys.executable, "args": ["-m", "pegboard", "run", _BOARD, "--stdio"]}
        config.write_text(json.dumps({"mcpServers": {"bench": entry, "vault": {"url": vault}}}))
        return [*_PEGBOARD, "up", str(config), "--mode", self.serving.rpartition(" ")[2]]

    @contextmanager
    def serving_to(self, home: Path) -> Iterator[tuple[list[str] | None, str | None]]:
        """Serve: the command that an agent starts, or the URL that it connects to."""
        with _locked_server() as vault:
            command = self.command(home, vault)
            if self.transport == "stdio":
                yield [*command, "--stdio"], None
            else:
                with _running(command, home) as url:
                    yield None, url


SETUPS = tuple(
    Setup(transport, serving)
    for serving in ("board", "gateway, all", "gateway, proxy")
    for transport in ("stdio", "HTTP")
)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_WITHIN
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with opener.open(url, timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{url} is not ready; the server ended with {process.poll()}")


@contextmanager
def _running(command: list[str], home: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--http", "--port", str(port)],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/ready", process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _locked_server() -> Iterator[str]:
    """A server that rejects every request until its client logs in; gives its URL."""

    class Locked(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server calls
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the method that it replaces
            """Nothing to record."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Locked)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
