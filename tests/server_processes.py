"""Servers in processes of their own, spoken to over stdio or HTTP."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from tests.stalls import reported_stalls
from tests.waiting import HANGS, wait_until

ROOT = Path(__file__).resolve().parent.parent
ROUGH = ROOT / "tests" / "misbehaving_board.py"
PEGBOARD = (sys.executable, "-m", "pegboard")
# The same where uvloop is not installed.
PLAIN_PEGBOARD = (
    sys.executable,
    "-c",
    "import sys; sys.modules['uvloop'] = None; from pegboard.cli.main import main; main(sys.argv[1:])",
)
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def modern(params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """Params with the envelope of a modern request."""
    return {**(params or {}), "_meta": {**META, **meta}}


class Child:
    """A server process, killed at the latest when its block ends.

    The test fails if the server reported that its code held the event loop, unless it `may_stall`.
    """

    may_stall = False

    def __init__(self, *command: str | Path, stdin: Any = subprocess.PIPE, stdout: Any = subprocess.PIPE, **env: str):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 — it lives as long as the process
        self.process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            stdin=stdin,
            stdout=stdout,
            stderr=self._log,
            bufsize=0,
            env={**os.environ, **env},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        stalls = [] if self.may_stall else reported_stalls(self.said())
        self._log.close()
        assert kind is not None or not stalls, stalls

    def said(self) -> str:
        """What it wrote to stderr so far."""
        return os.pread(self._log.fileno(), 10_000_000, 0).decode(errors="replace")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = HANGS) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(seconds)


class Speaker(Child):
    """One who speaks with a server in messages; `write` takes them a line each."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Beyond the ids that tests choose themselves, whose answers may still be in `messages`.
        self._ids = itertools.count(1000)
        self._came: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.messages: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def send(self, method: str, params: dict[str, Any] | None = None, *, as_id: Any = None) -> Any:
        """Send a request; its id."""
        request_id = next(self._ids) if as_id is None else as_id
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self.write(json.dumps(message).encode() + b"\n")
        return request_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        """The next message from the server."""
        message = self._came.get(timeout=HANGS)
        assert message is not None, f"the server hung up; it said:\n{self.said()}"
        self.messages.append(message)
        return message

    def answer(self, request_id: Any) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept in `messages`."""
        for message in self.messages:
            if "method" not in message and message.get("id") == request_id:
                return message
        while True:
            message = self.next()
            if "method" not in message and message.get("id") == request_id:
                return message

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.answer(self.send(method, params))

    def start_call(self, name: str, *, as_id: Any = None, token: Any = None, **arguments: Any) -> Any:
        """Send a modern tools/call; its id."""
        meta = {} if token is None else {"progressToken": token}
        return self.send("tools/call", modern({"name": name, "arguments": arguments}, **meta), as_id=as_id)

    def call(self, name: str, **arguments: Any) -> str:
        """The text that a tool answers with."""
        answer = self.answer(self.start_call(name, **arguments))
        text: str = answer["result"]["content"][0]["text"]
        return text

    def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Shake hands as legacy clients do."""
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        answer = self.request("initialize", hello)
        self.notify("notifications/initialized", {})
        return answer

    def rest(self) -> list[dict[str, Any]]:
        """All that is still to come until the server hangs up."""
        came = []
        while (message := self._came.get(timeout=HANGS)) is not None:
            came.append(message)
        return came


class StdioChild(Speaker):
    """A server on stdio."""

    def __init__(self, *command: str | Path, read: bool = True, **env: str) -> None:
        super().__init__(*(command or (*PEGBOARD, "run", ROUGH, "--stdio")), **env)
        self._reader = threading.Thread(target=self._read, daemon=True)
        if read:
            self.read()

    def read(self) -> None:
        """Begin to read what the server says."""
        self._reader.start()

    def __exit__(self, *about: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self._reader.ident is not None:
            self._reader.join(HANGS)
        super().__exit__(*about)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with open(self.process.stdout.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self._came.put(json.loads(line))
        self._came.put(None)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


class HttpChild(Child):
    """A server on HTTP, on a port it chose itself."""

    def __init__(
        self,
        *more: str,
        target: str | Path = ROUGH,
        command: tuple[str, ...] = PEGBOARD,
        verb: str = "run",
        shown: str = "127.0.0.1",
        **env: str,
    ) -> None:
        # Not the address of the console, which may be shown first.
        self._shown = re.compile(rf"https?://{re.escape(shown)}:(\d+)(/(?!console/)\S+)")
        super().__init__(
            *command, verb, target, "--http", "--port", "0", *more, stdin=subprocess.DEVNULL, stdout=None, **env
        )
        try:
            wait_until(lambda: self._url() is not None or self.process.poll() is not None)
        except BaseException:
            self.__exit__()
            raise
        url = self._url()
        assert url is not None, f"it ended with {self.process.returncode} and said:\n{self.said()}"
        self.port, self.path = int(url[1]), url[2]

    def _url(self) -> re.Match[str] | None:
        return self._shown.search(self.said())

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)

    def start_call(self, name: str, **arguments: Any) -> http.client.HTTPConnection:
        """Send a modern tools/call; the connection to read its answer from."""
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": modern({"name": name, "arguments": arguments}),
        }
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        connection = self.connect()
        connection.request("POST", self.path, json.dumps(body), headers)
        return connection

    def call(self, name: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
        return finish(self.start_call(name, **arguments))

    def text(self, name: str, **arguments: Any) -> str:
        """The text that a tool answers with."""
        status, answer = self.call(name, **arguments)
        assert status == 200, answer
        text: str = answer["result"]["content"][0]["text"]
        return text

    def get(self, path: str) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def open_socket(port: int, **options: Any) -> ClientConnection:
    """A connection without keepalive pings: a thread of their own would draw them from `random`, which Hypothesis
    watches while it runs other tests of this process."""
    return connect(f"ws://127.0.0.1:{port}/ws", compression=None, proxy=None, ping_interval=None, **options)


class OnSocket(Speaker):
    """Speaks over a WebSocket of a server that listens on `port`."""

    port: int
    _socket: ClientConnection | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rest = b""
        self._opened = ExitStack()
        self._socket = self._opened.enter_context(open_socket(self.port, max_size=None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._socket is not None
        for message in self._socket:
            self._came.put(json.loads(message))
        self._came.put(None)

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        assert self._socket is not None
        for line in lines:
            self._socket.send(line, text=True)

    @property
    def close_code(self) -> int | None:
        """What the server's goodbye says."""
        assert self._socket is not None
        return self._socket.close_code

    def __exit__(self, *about: object) -> None:
        if self._socket is not None:
            self._opened.close()
            self._reader.join(HANGS)
        super().__exit__(*about)


class WsChild(OnSocket, HttpChild):
    """A server on HTTP, spoken to over its WebSocket."""


class UvicornChild(Child):
    """A board mounted under another server; `app` is the application that is made of it."""

    def __init__(self, module: str = "tests.misbehaving_board", app: str = "board.asgi(ws='/ws')", **env: str) -> None:
        serve = f"import uvicorn; from {module} import board; uvicorn.run({app}, port=0)"
        super().__init__(sys.executable, "-c", serve, stdin=subprocess.DEVNULL, stdout=None, **env)
        shown = re.compile(r"Uvicorn running on http://127\.0\.0\.1:(\d+)")
        try:
            wait_until(lambda: shown.search(self.said()) is not None or self.process.poll() is not None)
        except BaseException:
            self.__exit__()
            raise
        found = shown.search(self.said())
        assert found is not None, f"it ended with {self.process.returncode} and said:\n{self.said()}"
        self.port = int(found[1])


class MountedWsChild(OnSocket, UvicornChild):
    """The same, spoken to over its WebSocket."""


def finish(connection: http.client.HTTPConnection) -> tuple[int, dict[str, Any]]:
    """The status and the answer, be it JSON or the last event of a stream."""
    try:
        response = connection.getresponse()
        body = response.read()
        if response.headers.get_content_type() == "text/event-stream":
            body = re.findall(rb"^data: (.*)$", body, re.MULTILINE)[-1]
        return response.status, json.loads(body)
    finally:
        connection.close()
