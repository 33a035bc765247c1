"""The ways from a client to a server that are compared: none between, our gateway, and the gateways of others."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, Self

import messages
from processes import CORES, ROOT, Listening, command, free_port, own_cpu_seconds, own_memory, pin, stop

MCP_PROXY = ROOT / ".peers" / "mcp1" / "bin" / "mcp-proxy"
ANSWER_SECONDS = 60.0
TOOLS = 26

_PLACE = tempfile.TemporaryDirectory(prefix="pegboard-bench-")
_numbers = count()


@dataclass(frozen=True)
class Downstream:
    """The server at the end: whose it is, how it is reached, and where it was put."""

    script: str
    kind: str
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def words(self, python: str) -> list[str]:
        """How it is started on stdio."""
        return command(self.script, "stdio", "0", str(TOOLS), python=python)


class Gateway(Listening):
    """A gateway at a port, measured without the servers that it has started."""

    def cpu_seconds(self) -> float:
        return own_cpu_seconds(self.process.pid)

    def memory(self) -> int:
        return own_memory(self.process.pid)


def our_words(config: str, python: str) -> list[str]:
    return [python, "-m", "pegboard", "up", config, "--no-watch"]


def our_config(servers: Mapping[str, Any]) -> str:
    """A configuration of these servers in one toolbox."""
    return written({"lock": "off", "toolboxes": {"bench": {"description": "Measured", "mcpServers": servers}}})


def written(value: object) -> str:
    """A file of JSON, which is gone when the run is over."""
    path = Path(_PLACE.name) / f"{next(_numbers)}.json"
    path.write_text(json.dumps(value))
    return str(path)


def our_entry(downstream: Downstream, version: str, python: str) -> dict[str, Any]:
    """How our configuration names a server."""
    if downstream.kind == "http":
        return {"type": "http", "url": downstream.url, "version": version}
    program, *words = downstream.words(python)
    return {"command": program, "args": words, "version": version}


def our_gateway(config: str, python: str = sys.executable) -> Gateway:
    """`pegboard up`, as everybody starts it."""
    port = free_port()
    return Gateway("pegboard up", port, [*our_words(config, python), "--http", "--port", str(port)])


def fastmcp_proxy(downstream: Downstream) -> Gateway:
    port = free_port()
    target = [downstream.url] if downstream.kind == "http" else downstream.words(sys.executable)
    return Gateway("FastMCP's proxy", port, command("fastmcp_proxy.py", str(port), *target))


def mcp_proxy(downstream: Downstream) -> Gateway:
    """Only in front of stdio: the other way round it is a client's child, see `mcp_proxy_words`."""
    port = free_port()
    return Gateway("mcp-proxy", port, [str(MCP_PROXY), "--port", str(port), "--", *downstream.words(sys.executable)])


def mcp_proxy_words(downstream: Downstream) -> list[str]:
    return [str(MCP_PROXY), "--transport", "streamablehttp", downstream.url]


class Posting:
    """Over one connection of HTTP/1.1, in a session where the era has one."""

    def __init__(self, server: Listening, era: str) -> None:
        self._port = server.port
        self._fields: dict[str, str] = {"MCP-Protocol-Version": era}
        if era == messages.LEGACY:
            self._fields["Mcp-Session-Id"] = server.open_session()
        self._socket: socket.socket | None = None

    def ready(self, method: str, params: Mapping[str, Any]) -> cycle[bytes]:
        """Requests of this kind without end, written beforehand."""
        if "Mcp-Session-Id" in self._fields:
            return cycle(messages.legacy_posts(self._port, method, params, self._fields["Mcp-Session-Id"]))
        return cycle(messages.modern_posts(self._port, method, params))

    def connect(self) -> None:
        """Just before it is used: some servers close what is silent for five seconds."""
        self.close()
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, message: bytes) -> bytes:
        assert self._socket
        self._socket.sendall(message)
        held = b""
        while True:
            part = self._socket.recv(1 << 20)
            if not part:
                raise RuntimeError(f"the connection was closed: {held[:300]!r}")
            held += part
            head, blank, body = held.partition(b"\r\n\r\n")
            if not blank:
                continue
            at = head.lower().find(b"content-length:")
            wanted = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else None
            if len(body) >= wanted if wanted is not None else body.endswith(b"0\r\n\r\n"):
                if head[9:10] != b"2":
                    raise RuntimeError(f"answered {held[:500]!r}")
                return body

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class Piping:
    """Over the pipes of a child."""

    def __init__(self, words: list[str], era: str) -> None:
        self._era = era
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, bufsize=0
        )
        if era == messages.LEGACY:
            self.ask(messages.write(*messages.INITIALIZE, 0) + b"\n")
            self._write(messages.write("notifications/initialized", {}, None) + b"\n")

    def connect(self) -> None:
        """It is, for as long as it lives."""

    def ready(self, method: str, params: Mapping[str, Any]) -> cycle[bytes]:
        """Requests of this kind without end, written beforehand."""
        write = messages.write if self._era == messages.LEGACY else messages.modern
        return cycle([write(method, messages.vary(params, number), number) + b"\n" for number in messages.NUMBERS])

    def ask(self, message: bytes) -> bytes:
        self._write(message)
        assert self.process.stdout
        held, number = b"", json.loads(message)["id"]
        while True:
            if not select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
                raise RuntimeError("no answer")
            part = os.read(self.process.stdout.fileno(), 1 << 20)
            if not part:
                raise RuntimeError(f"ended before it answered: {held[:300]!r}")
            held += part
            if held.endswith(b"\n"):
                last = held[held.rfind(b"\n", 0, -1) + 1 :]
                if json.loads(last).get("id") == number:
                    return last

    def _write(self, message: bytes) -> None:
        assert self.process.stdin
        os.write(self.process.stdin.fileno(), message)

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        stop(self.process)
        self.process.stdout.close()


class Route:
    """One way, open: its times, and its requests of each kind."""

    def __init__(self, name: str, way: Posting | Piping, tool: str, server: Listening | None = None) -> None:
        self.name = name
        self.server = server
        self._way = way
        self._calls = way.ready("tools/call", {"name": tool, "arguments": {"a": 2, "b": 3}})
        self._lists = way.ready("tools/list", {})
        self.calls: list[float] = []
        self.lists: list[float] = []

    def check(self) -> None:
        """See that calls and lists are answered rightly."""
        self._way.connect()
        said = self._way.ask(next(self._calls))
        if b'"text":"5' not in said.replace(b'": "', b'":"'):
            raise RuntimeError(f"{self.name} answered {said[:500]!r}")
        listed = self._way.ask(next(self._lists))
        if listed.count(b'"inputSchema"') < TOOLS:
            raise RuntimeError(f"{self.name} listed {listed[:500]!r}")

    def call(self, times: int) -> None:
        """One call after the other."""
        self._way.connect()
        self._ask(self._calls, times, self.calls)

    def list_tools(self, times: int) -> None:
        self._ask(self._lists, times, self.lists)

    def _ask(self, requests: cycle[bytes], times: int, took: list[float]) -> None:
        for request in islice(requests, times):
            began = time.perf_counter()
            self._way.ask(request)
            took.append(time.perf_counter() - began)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._way.close()
        if self.server is not None:
            stop(self.server.process)


def through(name: str, gateway: Gateway, era: str, tool: str) -> Route:
    """The route through a gateway at a port."""
    # Whoever waits for one answer at a time has no use for a core of its own, and is not kept from one that is free.
    pin(gateway.process.pid, CORES)
    try:
        gateway.wait()
        return Route(name, Posting(gateway, era), tool, gateway)
    except BaseException:
        stop(gateway.process)
        raise


def wait_until_listed(server: Listening, wanted: int, seconds: float = 60.0) -> list[dict[str, Any]]:
    """What a gateway lists once it lists so many tools."""
    until = time.monotonic() + seconds
    request = messages.modern_posts(server.port, *messages.LIST)[0]
    while True:
        tools: list[dict[str, Any]] = server.ask(request)[1]["result"]["tools"]
        if len(tools) >= wanted:
            return tools
        if time.monotonic() > until:
            raise RuntimeError(f"{server.name} lists {len(tools)} tools instead of {wanted}")
        time.sleep(0.02)
