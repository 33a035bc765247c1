"""The meta-tools, which find and call tools that are not listed.

Theory of operation. Meta-tools are ordinary tools of an endpoint's board, answered by a relay. They do not depend on
earlier calls: opening a toolbox returns the definitions of its tools, and every tool can be called at any time, opened
or not. Only for a legacy session that lists its opened toolboxes does opening also change the list. A call of
`workbench_use_tool` becomes a call of the tool it names and takes the whole path of that tool: repair, middleware,
output check, questions and tasks see the tool's own name and arguments, and its reply is returned unchanged. The
caller returns a ticket with the same arguments, and therefore to the same tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from pegboard.call import EMPTY_OBJECT, Call, Done, Json, Notification, Reply
from pegboard.call_target import UNKNOWN_ITEM
from pegboard.errors import ToolError, UnknownTool
from pegboard.gateway.modes.instructions import shorten_instructions, write_instructions
from pegboard.gateway.modes.meta_tool_definitions import CLOSE, DETAILS, LIST, OPEN, SEARCH, SPELLINGS, USE, MetaTool
from pegboard.gateway.modes.meta_tool_host import MetaToolHost, Mode, Toolbox, Visibility
from pegboard.gateway.modes.mode_choice import (
    AUTO_TOKENS,
    ModeChoice,
    ModeCosts,
    ShownMode,
    TokenCounts,
    choose_modes,
    count_costs,
)
from pegboard.gateway.modes.tool_directory import DirectoryEntry
from pegboard.gateway.modes.tool_reference import (
    GATHERED,
    ToolReference,
    explain_missing,
    find_tool,
    read_tool_reference,
)
from pegboard.protocol.content import text_block
from pegboard.protocol.revisions import CHANGE_METHODS
from pegboard.tools.argument_parser import ParsedArguments
from pegboard.tools.qualified_names import in_result, parse_name
from pegboard.tools.tool import Tool

Detail: TypeAlias = Literal["name", "brief", "full"]

META_NAMES: Final = frozenset(SPELLINGS)
"""All names of meta-tools; no other tool may have one."""

_FEW, _MANY, _MOST = 5, 20, 50
# With more tools than this, a search would block the loop too long.
_QUICK: Final = 500
_MAX_LINE: Final = 160
# The server of a tool is named beside its definition; icons are not for models.
_OMITTED: Final = frozenset({"icons", "_meta"})

_encode = msgspec.json.Encoder().encode


class _Sent(Struct):
    """The arguments for the other tool, still as JSON text."""

    arguments: Raw = Raw(b"")


_decode_sent = msgspec.json.Decoder(_Sent).decode


class MetaTools:
    """The meta-tools of one endpoint, and the list of its tools."""

    def __init__(
        self,
        host: MetaToolHost,
        mode: Mode = "all",
        auto_tokens: int = AUTO_TOKENS,
        endpoint_mode: Mode | None = None,
    ) -> None:
        self._host = host
        self._choice = ModeChoice(mode, endpoint_mode, auto_tokens)
        self._tokens = TokenCounts()
        relays = {
            LIST: self._list_toolboxes,
            OPEN: self._open_toolbox,
            CLOSE: self._close_toolbox,
            SEARCH: self._search_tools,
            DETAILS: self._get_details,
            USE: self._use_tool,
        }
        self.tools: Sequence[Tool] = tuple(MetaTool(name, kind, relays[kind]) for name, kind in SPELLINGS.items())
        """All of them, including those that are callable and not listed."""
        shown = {tool.name: tool for tool in self.tools}
        self._for_proxy = [shown[name] for name in (LIST, OPEN, SEARCH, USE)]
        self._for_dynamic = [shown[name] for name in (LIST, OPEN, CLOSE, SEARCH, USE)]

    # -- what is listed ------------------------------------------------------------------------------------------------

    def listed(self, access: Visibility, opened: frozenset[str] | None) -> list[Mapping[str, Json]]:
        """The definitions for tools/list; `opened` is None for callers without a session."""
        directory = self._host.directory
        modes = self.modes(access)
        kinds = set(modes.values())
        if kinds <= {"all"} and (kinds or self._choice.without_toolboxes(access) in ("all", "auto")):
            meta: Sequence[Tool] = ()
        else:
            meta = self._for_dynamic if opened is not None and "dynamic" in kinds else self._for_proxy
        view = access.view
        shown = [entry.definition() for entry in meta if view is None or view.of(entry).listed]
        whole = {name for name in modes if self._is_listed(name, modes, opened)}
        return [
            *shown,
            *(entry.definition for entry in directory if entry.place.toolbox in whole and access.admits(entry)),
        ]

    def modes(self, access: Visibility) -> dict[str, ShownMode]:
        """The mode of each toolbox that a caller may see."""
        return choose_modes(self._host.toolboxes, self._host.directory, self._choice, access, self._tokens)

    @property
    def shows_tools(self) -> bool:
        """Whether the list depends on the servers; if not, clients need not wait for them."""
        everyone = Visibility()
        return any(self._choice.of(toolbox, everyone) in ("all", "auto") for toolbox in self._host.toolboxes)

    def instructions(self, access: Visibility | None = None) -> str:
        """The instructions for clients."""
        seen = access or Visibility()
        toolboxes = list(self._visible(seen).values())
        return write_instructions(toolboxes, self._host.directory, self.modes(seen), seen)

    def costs(self) -> ModeCosts:
        """The cost of each mode for a model."""
        proxy, dynamic = ([tool.definition() for tool in tools] for tools in (self._for_proxy, self._for_dynamic))
        return count_costs(self._host.directory, proxy, dynamic)

    @staticmethod
    def _is_listed(toolbox: str, modes: Mapping[str, ShownMode], opened: frozenset[str] | None) -> bool:
        mode = modes[toolbox]
        return mode == "all" or (mode == "dynamic" and opened is not None and toolbox in opened)

    # -- toolboxes -----------------------------------------------------------------------------------------------------

    def _visible(self, access: Visibility) -> dict[str, Toolbox]:
        """The toolboxes that a caller sees, with the servers it sees; one of which no tool is or can become visible is
        hidden."""
        if access.view is None:
            return {toolbox.name: toolbox for toolbox in self._host.toolboxes}
        visible: dict[str, Toolbox] = {}
        for toolbox in self._host.toolboxes:
            servers = tuple(server for server in toolbox.servers if access.admits_server(toolbox.name, server.name))
            tools = self._host.directory.of_toolbox(toolbox.name)
            if any(map(access.admits, tools)) or any(server.state != "ready" for server in servers):
                visible[toolbox.name] = structs.replace(toolbox, servers=servers)
        return visible

    async def _list_toolboxes(self, call: Call, parsed: ParsedArguments) -> Reply:
        access, opened = self._host.visibility(call.caller), await self._host.opened(call.caller)
        directory, modes = self._host.directory, self.modes(access)
        listed: list[dict[str, Json]] = []
        for name, toolbox in self._visible(access).items():
            answer: dict[str, Json] = {
                "name": name,
                "description": toolbox.description,
                "tool_count": sum(map(access.admits, directory.of_toolbox(name))),
                "is_open": self._is_listed(name, modes, opened),
            }
            listed.append({**answer, **_describe_states(toolbox)})
        open_count = sum(entry["is_open"] is True for entry in listed)
        return _text_result({"toolboxes": listed, "total_count": len(listed), "open_count": open_count})

    async def _open_toolbox(self, call: Call, parsed: ParsedArguments) -> Reply:
        access, name = self._host.visibility(call.caller), parsed.arguments["toolbox_name"]
        self._find_toolbox(name, access)
        await self._host.wait_connected(name)
        toolbox, directory = self._find_toolbox(name, access), self._host.directory
        entries = [entry for entry in directory.of_toolbox(name) if access.admits(entry)]
        failed = [server for server in toolbox.servers if server.problem]
        if failed and not entries:
            causes = "; ".join(
                f"Failed to connect to MCP server '{status.name}': {status.problem}" for status in failed
            )
            raise ToolError(f"Error opening toolbox '{name}': {causes}")
        await self._set_opened(call, name, is_open=True)
        modes = self.modes(access)
        # If so, the list of this session has the definitions now.
        listed = modes[name] == "dynamic" and self._is_listed(name, modes, await self._host.opened(call.caller))
        tools = [_describe_tool(entry, brief=listed) for entry in entries]
        answer: dict[str, Json] = {
            "toolbox": name,
            "description": toolbox.description,
            "servers_connected": sum(server.state == "ready" for server in toolbox.servers),
            **_describe_states(toolbox),
        }
        shown = {entry.place.server for entry in entries}
        instructions = {
            status.name: shorten_instructions(status.instructions)
            for status in toolbox.servers
            if status.instructions and status.name in shown
        }
        if instructions:
            answer["instructions"] = instructions
        return _text_result({**answer, "tools": tools})

    async def _close_toolbox(self, call: Call, parsed: ParsedArguments) -> Reply:
        name = parsed.arguments["toolbox_name"]
        self._find_toolbox(name, self._host.visibility(call.caller))
        if name not in (await self._host.opened(call.caller) or ()):
            raise ToolError(f"Toolbox '{name}' is not currently open")
        await self._set_opened(call, name, is_open=False)
        return Done({"content": [text_block(f"Successfully closed toolbox '{name}' and unregistered tools.")]})

    async def _set_opened(self, call: Call, toolbox: str, *, is_open: bool) -> None:
        """Change the tool list of a session, and notify it on the stream of this call."""
        caller = call.caller
        before = await self._host.opened(caller)
        if before is None or self.modes(self._host.visibility(caller)).get(toolbox) != "dynamic":
            return
        after = before | {toolbox} if is_open else before - {toolbox}
        if after != before:
            await self._host.change_opened(caller, after)
            await call.channel.emit(Notification(CHANGE_METHODS["tools"], {}))

    def _find_toolbox(self, name: str, access: Visibility) -> Toolbox:
        known = self._visible(access)
        toolbox = known.get(name)
        if toolbox is None:
            there = f"Available toolboxes: {', '.join(known)}" if known else "There are no toolboxes"
            raise ToolError(f"Error: Toolbox '{name[:128]}' not found. {there}")
        return toolbox

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def _search_tools(self, call: Call, parsed: ParsedArguments) -> Reply:
        access, asked = self._host.visibility(call.caller), parsed.arguments
        within: str | None = asked.get("toolbox_name")
        if within is not None:
            self._find_toolbox(within, access)
        directory = self._host.directory
        if not directory.index.is_ready:
            # Let other calls run in between.
            await asyncio.to_thread(directory.index.prepare)

        def admits(entry: DirectoryEntry) -> bool:
            return (within is None or entry.place.toolbox == within) and access.admits(entry)

        if len(directory) > _QUICK:
            found = await asyncio.to_thread(directory.search, asked["query"], admits)
        else:
            found = directory.search(asked["query"], admits)
        detail: Detail = asked.get("detail", "full")
        limit = min(asked.get("limit", _FEW if detail == "full" else _MANY), _MOST)
        answer: dict[str, Json] = {"found": len(found), "servers": _group(found[:limit], detail)}
        down: dict[str, dict[str, str]] = {}
        for toolbox in self._visible(access).values():
            # The last known tools of a server that is lost are found all the same.
            known = {entry.place.server for entry in directory.of_toolbox(toolbox.name)}
            for server, state in _describe_states(toolbox).get("servers", {}).items():
                key = "unavailable" if server in known else "not_searched"
                down.setdefault(key, {})[f"{toolbox.name}/{server}"] = state
        answer.update(down)
        if not found:
            answer["hint"] = "No match; try other words, or workbench_list_toolboxes"
        return _text_result(answer)

    async def _get_details(self, call: Call, parsed: ParsedArguments) -> Reply:
        wanted = read_tool_reference(parsed.arguments)
        access = self._host.visibility(call.caller)
        entry = find_tool(wanted, self._host.directory, access)
        if entry is None:
            raise ToolError(self._explain(wanted, access))
        if not access.admits(entry):
            # The endpoint says why, as for a call of this tool.
            return await self._host.call(_call_of(call, entry.name, EMPTY_OBJECT))
        return _text_result(_describe_tool(entry))

    async def _use_tool(self, call: Call, parsed: ParsedArguments) -> Reply:
        wanted = read_tool_reference(parsed.arguments)
        if wanted.name in META_NAMES:
            raise ToolError(f"Error: call '{wanted.name}' directly, not through {call.name}")
        access = self._host.visibility(call.caller)
        entry = find_tool(wanted, self._host.directory, access)
        if entry is None:
            if connecting := self._unconnected(wanted, access):
                await self._host.wait_connected(connecting)
            elif wanted.place is None and parse_name(wanted.name) is None:
                # A name without a server may belong to any of those that are connecting.
                await self._host.wait_connected(None)
            entry = find_tool(wanted, self._host.directory, access)
        if entry is None:
            return await self._refuse(call, wanted, access)
        if wanted.toolbox and wanted.toolbox != entry.place.toolbox:
            self._find_toolbox(wanted.toolbox, access)
            raise ToolError(
                f"Error: Tool '{entry.name}' is in toolbox '{entry.place.toolbox}', not in '{wanted.toolbox[:128]}'"
            )
        return await self._host.call(_call_of(call, entry.name, _arguments(call, parsed)))

    async def _refuse(self, call: Call, wanted: ToolReference, access: Visibility) -> Reply:
        """Answer a call of an unknown tool, inside the middleware, which counts it."""
        why = self._explain(wanted, access)
        try:
            return await self._host.call(_call_of(call, wanted.describe, EMPTY_OBJECT))
        except UnknownTool as problem:
            if wanted.place is None:
                # The endpoint knows more, such as withheld tools.
                why = in_result(problem.message)
        raise ToolError(why)

    def _unconnected(self, wanted: ToolReference, access: Visibility) -> str:
        """The toolbox that may contain the tool if its server has not connected yet; empty if there is none."""
        place = wanted.place or parse_name(wanted.name)
        toolbox = None if place is None else self._visible(access).get(place.toolbox)
        if place is None or toolbox is None:
            return ""
        waiting = any(
            server.name == place.server and server.state in ("idle", "connecting") for server in toolbox.servers
        )
        return toolbox.name if waiting else ""

    def _explain(self, wanted: ToolReference, access: Visibility) -> str:
        return explain_missing(wanted, self._host.directory, self._visible(access), access)


def _call_of(call: Call, name: str, arguments: Raw) -> Call:
    """The call of the other tool; answers and ticket belong to that tool.

    Headers mirror the arguments of the meta-tool, so they are dropped.
    """
    return structs.replace(
        call,
        name=name,
        raw=arguments,
        headers=None,
        tool=UNKNOWN_ITEM,
        parsed=None,
        failed=False,
        _sent=UNSET,
        _raw_as_sent=None,
        _state=None,
        _origin=None,
        _task=None,
        _rounds=None,
        _asked=False,
    )


def _arguments(call: Call, parsed: ParsedArguments) -> Raw:
    """The arguments for the other tool: the JSON text that was sent, unless it had to be repaired or collected."""
    if any(warning.code == GATHERED for warning in parsed.warnings):
        return Raw(_encode(parsed.arguments["arguments"]))
    try:
        sent = _decode_sent(call.raw).arguments
    except msgspec.DecodeError:
        sent = Raw(b"")
    return sent if bytes(sent)[:1] == b"{" else Raw(_encode(parsed.arguments.get("arguments", {})))


def _text_result(value: Json) -> Done:
    return Done({"content": [text_block(_encode(value).decode("utf-8"))]})


def _describe_states(toolbox: Toolbox) -> dict[str, dict[str, str]]:
    """The servers whose tools are not all available, with the reason."""
    states = {
        server.name: server.problem or server.state
        for server in toolbox.servers
        if server.problem or server.state != "ready"
    }
    return {"servers": states} if states else {}


def _describe_tool(entry: DirectoryEntry, *, brief: bool = False) -> dict[str, Json]:
    """A tool in the result of opening its toolbox: its definition, or a line about it, and its server."""
    place = entry.place
    definition = {key: value for key, value in entry.definition.items() if key not in _OMITTED}
    return {
        **(_describe_match(entry, "brief") if brief else definition),
        "server": place.server,
        "toolbox": place.toolbox,
        "source_server": place.server,
        "toolbox_name": place.toolbox,
    }


def _group(entries: Iterable[DirectoryEntry], detail: Detail) -> list[dict[str, Json]]:
    """The tools by server; the server of the best match comes first."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for entry in entries:
        match = entry.name if detail == "name" else _describe_match(entry, detail)
        groups.setdefault((entry.place.toolbox, entry.place.server), []).append(match)
    return [{"toolbox": toolbox, "server": server, "tools": tools} for (toolbox, server), tools in groups.items()]


def _describe_match(entry: DirectoryEntry, detail: Detail) -> dict[str, Json]:
    description = entry.definition.get("description")
    place = entry.place
    # The group names the server.
    about = (
        description.removeprefix(f"[{place.toolbox}/{place.server}]").strip() if isinstance(description, str) else ""
    )
    if detail == "brief":
        line = about.partition("\n")[0]
        return {"name": entry.name, "description": line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"}
    definition = {key: value for key, value in entry.definition.items() if key not in _OMITTED}
    return {**definition, "description": about} if about else definition
