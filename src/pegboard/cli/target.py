"""What `list` and `call` are pointed at: a board in a file, or a server at an address."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pegboard import __version__
from pegboard.cli.load import load_board
from pegboard.client.client import CallResult, Client, Progress, read_result
from pegboard.errors import PegboardError, SetupError
from pegboard.protocol.headers import encode_value
from pegboard.protocol.params import PREFIX
from pegboard.protocol.sse import EventReader
from pegboard.protocol.versions import MODERN

_SECONDS = 60.0


class CannotConnect(PegboardError):
    """There is no server at the address, or it does not answer as one."""


class _Error(Struct):
    code: int
    message: str


class _Answer(Struct):
    result: dict[str, object] | None = None
    error: _Error | None = None


class _Progress(Struct):
    progress: float
    total: float | None = None
    message: str | None = None


class _Notice(Struct):
    params: _Progress | None = None


class _Listing(Struct):
    tools: list[dict[str, object]]


class Target(Protocol):
    """Somewhere with tools."""

    async def list_tools(self) -> list[dict[str, object]]: ...

    async def call(self, name: str, arguments: Mapping[str, object], *, progress: Progress) -> CallResult: ...


def open_target(text: str) -> Target:
    """A URL is a server, anything else a file."""
    if text.startswith(("http://", "https://")):
        return Address(text)
    return Client(load_board(text), name="pegboard")


class Address:
    """A server over HTTP, asked in the newest revision."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            if not host:
                raise ValueError
        except ValueError:
            raise SetupError(f"{url!r} is not an address; write it like http://127.0.0.1:7332/mcp") from None
        self._url = url
        self._path = parts.path or "/mcp"
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = connect(host, port, timeout=_SECONDS)

    async def list_tools(self) -> list[dict[str, object]]:
        result = self._ask("tools/list", "", {})
        try:
            return msgspec.convert(result, _Listing).tools
        except msgspec.ValidationError as problem:
            raise CannotConnect(f"{self._url} answered with no list of tools: {problem}") from None

    async def call(self, name: str, arguments: Mapping[str, object], *, progress: Progress) -> CallResult:
        return read_result(self._ask("tools/call", name, {"name": name, "arguments": arguments}, progress))

    def _ask(
        self, method: str, name: str, params: Mapping[str, object], progress: Progress | None = None
    ) -> Mapping[str, object]:
        meta: dict[str, object] = {} if progress is None else {"progressToken": 1}
        meta |= {
            PREFIX + "protocolVersion": MODERN,
            PREFIX + "clientInfo": {"name": "pegboard", "version": __version__},
            PREFIX + "clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
        }
        if name:
            headers["Mcp-Name"] = encode_value(name).decode("ascii")
        try:
            self._connection.request("POST", self._path, msgspec.json.encode(body), headers)
            response = self._connection.getresponse()
            if response.headers.get_content_type() == "text/event-stream":
                data = _read_stream(response, progress)
            else:
                data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise CannotConnect(f"Cannot reach {self._url}: {error}. Is the server running?") from None
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except msgspec.DecodeError:
            answer = _Answer()
        if answer.error is not None:
            raise SetupError(f"{answer.error.message} (code {answer.error.code})")
        if answer.result is None:
            raise CannotConnect(f"{self._url} answered {response.status} and no MCP message")
        return answer.result


def _read_stream(response: http.client.HTTPResponse, progress: Progress | None) -> bytes:
    """The answer, which is the last event of its stream; what is told of progress before it is handed on at once."""
    reader, last = EventReader(), b""
    while line := response.readline():
        for event in reader.feed(line):
            last = event.data.encode()
            with contextlib.suppress(msgspec.DecodeError):
                params = msgspec.json.decode(last, type=_Notice).params
                if progress is not None and params is not None:
                    progress(params.progress, params.total, params.message)
    return last
