"""The HTTP server of the scripted model: every request is recorded, and the script decides the next turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Protocol

from agent_bench.model_server.anthropic_messages import AnthropicMessages
from agent_bench.model_server.conversation import Conversation, ModelApi, Turn
from agent_bench.model_server.gemini_content import GeminiContent
from agent_bench.model_server.openai_chat import OpenAiChat
from agent_bench.model_server.openai_responses import OpenAiResponses

APIS: tuple[ModelApi, ...] = (AnthropicMessages(), OpenAiResponses(), OpenAiChat(), GeminiContent())
# Agents send their whole history with each request; a long result is the largest part of it.
BODY_BYTES = 64 * 2**20


class Script(Protocol):
    """Decides what the model does next."""

    def next_turn(self, conversation: Conversation) -> Turn: ...


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    body: Any


class ScriptedServer:
    """Serves one script on loopback, in every API at once."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self._script = script
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"scripted": self}))
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def _record(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def _next_turn(self, conversation: Conversation) -> Turn:
        with self._lock:
            return self._script.next_turn(conversation)


class _Handler(BaseHTTPRequestHandler):
    """One connection of an agent; a subclass for each server says which server it belongs to."""

    protocol_version = "HTTP/1.1"
    scripted: ClassVar[ScriptedServer]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.scripted._record(Request(self.command, path, None))
        if path.endswith("/models"):
            model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "script"}
            self._answer(200, {"object": "list", "data": [model]})
        else:
            self._reject(path)

    do_HEAD = do_GET  # noqa: N815  # the name that http.server calls

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body = self._body()
        self.scripted._record(Request(self.command, path, body))
        for api in APIS:
            if api.matches(path) and isinstance(body, dict):
                self._take_turn(api, path, body)
                return
            if (side := api.side_answer(path)) is not None:
                self._answer(200, side)
                return
        self._reject(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the method that it replaces
        """Requests are recorded instead."""

    def _take_turn(self, api: ModelApi, path: str, body: Mapping[str, Any]) -> None:
        conversation = api.read(path, body)
        turn = self.scripted._next_turn(conversation)
        if not conversation.stream:
            self._answer(200, api.write(turn))
            return
        lines = []
        for event in api.stream(turn):
            data = event.data if isinstance(event.data, str) else json.dumps(event.data)
            lines.append(f"event: {event.name}\ndata: {data}\n\n" if event.name else f"data: {data}\n\n")
        self._send(200, "text/event-stream", "".join(lines).encode())

    def _body(self) -> Any:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), BODY_BYTES))
        try:
            return json.loads(data)
        except ValueError:
            return data.decode("utf-8", "replace")

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(min(size, BODY_BYTES))
            self.rfile.readline()
        self.rfile.readline()

    def _reject(self, path: str) -> None:
        self._answer(404, {"error": {"message": f"{path}: the scripted model does not serve this"}})

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
