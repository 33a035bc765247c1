"""A board whose tools are another server's: the least gateway there can be, served on a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from pegboard import Board
from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Channel, Reply
from pegboard.config.gateway_config import ServerConfig
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.forwarding.outcome import Destination
from pegboard.gateway.servers.downstream import Downstream
from pegboard.limits import Limits
from pegboard.protocol.revisions import NAMED
from pegboard.security.seal import read_keys
from pegboard.server.http.guard import Guard
from pegboard.server.http.listener import listen
from pegboard.server.streamable_http.mcp_endpoint import HttpEndpoint
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.relayed_tool import RelayedTool
from pegboard.tools.tool_result import ResultWriter
from tests.waiting import until

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
KEYS = read_keys("a secret that only these tests have")
ASKABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@asynccontextmanager
async def served(board: Board) -> AsyncIterator[str]:
    """A board on a port, in this loop."""
    endpoint = HttpEndpoint(board.handler, board.info, limits=board.limits, guard=Guard())
    server = await listen(endpoint, board.limits)
    try:
        yield f"http://127.0.0.1:{server.port}/mcp"
    finally:
        await server.close()
        await board.stop()


@dataclass
class Crossing:
    """A gateway with one server behind it."""

    downstream: Downstream
    forwarder: Forwarder
    board: Board = field(default_factory=lambda: Board("gateway"))
    destinations: dict[str, Destination] = field(default_factory=dict)

    async def hang(self) -> None:
        """Every tool of the server, under its own name."""
        listed = await self.downstream.send("tools/list", {}, NULL_CHANNEL)
        for definition in listed["tools"]:
            self.add(definition)

    def add(self, definition: Mapping[str, Any]) -> None:
        name = definition["name"]
        hints = definition.get("annotations") or {}
        source = f"{self.downstream.toolbox}/{self.downstream.name}"
        destination = self.destinations[name] = Destination(
            downstream=self.downstream,
            tool=name,
            tell=ResultWriter(definition.get("outputSchema"), name=f"{source}: {name}").pass_on,
            repeatable=bool(hints.get("readOnlyHint") or hints.get("idempotentHint")),
            as_task=(definition.get("execution") or {}).get("taskSupport") == "required",
        )

        async def relay(call: Call, parsed: ParsedArguments) -> Reply:
            return await self.forwarder.forward(
                destination, call, {"name": destination.tool, "arguments": Raw(msgspec.json.encode(parsed.value))}
            )

        self.board.tools.add(RelayedTool(definition, relay, source=source, toolbox="dev"))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        principal: str = "alice",
        channel: Channel = NULL_CHANNEL,
        capabilities: Mapping[str, Any] = ASKABLE,
        version: str = MODERN,
        answers: Mapping[str, Any] | None = None,
        ticket: str | None = None,
        token: str | int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Reply:
        """A call as a door makes it, of anybody."""
        caller = Caller(version=version, transport="http", principal=Principal(principal), capabilities=capabilities)
        call = Call(
            method="tools/call",
            caller=caller,
            channel=channel,
            id=1,
            name=name,
            raw=Raw(msgspec.json.encode(arguments or {})),
            params=Raw(msgspec.json.encode({"name": name, "arguments": arguments or {}, "_meta": meta or {}})),
            answers=None if answers is None else Raw(msgspec.json.encode(answers)),
            ticket=ticket,
            token=token,
        )
        return await self.board.handler(call)

    async def task(self, method: str, task_id: str, principal: str = "alice", **params: Any) -> Mapping[str, Any]:
        """One of the methods about tasks."""
        caller = Caller(version=MODERN, transport="http", principal=Principal(principal), capabilities=TASKS)
        call = Call(method=method, caller=caller, channel=NULL_CHANNEL, id=1, name=task_id)
        call.params = Raw(msgspec.json.encode({NAMED[method]: task_id, **params}))
        if "inputResponses" in params:
            call.answers = Raw(msgspec.json.encode(params["inputResponses"]))
        reply = await self.forwarder.task(call)
        assert isinstance(reply.result, Mapping)
        return reply.result


def config(target: str | list[str], version: str | None, **more: Any) -> ServerConfig:
    """How a server at a URL or behind a command is configured."""
    if isinstance(target, str):
        return ServerConfig(name="there", kind="http", url=target, version=version, **more)
    return ServerConfig(name="there", kind="stdio", command=tuple(target), version=version, **more)


@asynccontextmanager
async def crossing(
    target: Board | str | list[str], version: str | None = None, *, limits: Limits | None = None, **more: Any
) -> AsyncIterator[Crossing]:
    """A gateway in front of a server, which is spoken to in that revision; a board is served for it."""
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(target)) if isinstance(target, Board) else target
        downstream = Downstream("dev", config(address, version, **more), on_change=_pass, on_updated=_pass)
        stack.push_async_callback(downstream.stop)
        await downstream.wait_connected()
        made = Crossing(
            downstream, Forwarder("crossing", KEYS, lambda *place: made.destinations.get(place[2]), limits or Limits())
        )
        stack.push_async_callback(made.forwarder.close)
        await made.hang()
        yield made
        await until(lambda: not len(made.forwarder.parking_lot) and not downstream.in_flight)


def _pass(*_: object) -> None:
    """Nobody follows."""
