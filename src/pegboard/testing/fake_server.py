"""A fake MCP server with canned answers, alone or in place of the servers of a gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pegboard.board import Board
from pegboard.call import Call, Done, Handler, Json, Reply
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, read_config
from pegboard.errors import ConnectionLost, SetupError, ToolError
from pegboard.gateway.gateway import Gateway
from pegboard.testing.recording import RecordedCall, read_recording
from pegboard.testing.single_call import give_answer
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.relayed_tool import RelayedTool
from pegboard.tools.tool_result import ResultWriter

_ANY: Mapping[str, Json] = {"type": "object"}
_MAX_LISTED = 10


class FakeCall(Struct, frozen=True):
    """A call that a fake server got: the `tool`, and the `arguments` after repair."""

    tool: str
    arguments: Mapping[str, Any]


class FakeServer(Board):
    """A server whose tools give canned answers; `calls` lists what was called.

    `name` is the name of the server. `answers` maps the names of tools to what they return, to an exception that they
    raise, or to a function of the arguments, sync or async. Set `down` to make every request fail, as if the server
    could not be reached.
    """

    def __init__(self, name: str = "fake", answers: Mapping[str, Any] | None = None) -> None:
        super().__init__(name)
        self.calls: list[FakeCall] = []
        self.down = False
        for tool, answer in (answers or {}).items():
            self.answer(tool, answer)

    @classmethod
    def replay(cls, path: str | Path, name: str = "replay") -> FakeServer:
        """Return a server called `name` with the tools and results that a Recording wrote to the file at `path`.

        A call that was recorded several times gets its results in that order, and then the last one again.
        """
        recorded = read_recording(path)
        server = cls(name)
        for definition in recorded.tools:
            calls = [call for call in recorded.calls if call.tool == definition["name"]]
            server.answer(str(definition["name"]), _Replay(calls), definition)
        return server

    def answer(self, tool: str, answer: Any, definition: Mapping[str, Json] | None = None) -> None:
        """Add a `tool` with this `answer`, or change its answer.

        `definition` is what `tools/list` shows; without it, the tool accepts any arguments.
        """
        shown = {"inputSchema": _ANY, **(definition or {"description": f"A fake of {tool}."}), "name": tool}

        async def relay(call: Call, parsed: ParsedArguments) -> Reply:
            arguments: Any = parsed.arguments
            self.calls.append(FakeCall(tool, arguments))
            return await give_answer(answer, arguments, ResultWriter(name=tool))

        if tool in {known.name for known in self.tools}:
            self.remove(tool)
        self.add(RelayedTool(shown, relay, source=f"fake server {self.name!r}"))

    @property
    def handler(self) -> Handler:
        """The server as a Handler; fails while it is `down`."""
        inner = super().handler

        async def handle(call: Call) -> Reply:
            if self.down:
                raise ConnectionLost(f"{self.name} is down")
            return await inner(call)

        return handle


class _Replay:
    """Answers with recorded results, by the arguments."""

    def __init__(self, calls: list[RecordedCall]) -> None:
        self._results: dict[str, list[Mapping[str, Json]]] = {}
        for call in calls:
            self._results.setdefault(_key(call.arguments), []).append(call.result)

    def __call__(self, arguments: Mapping[str, Any]) -> Done:
        results = self._results.get(_key(arguments))
        if results is None:
            known = ", ".join(list(self._results)[:_MAX_LISTED]) or "nothing"
            raise ToolError(f"No call with these arguments was recorded: {_key(arguments)}; recorded: {known}")
        return Done(results.pop(0) if len(results) > 1 else results[0])


def _key(arguments: object) -> str:
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def fake_gateway(
    config: str | Path | GatewayConfig, servers: Mapping[str, Board], environ: Mapping[str, str] | None = None
) -> Gateway:
    """Return a gateway of a `config` whose `servers`, by `name` or `toolbox/name`, are replaced by boards.

    All else in the configuration applies: names, filters, changed tools, middleware. Servers without a replacement are
    left out, so a test never starts a process or opens a connection. `environ` is the environment for the variables.
    """
    read = config if isinstance(config, GatewayConfig) else read_config(config, environ)
    boards: dict[str, Board] = {}
    toolboxes = {}
    for toolbox in read.toolboxes.values():
        chosen: dict[str, ServerConfig] = {}
        for server in toolbox.servers.values():
            name = f"{toolbox.name}/{server.name}"
            board = servers.get(name) or servers.get(server.name)
            if board is not None and server.problem:
                raise SetupError(f"{name}: {server.problem}; set it in environ=")
            if board is not None:
                boards[name] = board
                chosen[server.name] = replace(
                    server, kind="board", board=name, command=(), url="", share="all", enabled=True
                )
        toolboxes[toolbox.name] = replace(toolbox, servers=chosen)
    unknown = [name for name in servers if not any(name in (full, full.partition("/")[2]) for full in boards)]
    if unknown:
        listed = ", ".join(f"{box.name}/{name}" for box in read.toolboxes.values() for name in box.servers)
        raise SetupError(f"The configuration has no server {unknown[0]!r}; it has {listed or 'none'}")
    return Gateway(replace(read, toolboxes=toolboxes, lock="off"), boards=boards, environ=environ, watch=False)
