"""Ways to a board that all look alike from here: a call goes in, a result of revision 2026-07-28 comes out."""

from __future__ import annotations

import asyncio
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from pegboard import Board, Client
from pegboard.errors import Refusal
from pegboard.protocol.content import joined_text
from tests.server_processes import MODERN, PEGBOARD, ROOT, HttpChild, StdioChild, modern

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

    def call(self, name: str, arguments: Any = None, told: list[str] | None = None) -> dict[str, Any]:
        """What a tool answers; with `told`, progress is asked for."""
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        return self.request("tools/call", params, [] if told is None else told)

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.request("tools/list", {}, [])["tools"]}


class Direct(Door):
    def __init__(self, board: Board, runner: asyncio.Runner) -> None:
        self._board = board
        self._runner = runner

    def request(self, method: str, params: dict[str, Any], told: list[str]) -> dict[str, Any]:
        arguments = Raw(msgspec.json.encode(params.get("arguments", {})))

        async def send() -> Mapping[str, Any]:
            async with Client(self._board) as client:
                return await client.request(
                    method,
                    name=params.get("name", ""),
                    arguments=arguments,
                    progress=lambda _done, _total, message: told.append(message or ""),
                )

        try:
            return dict(self._runner.run(send()))
        except Refusal as refusal:
            raise Answered({"code": refusal.code, "message": refusal.message, "data": refusal.data}) from None


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


@contextmanager
def _open_direct(path: Path) -> Iterator[Door]:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    with asyncio.Runner() as runner:
        yield Direct(importlib.import_module(name).board, runner)


@contextmanager
def _open_stdio(path: Path) -> Iterator[Door]:
    with StdioChild(*PEGBOARD, "run", path, "--stdio") as child:
        yield Stdio(child)


@contextmanager
def _open_http(path: Path) -> Iterator[Door]:
    with HttpChild(target=path) as child:
        yield Http(child)


DOORS = {"direct": _open_direct, "stdio": _open_stdio, "http": _open_http}


def text_of(result: Mapping[str, Any]) -> str:
    """The text blocks that the tool returned."""
    return joined_text(result["content"])


def codes_of(result: Mapping[str, Any], kind: str = WARNINGS) -> list[str]:
    """The codes of the warnings, or of the errors, that a result carries."""
    return [note["code"] for note in result.get("_meta", {}).get(kind, [])]
