"""A small bench for trying the meta-tools on: a real board, whose tools go by qualified names."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from pegboard import Accepted, Board, Context, ToolError
from pegboard.auth.principal import ANONYMOUS
from pegboard.call import Call, Caller, Done, Json, Notification, Question, Reply, ask_in_result
from pegboard.config.rule_keys import read_rules
from pegboard.errors import UnknownTool
from pegboard.gateway.modes.meta_tool_host import Mode, ServerStatus, Toolbox, Visibility
from pegboard.gateway.modes.meta_tools import META_NAMES, MetaTools
from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.protocol.content import joined_text
from pegboard.protocol.revisions import MODERN
from pegboard.rules.verdicts import Rules, View
from pegboard.tools.qualified_names import explain_unknown, parse_name

TOOLBOXES = (
    Toolbox("dev", "Files and\n  sums", (ServerStatus("calc"), ServerStatus("files"))),
    Toolbox("ops", "Deployments", (ServerStatus("deploy"),)),
)


class Workbench:
    """A Bench over a Board; what callers may see and what is remembered of them is set by the test."""

    def __init__(
        self, mode: Mode = "proxy", *, toolboxes: Sequence[Toolbox] = TOOLBOXES, auto_tokens: int = 10_000
    ) -> None:
        self.board = make_board()
        self.toolboxes = toolboxes
        self.allowed = Visibility()
        self.remembered: dict[str, frozenset[str]] | None = None
        self.settled: list[str] = []
        self.directory = Directory()
        self.board.tools.explain_unknown = self._explain
        self.meta = MetaTools(self, mode, auto_tokens)
        self.refresh()
        for tool in self.meta.tools:
            self.board.add(tool)

    def restrict(self, *rules: Mapping[str, Any]) -> None:
        """Let callers see what these rules allow to everyone."""
        compiled = Rules(read_rules(rules), located=True)
        self.board._replace_rules(compiled)
        self.allowed = Visibility(compiled.view(ANONYMOUS))

    def refresh(self) -> None:
        for tool in self.board.tools:
            if tool.name not in META_NAMES and (place := parse_name(tool.name)) is not None:
                tool.toolbox, tool.server, tool.own_name = place.toolbox, place.server, place.tool
        self.directory = Directory(
            DirectoryEntry(tool.name, place, tool.definition(), tuple(tool.tags), tool)
            for tool in self.board.tools
            if tool.name not in META_NAMES and (place := parse_name(tool.name)) is not None
        )

    def _explain(self, name: str, view: View | None) -> UnknownTool:
        places = {entry.name: entry.place for entry in self.directory if self.allowed.admits(entry)}
        servers = {
            toolbox.name: [one.name for one in toolbox.servers]
            for toolbox in self.toolboxes
            if self.allowed.admits_server(toolbox.name)
        }
        return UnknownTool(explain_unknown(name, places, servers))

    def visibility(self, caller: Caller) -> Visibility:
        return self.allowed

    async def wait_connected(self, toolbox: str | None) -> None:
        if toolbox is not None:
            self.settled.append(toolbox)

    def call(self, call: Call) -> Coroutine[Any, Any, Reply]:
        return self.board.handler(call)

    async def opened(self, caller: Caller) -> frozenset[str] | None:
        return None if self.remembered is None else self.remembered.get(caller.session, frozenset())

    async def change_opened(self, caller: Caller, opened: frozenset[str]) -> None:
        assert self.remembered is not None
        self.remembered[caller.session] = opened

    def names(self, session: str = "") -> list[str]:
        """What this session is listed."""
        opened = None if self.remembered is None else self.remembered.get(session, frozenset())
        return [str(one["name"]) for one in self.meta.listed(self.allowed, opened)]


class Ear:
    """The channel of a caller that hears what is emitted, and is asked by answers."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def emit(self, notice: Notification) -> None:
        self.heard.append(notice.method)

    async def ask(self, asks: Mapping[str, Question]) -> Mapping[str, Json]:
        await ask_in_result(asks)

    async def close_stream(self, retry_ms: int) -> None:
        """There is none."""


async def send(host: Workbench, name: str, arguments: Any = None, **about: Any) -> Reply:
    """Call a tool as a door would, and have its reply as it is."""
    session, capabilities = about.pop("session", ""), about.pop("capabilities", {})
    raw = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments or {})
    call = Call(
        method="tools/call",
        caller=Caller(version=MODERN, transport="direct", session=session, capabilities=capabilities),
        channel=about.pop("channel", None) or Ear(),
        id=7,
        name=name,
        raw=Raw(raw),
        **about,
    )
    return await host.board.handler(call)


def said(reply: Reply) -> str:
    assert isinstance(reply, Done)
    result = reply.result
    assert isinstance(result, Mapping)
    text = joined_text(result["content"])
    return f"isError: {text}" if result.get("isError") else text


def make_board() -> Board:
    board = Board("bench")

    @board.tool("dev__calc__add", tags={"arithmetic"}, annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @board.tool("dev__calc__pi", annotations={"readOnlyHint": True}, icons="data:image/png;base64,AAAA")
    async def pi() -> float:
        """The ratio of a circle's circumference to its diameter."""
        return 3.14

    @board.tool("dev__files__echo", input_schema={"type": "object"})
    async def echo(call: Context) -> str:
        """Says what it was sent."""
        return bytes(call._call.raw).decode()

    @board.tool("dev__files__fail")
    async def fail() -> str:
        """Always fails."""
        raise ToolError("no such file")

    @board.tool("ops__deploy__roll_out")
    async def roll_out(service: str, ctx: Context) -> str:
        """Rolls out a service, after asking."""
        answer = await ctx.elicit(f"Roll out {service}?", bool, key="sure")
        return f"rolled out {service}" if isinstance(answer, Accepted) and answer.content else "left alone"

    @board.tool("ops__deploy__build", task="required")
    async def build() -> str:
        """Builds for a long time."""
        return "built"

    return board
