"""The ways from a client to a server that are compared: none between, our gateway, and the gateways of others."""

from __future__ import annotations

import json
import os
import re
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
TOOL = "bench__one__add"
ANSWER_BYTES = 4 << 20
_ID = re.compile(rb'"id": ?([0-9]+)')

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


def our_gateway(config: str, python: str = sys.executable, *flags: str) -> Gateway:
    """`pegboard up`, as everybody starts it without further flags."""
    port = free_port()
    return Gateway("pegboard up", port, [*our_words(config, python), "--http", "--port", str(port), *flags])


def byte_copy(downstream: Downstream, python: str = sys.executable) -> Gateway:
    """Not a gateway, but what every gateway takes at least."""
    port = free_port()
    target = [str(downstream.port)] if downstream.kind == "http" else downstream.words(python)
    return Gateway("a copy of bytes", port, command("floor.py", str(port), *target, python=python))


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
        # One for all answers: to get and give back a large one takes as long as our server's answer.
        self._held = bytearray(ANSWER_BYTES)

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
        held, size = self._held, 0
        with memoryview(held) as room:
            while True:
                part = self._socket.recv_into(room[size:])
                if not part:
                    raise RuntimeError(f"the connection was closed: {bytes(room[:size][:300])!r}")
                size += part
                end = held.find(b"\r\n\r\n", 0, size) + 4
                if end < 4:
                    continue
                head = bytes(room[:end]).lower()
                at = head.find(b"content-length:")
                wanted = end + int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else None
                if size >= wanted if wanted is not None else held.endswith(b"0\r\n\r\n", end, size):
                    if head[9:10] != b"2":
                        raise RuntimeError(f"answered {bytes(room[:size][:500])!r}")
                    return bytes(room[end:size])

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
        pin(self.process.pid, CORES[:1])
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
        held, wanted = bytearray(), _ID.findall(message)[-1]
        while True:
            if not select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
                raise RuntimeError("no answer")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise RuntimeError(f"ended before it answered: {bytes(held[:300])!r}")
            held += part
            if part.endswith(b"\n"):
                last = held[held.rfind(b"\n", 0, -1) + 1 :]
                found = _ID.search(last)
                if found is not None and found[1] == wanted:
                    return bytes(last)

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
