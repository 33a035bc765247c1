"""What floods do to others and to memory: `floods.py [NAME] [--small] [--seconds S] [--json]`, each flood against a new server.

While a flood goes on, `others.py` calls a tool by every road from a process of its own. Memory is the server's resident
set: before the flood, at its highest, and once all that the flood opened is closed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

import messages
from processes import CORES, HERE, Server, pin, stop

MEGABYTE = 1024 * 1024
P99_SECONDS = 3.0
PEAK_MEGABYTES = 200
KEPT_MEGABYTES = 40
"""What may be held on to: pages that are half empty, and freed memory that the allocator keeps for the next time."""
SETTLE_SECONDS = 40.0
# How long the others may take to begin, and a flood longer than it should, until they have called.
ENOUGH_SECONDS = 30.0
STORMERS = 4
HEADING = " ".join(
    (f"{'':32}", f"{'calls':>6}", f"{'p50 ms':>8}", f"{'p99 ms':>8}", f"{'longest':>8}", f"{'before MB':>10}",
     f"{'peak +MB':>9}", f"{'kept +MB':>9}")
)  # fmt: skip


class Ground:
    """Where one flood goes on: it opens what it likes, and all of that is closed at the end."""

    def __init__(self, server: Server, size: int, seconds: float, told: Others) -> None:
        self.server = server
        self.port = server.port
        self.size = size
        self._opened: list[socket.socket] = []
        self._until = time.monotonic() + seconds
        self._told = told

    @property
    def over(self) -> bool:
        """Whether its time is over and others have called meanwhile, or never will."""
        late = time.monotonic() - self._until
        return late >= 0 and (self._told.enough or late >= ENOUGH_SECONDS)

    def connect(self, say: bytes = b"") -> socket.socket:
        """A connection that takes in little of what nobody reads."""
        one = socket.socket()
        self._opened.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(10)
        # The server may have cut it: that is one of the ways in which it ends a flood.
        with contextlib.suppress(OSError):
            one.connect(("127.0.0.1", self.port))
            one.sendall(say)
        return one

    def upgrade(self) -> socket.socket:
        """A WebSocket."""
        key = base64.b64encode(bytes(16)).decode()
        lines = ("GET /ws HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: Upgrade", "Upgrade: websocket",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13")  # fmt: skip
        one = self.connect("\r\n".join([*lines, "", ""]).encode())
        with contextlib.suppress(OSError):
            one.recv(4096)
        return one

    def wait(self) -> None:
        """Leave all that is open as it is until the flood is over."""
        while not self.over:
            time.sleep(0.02)

    def close(self) -> None:
        for one in self._opened:
            one.close()


def frame(opcode: int, payload: bytes, *, fin: bool = True, length: int | None = None) -> bytes:
    """A frame of a WebSocket as clients send it; of more bytes than it has where a length is said."""
    return (
        bytes([opcode | (0x80 if fin else 0), 0x80 | 127])
        + (len(payload) if length is None else length).to_bytes(8, "big")
        + bytes(4)
        + payload
    )


def modern(port: int, method: str, params: Mapping[str, Any]) -> bytes:
    """A POST of 2026-07-28."""
    headers = {"MCP-Protocol-Version": messages.MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return messages.post(port, messages.modern(method, params, 1, token=True), headers)


def legacy(port: int, method: str, params: Mapping[str, Any], session: str) -> bytes:
    """A POST in a session."""
    headers = {"MCP-Protocol-Version": messages.LEGACY, "Mcp-Session-Id": session}
    return messages.post(port, messages.write(method, {**params, "_meta": {"progressToken": 1}}, 1), headers)


def get(port: int, session: str, last: str = "") -> bytes:
    """A GET in a session, to go on after an event."""
    lines = ["GET /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/event-stream",
             f"MCP-Protocol-Version: {messages.LEGACY}", f"Mcp-Session-Id: {session}"]  # fmt: skip
    return "\r\n".join([*lines, *([f"Last-Event-ID: {last}"] if last else []), "", ""]).encode()


def call(tool: str, **arguments: int) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": tool, "arguments": arguments}


MUCH = call("say", count=400, size=4096)


# -- slow readers ------------------------------------------------------------------------------------------------------


def slow_posts(ground: Ground) -> None:
    for _ in range(ground.size):
        ground.connect(legacy(ground.port, *MUCH, ground.server.open_session()))
    ground.wait()


def slow_modern_posts(ground: Ground) -> None:
    for _ in range(ground.size):
        ground.connect(modern(ground.port, *MUCH))
    ground.wait()


def slow_gets(ground: Ground) -> None:
    for _ in range(ground.size):
        session = ground.server.open_session()
        for number in range(5):
            ground.server.ask(legacy(ground.port, "resources/subscribe", {"uri": uri(number)}, session))
        ground.connect(get(ground.port, session))
    churn(ground)


def slow_listens(ground: Ground) -> None:
    wanted = {"notifications": {"resourceSubscriptions": [uri(number) for number in range(200)]}}
    for _ in range(ground.size):
        ground.connect(modern(ground.port, "subscriptions/listen", wanted))
    churn(ground)


def slow_answers(ground: Ground) -> None:
    for _ in range(ground.size):
        ground.connect(modern(ground.port, *call("answer", size=2 * MEGABYTE)))
    ground.wait()


def slow_sockets(ground: Ground) -> None:
    for _ in range(ground.size):
        one = ground.upgrade()
        with contextlib.suppress(OSError):
            one.sendall(frame(1, messages.modern(*MUCH, 1, token=True)))
            one.sendall(frame(1, start("pour", count=2000, size=65536)[0]))
            for number in range(2, 10):
                one.sendall(frame(1, messages.modern(*call("answer", size=MEGABYTE // 4), number)))
    ground.wait()


def uri(number: int) -> str:
    return f"notes://{number:01000}"


def churn(ground: Ground) -> None:
    while not ground.over:
        ground.server.ask(modern(ground.port, *call("churn", count=200, length=1000)))


def start(tool: str, **arguments: int) -> tuple[bytes, bytes]:
    """What begins a stream of bytes, and what stands before its chunks."""
    guid = uuid4()
    meta = {"method": tool, "binary": True, "arguments": arguments}
    return json.dumps({"type": "start", "id": str(guid), "meta": meta}).encode(), guid.bytes_le


# -- half of something -------------------------------------------------------------------------------------------------


def half_heads(ground: Ground) -> None:
    filler = "".join(f"x-{number}: {'x' * 990}\r\n" for number in range(30))
    half = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{ground.port}\r\n{filler}".encode()
    for _ in range(ground.size):
        ground.connect(half)
    ground.wait()


def half_bodies(ground: Ground) -> None:
    whole = messages.post(ground.port, bytes(4 * MEGABYTE), {})
    for _ in range(ground.size):
        ground.connect(whole[: -MEGABYTE // 4])
    ground.wait()


def short_lines(ground: Ground) -> None:
    """Much more memory than bytes: a line of six bytes is two objects and an entry of a dict."""
    lines = "".join(f"{number}:ab\r\n" for number in range(98))
    half = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{ground.port}\r\n{lines}".encode()
    for _ in range(ground.size):
        ground.connect(half)
    ground.wait()


def pipelined(ground: Ground) -> None:
    """Very many requests behind one whose answer does not end."""
    first = modern(ground.port, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    behind = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 6000
    for _ in range(ground.size):
        one = ground.connect(first)
        one.settimeout(0.1)
        with contextlib.suppress(OSError):
            one.sendall(behind)
    ground.wait()


def small_chunks(ground: Ground) -> None:
    """Half a body in chunks of two bytes, or a whole one and half of its trailer."""
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{ground.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = head + b"2\r\nxy\r\n" * 30_000
    trailer = head + b"2000\r\n" + b"x" * 8192 + b"\r\n0\r\nx: " + b"x" * 30_000
    for number in range(ground.size):
        ground.connect(trailer if number % 2 else chunks)
    ground.wait()


def small_messages(ground: Ground) -> None:
    """Very many messages of a few bytes from those who do not read."""
    flood = b"".join(bytes([0x80 | opcode, 0x82, 0, 0, 0, 0]) + b"{}" for opcode in (1, 2)) * 15_000
    for _ in range(ground.size):
        one = ground.upgrade()
        one.settimeout(0.1)
        with contextlib.suppress(OSError):
            one.sendall(frame(1, start("pour", count=2000, size=65536)[0]))
            one.sendall(flood)
    ground.wait()


def half_frames(ground: Ground) -> None:
    half = frame(1, b"x" * (4 * MEGABYTE - MEGABYTE // 4), length=4 * MEGABYTE)
    parts = frame(1, b"x" * MEGABYTE, fin=False) + frame(0, b"x" * 2 * MEGABYTE, fin=False)
    for number in range(ground.size):
        with contextlib.suppress(OSError):
            ground.upgrade().sendall(parts if number % 2 else half)
    ground.wait()


def unread_uploads(ground: Ground) -> None:
    for _ in range(ground.size):
        one = ground.upgrade()
        begin, key = start("ignore")
        chunks = b"".join(frame(2, key + index.to_bytes(8, "little") + bytes(65536)) for index in range(64))
        one.settimeout(0.1)
        with contextlib.suppress(OSError):
            one.sendall(frame(1, begin) + chunks)
    ground.wait()


# -- storms ------------------------------------------------------------------------------------------------------------


def storm(ground: Ground, step: Callable[[], None]) -> None:
    """Do it again and again, some at a time, as often as it goes."""

    def go_on() -> None:
        while not ground.over:
            # A server that is flooded may refuse, or cut.
            with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError):
                step()

    stormers = [threading.Thread(target=go_on) for _ in range(STORMERS)]
    for one in stormers:
        one.start()
    for one in stormers:
        one.join()


def reconnects(ground: Ground) -> None:
    """Open a stream, cut it, come back for the rest, cut that: in as many sessions as the size says, in turn."""
    sessions = [ground.server.open_session() for _ in range(ground.size)]

    def step() -> None:
        session = sessions.pop(0)
        sessions.append(session)
        last = hear(ground, legacy(ground.port, *call("say", count=50, size=1024), session))
        for _ in range(4):
            last = hear(ground, get(ground.port, session, last)) or last
        hear(ground, get(ground.port, session))

    storm(ground, step)


def hear(ground: Ground, request: bytes) -> str:
    """Send a request, read how its stream begins, and hang up; the id of the last event seen."""
    with socket.create_connection(("127.0.0.1", ground.port), timeout=10) as one:
        one.sendall(request)
        found = re.findall(rb"^id: ?(\S+)", one.recv(4096), re.MULTILINE)
        return found[-1].decode() if found else ""


def sessions(ground: Ground) -> None:
    """Sessions without end, and some of them say a lot of themselves."""
    hello = {**messages.INITIALIZE[1], "capabilities": {"experimental": {"x": {"y": "z" * 8000}}}}
    plain, long = (
        messages.post(ground.port, messages.write("initialize", one, 0), {}) for one in (messages.INITIALIZE[1], hello)
    )

    def step() -> None:
        with socket.create_connection(("127.0.0.1", ground.port), timeout=10) as one:
            for request in (plain, long) * 50:
                one.sendall(request)
                response = http.client.HTTPResponse(one, method="POST")
                response.begin()
                response.read()

    storm(ground, step)


def socket_flood(ground: Ground) -> None:
    """WebSockets, each with open streams, and the same again and again."""
    for _ in range(ground.size):
        one = ground.upgrade()
        with contextlib.suppress(OSError):
            one.sendall(b"".join(frame(1, start("ignore")[0]) for _ in range(3)))

    def step() -> None:
        one = ground.upgrade()
        one.sendall(b"".join(frame(1, start("ignore")[0]) for _ in range(20)))
        one.sendall(frame(1, messages.modern(*messages.ADD, 1)))
        one.recv(4096)
        one.close()

    storm(ground, step)


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flood:
    """One kind of flood, and how many of what it opens: in a test, and else."""

    name: str
    go: Callable[[Ground], None]
    small: int
    large: int


FLOODS = (
    Flood("slow readers: POST 2025-11-25", slow_posts, 60, 1000),
    Flood("slow readers: POST 2026-07-28", slow_modern_posts, 60, 1000),
    Flood("slow readers: GET", slow_gets, 60, 500),
    Flood("slow readers: listen", slow_listens, 60, 1000),
    Flood("slow readers: long answers", slow_answers, 100, 1000),
    Flood("slow readers: /ws", slow_sockets, 100, 500),
    Flood("half-open: heads", half_heads, 500, 8000),
    Flood("half-open: bodies", half_bodies, 100, 1000),
    Flood("half-open: short header lines", short_lines, 1000, 8000),
    Flood("half-open: pipelined requests", pipelined, 100, 1000),
    Flood("half-open: small chunks", small_chunks, 100, 1000),
    Flood("half-open: frames of /ws", half_frames, 100, 1000),
    Flood("half-open: small messages of /ws", small_messages, 60, 500),
    Flood("half-open: uploads nobody reads", unread_uploads, 300, 1000),
    Flood("storm: reconnects", reconnects, 50, 500),
    Flood("storm: sessions", sessions, 0, 0),
    Flood("storm: /ws", socket_flood, 100, 1300),
)


@dataclass(frozen=True)
class Figures:
    """What one flood did: times are seconds of the others' calls, memory is MB over what was held before."""

    name: str
    calls: int
    p50: float
    p99: float
    longest: float
    wrong: list[str]
    before: float
    peak: float
    kept: float

    @property
    def faults(self) -> list[str]:
        """Where the bounds were not held."""
        found = list(dict.fromkeys(self.wrong))
        if self.p99 >= P99_SECONDS:
            found.append(f"p99 {self.p99:.2f} s")
        if self.peak > PEAK_MEGABYTES:
            found.append(f"{self.peak:.0f} MB over baseline")
        if self.kept > KEPT_MEGABYTES:
            found.append(f"{self.kept:.0f} MB not given back")
        return found


def measure(flood: Flood, size: int, seconds: float, python: str = sys.executable) -> Figures:
    """One flood against a server of its own."""
    with Server("flooded.py", tools=0, python=python) as server:
        server.wait()
        draining = threading.Thread(target=_drain, args=(server,), daemon=True)
        draining.start()
        with others(server.port) as told:
            told.wait_until_warm()
            before = server.memory()
            told.begin()
            ground = Ground(server, size, seconds, told)
            try:
                flood.go(ground)
            finally:
                ground.close()
            found = told.end()
        peak = _highest(server)
        until = time.monotonic() + SETTLE_SECONDS
        while (kept := server.memory() - before) > KEPT_MEGABYTES * MEGABYTE and time.monotonic() < until:
            time.sleep(0.1)
    took = sorted(found["seconds"])
    cuts = quantiles(took, n=100) if len(took) > 1 else [0.0] * 99
    return Figures(
        flood.name, len(took), cuts[49], cuts[98], took[-1] if took else 0.0, found["wrong"],
        before / MEGABYTE, (peak - before) / MEGABYTE, kept / MEGABYTE,
    )  # fmt: skip


class Others:
    """Those who call meanwhile."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._lines: list[str] = []
        self._warm = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._output:
            self._lines.append(line)
            self._warm.set()

    def wait_until_warm(self) -> None:
        """Until they have all called."""
        assert self._warm.wait(ENOUGH_SECONDS), "those who call meanwhile did not begin"

    @property
    def enough(self) -> bool:
        """Whether they have all called since the beginning."""
        return len(self._lines) > 1

    def begin(self) -> None:
        """From now on it counts how long they wait."""
        self._input.write("\n")
        self._input.flush()

    def end(self) -> dict[str, Any]:
        """What they have met."""
        self._input.close()
        self._reading.join(30)
        found: dict[str, Any] = json.loads(self._lines[-1])
        return found


@contextlib.contextmanager
def others(port: int) -> Iterator[Others]:
    words = [sys.executable, str(HERE / "others.py"), str(port)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pin(process.pid, CORES[1:])
    try:
        yield Others(process)
    finally:
        stop(process)


def _drain(server: Server) -> None:
    """A server that logs must not wait for us; what held its event loop is passed on."""
    if server.process.stderr is not None:
        for line in server.process.stderr:
            if b"the event loop" in line:
                sys.stderr.write(line.decode(errors="replace"))


def _highest(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="only floods that have this in their name")
    parser.add_argument("--small", action="store_true", help="sizes for a test")
    parser.add_argument("--seconds", type=float, help="how long each goes on")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each instead of the table")
    chosen = parser.parse_args()
    allow_files()
    if not chosen.json:
        print(HEADING)
    for flood in FLOODS:
        if chosen.name in flood.name:
            size = flood.small if chosen.small else flood.large
            found = measure(flood, size, chosen.seconds or (1.5 if chosen.small else 8.0))
            if chosen.json:
                print(json.dumps({**asdict(found), "faults": found.faults}), flush=True)
            else:
                print(tell(found), flush=True)


def tell(found: Figures) -> str:
    """One line of the table."""
    times = " ".join(f"{one * 1000:8.1f}" for one in (found.p50, found.p99, found.longest))
    memory = f"{found.before:10.1f} {found.peak:9.1f} {found.kept:9.1f}"
    return f"{found.name:32} {found.calls:6} {times} {memory}  {'; '.join(found.faults[:3]) or 'ok'}"


def allow_files() -> None:
    """Open as many connections as the system lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
