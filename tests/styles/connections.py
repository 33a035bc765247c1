"""Ways to a board that all look alike from here: a call goes in, a result of revision 2026-07-28 comes out."""

from __future__ import annotations

import asyncio
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from pegboard import Board, Client, Gateway
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.errors import Refusal
from pegboard.protocol.content import joined_text
from pegboard.testing import MemoryServer
from tests.server_processes import MODERN, PEGBOARD, ROOT, HttpChild, StdioChild, modern
from tests.waiting import SOON

LEGACY = "2025-11-25"

WARNINGS = "dev.pegboard/parseWarnings"
ERRORS = "dev.pegboard/parseErrors"


class Answered(Exception):
    """A JSON-RPC error came back."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Door(ABC):
    """A board, reached by one road."""

    @abstractmethod
    def request(self, method: str, params: dict[str, Any], told: list[str]) -> dict[str, Any]:
        """The result of a request; the messages of progress notices go to `told`."""

    def call(self, name: str, arguments: Any = UNSET, told: list[str] | None = None) -> dict[str, Any]:
        """What a tool answers; with `told`, progress is asked for."""
        params = {"name": name, "arguments": {} if arguments is UNSET else arguments}
        return self.request("tools/call", params, [] if told is None else told)

    def spelling(self, name: str) -> str:
        """How the name of a tool is written here."""
        return name

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The definitions by name, as `spelling` writes it."""
        return {tool["name"]: tool for tool in self.request("tools/list", {}, [])["tools"]}


class InProcess(Door):
    """A client in this process: `connect` opens it, for each request or once for all."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]], runner: asyncio.Runner) -> None:
        self._connect = connect
        self._runner = runner

    def request(self, method: str, params: dict[str, Any], told: list[str]) -> dict[str, Any]:
        arguments = params.get("arguments", {})
        raw = arguments if isinstance(arguments, Raw) else _raw(arguments)
        named = {"name": self.spelling(params["name"]), "arguments": raw} if "name" in params else {}

        async def send() -> Mapping[str, Any]:
            async with self._connect() as client:
                return await client.request(
                    method, **named, progress=lambda _done, _total, text: told.append(text or "")
                )

        try:
            return dict(self._runner.run(send()))
        except Refusal as refusal:
            raise Answered({"code": refusal.code, "message": refusal.message, "data": refusal.data}) from None


class BehindGateway(InProcess):
    """A client of a gateway, which writes the names of tools without dots."""

    def spelling(self, name: str) -> str:
        return name.replace(".", "_")


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


Opener: TypeAlias = Callable[[Path], AbstractContextManager[Door]]


class Stdio(Door):
    def __init__(self, child: StdioChild) -> None:
        self._child = child

    def request(self, method: str, params: dict[str, Any], told: list[str]) -> dict[str, Any]:
        before = len(self._child.messages)
        answer = self._child.request(method, modern(params, progressToken="t"))
        told += [
            message["params"].get("message", "")
            for message in self._child.messages[before:]
            if message.get("method") == "notifications/progress"
        ]
        return _result(answer)


class Http(Door):
    def __init__(self, child: HttpChild) -> None:
        self._child = child

    def request(self, method: str, params: dict[str, Any], told: list[str]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": modern(params, progressToken="t")}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            **({"Mcp-Name": params["name"]} if "name" in params else {}),
        }
        connection = self._child.connect()
        try:
            connection.request("POST", self._child.path, json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.headers.get_content_type() != "text/event-stream":
            return _result(json.loads(text))
        *notices, answer = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        told += [notice["params"].get("message", "") for notice in notices]
        return _result(answer)


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise Answered(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def _board_of(path: Path) -> Board:
    board: Board = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)).board
    return board


def _local(make_target: Callable[[Board], Any], version: str) -> Opener:
    @contextmanager
    def open_local(path: Path) -> Iterator[Door]:
        board = _board_of(path)
        with asyncio.Runner() as runner:
            yield InProcess(lambda: Client(make_target(board), version=version), runner)

    return open_local


def _behind_gateway(version: str) -> Opener:
    """A gateway whose only server is the board."""

    @contextmanager
    def open_gateway(path: Path) -> Iterator[Door]:
        server = ServerConfig(name="board", kind="board", board="board")
        toolbox = ToolboxConfig(name="dev", description="Under test", names="plain", servers={"board": server})
        config = GatewayConfig(path="", name="gateway", lock="off", toolboxes={"dev": toolbox})
        gateway = Gateway(config, boards={"board": _board_of(path)})
        client = Client(MemoryServer(gateway), version=version)
        with asyncio.Runner() as runner:
            runner.run(client.__aenter__())
            try:
                runner.run(gateway.wait_connected(SOON))
                yield BehindGateway(lambda: nullcontext(client), runner)
            finally:
                runner.run(client.__aexit__(None, None, None))

    return open_gateway


@contextmanager
def _open_stdio(path: Path) -> Iterator[Door]:
    with StdioChild(*PEGBOARD, "run", path, "--stdio") as child:
        yield Stdio(child)


@contextmanager
def _open_http(path: Path) -> Iterator[Door]:
    with HttpChild(target=path) as child:
        yield Http(child)


# Both eras, at the board itself and behind a gateway, without a process.
ROADS: dict[str, Opener] = {
    "direct": _local(lambda board: board, MODERN),
    "legacy": _local(MemoryServer, LEGACY),
    "gateway": _behind_gateway(MODERN),
    "legacy gateway": _behind_gateway(LEGACY),
}
PROCESSES: dict[str, Opener] = {"stdio": _open_stdio, "http": _open_http}
DOORS = {**ROADS, **PROCESSES}


def text_of(result: Mapping[str, Any]) -> str:
    """The text blocks that the tool returned."""
    return joined_text(result["content"])


def codes_of(result: Mapping[str, Any], kind: str = WARNINGS) -> list[str]:
    """The codes of the warnings, or of the errors, that a result carries."""
    return [note["code"] for note in result.get("_meta", {}).get(kind, [])]
