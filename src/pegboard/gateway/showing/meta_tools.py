"""The tools through which all others are found and called, where a client is not shown them all.

Theory of operation. They are ordinary tools of an endpoint's board, answered by a relay. Nothing they do depends on
what was called before: opening a toolbox answers with the definitions of its tools, and any of them can be called at
any time, opened or not. Only where a legacy session lists what it has opened does opening change that list, too. A call
through `workbench_use_tool` becomes a call of the tool it names, which walks the whole way of that tool: repair,
middleware, output check, questions and tasks see the tool's own name and arguments, and its reply is handed back as it
is. A ticket that comes with such a reply comes back with the same arguments, and so to the same tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from pegboard.call import EMPTY_OBJECT, Call, Done, Json, Notice, Reply
from pegboard.errors import ToolError, UnknownTool
from pegboard.gateway.names import in_result, parse_name
from pegboard.gateway.showing.bench import Access, Bench, Mode, Toolbox
from pegboard.gateway.showing.costs import Costs, count_costs
from pegboard.gateway.showing.directory import Entry
from pegboard.gateway.showing.instructions import write_instructions
from pegboard.gateway.showing.meta_definitions import CLOSE, DETAILS, LIST, OPEN, SEARCH, SPELLINGS, USE, MetaTool
from pegboard.gateway.showing.modes import AUTO_TOKENS, Choice, Shown, Tokens, choose_modes
from pegboard.gateway.showing.wanted import GATHERED, Wanted, explain_missing, find_wanted, read_wanted
from pegboard.protocol.content import text_block
from pegboard.tools.tool import Tool
from pegboard.tools.work import Parsed

Detail: TypeAlias = Literal["name", "brief", "full"]

META_NAMES: Final = frozenset(SPELLINGS)
"""Every name that a meta-tool answers to; no other tool may go by one."""

_FEW, _MANY, _MOST = 5, 20, 50
# With more tools than these a search takes longer than others should wait for the loop.
_QUICK: Final = 500
_LONGEST_LINE: Final = 160
_LONGEST_INSTRUCTIONS: Final = 2_000
# Where a tool is from is said beside its definition, in words; pictures are not for models.
_NOT_TOLD: Final = frozenset({"icons", "_meta"})

_encode = msgspec.json.Encoder().encode


class _Sent(Struct):
    """The arguments for the other tool, still as JSON text."""

    arguments: Raw = Raw(b"")


_decode_sent = msgspec.json.Decoder(_Sent).decode


class MetaTools:
    """The meta-tools of one endpoint, and what is listed there."""

    def __init__(
        self,
        bench: Bench,
        mode: Mode = "all",
        auto_tokens: int = AUTO_TOKENS,
        endpoint_mode: Mode | None = None,
    ) -> None:
        self._bench = bench
        self._choice = Choice(mode, endpoint_mode, auto_tokens)
        self._tokens = Tokens()
        relays = {
            LIST: self._list_toolboxes,
            OPEN: self._open_toolbox,
            CLOSE: self._close_toolbox,
            SEARCH: self._search_tools,
            DETAILS: self._tell_details,
            USE: self._use_tool,
        }
        self.tools: Sequence[Tool] = tuple(MetaTool(name, kind, relays[kind]) for name, kind in SPELLINGS.items())
        """All of them, those too that are answered and not listed."""
        shown = {tool.name: tool.definition() for tool in self.tools}
        self._for_proxy = [shown[name] for name in (LIST, OPEN, SEARCH, USE)]
        self._for_dynamic = [shown[name] for name in (LIST, OPEN, CLOSE, SEARCH, USE)]

    # -- what is listed ------------------------------------------------------------------------------------------------

    def listed(self, access: Access, opened: frozenset[str] | None) -> list[Mapping[str, Json]]:
        """The definitions that tools/list shows; `opened` is None for callers of whom nothing is remembered."""
        directory = self._bench.directory
        modes = self.modes(access)
        kinds = set(modes.values())
        if kinds <= {"all"} and (kinds or self._choice.without_toolboxes(access) in ("all", "auto")):
            meta = []
        else:
            meta = self._for_dynamic if opened is not None and "dynamic" in kinds else self._for_proxy
        whole = {name for name in modes if self._is_listed(name, modes, opened)}
        return [*meta, *(one.definition for one in directory if one.place.toolbox in whole and access.admits(one))]

    def modes(self, access: Access) -> dict[str, Shown]:
        """How each toolbox that a caller may know of is shown to it."""
        return choose_modes(self._bench.toolboxes, self._bench.directory, self._choice, access, self._tokens)

    @property
    def shows_tools(self) -> bool:
        """Whether the list depends on the servers: without, a client need not wait for them to be listed something."""
        everyone = Access()
        return any(self._choice.of(one, everyone) in ("all", "auto") for one in self._bench.toolboxes)

    def instructions(self, access: Access | None = None) -> str:
        """What clients are told at the beginning."""
        seen = access or Access()
        toolboxes = list(self._visible(seen).values())
        return write_instructions(toolboxes, self._bench.directory, self.modes(seen), seen)

    def costs(self) -> Costs:
        """What each mode would cost a model here."""
        return count_costs(self._bench.directory, self._for_proxy, self._for_dynamic)

    @staticmethod
    def _is_listed(toolbox: str, modes: Mapping[str, Shown], opened: frozenset[str] | None) -> bool:
        mode = modes[toolbox]
        return mode == "all" or (mode == "dynamic" and opened is not None and toolbox in opened)

    # -- toolboxes -----------------------------------------------------------------------------------------------------

    def _visible(self, access: Access) -> dict[str, Toolbox]:
        """The toolboxes that a caller may know of; one none of whose tools it may see is none of its business."""
        directory = self._bench.directory
        return {
            toolbox.name: toolbox
            for toolbox in self._bench.toolboxes
            if access.admits_toolbox(toolbox.name)
            and (access.tools is None or any(map(access.admits, directory.of_toolbox(toolbox.name))))
        }

    async def _list_toolboxes(self, call: Call, parsed: Parsed) -> Reply:
        access, opened = self._bench.access(call.caller), await self._bench.opened(call.caller)
        directory, modes = self._bench.directory, self.modes(access)
        listed: list[dict[str, Json]] = []
        for name, toolbox in self._visible(access).items():
            told: dict[str, Json] = {
                "name": name,
                "description": toolbox.description,
                "tool_count": sum(map(access.admits, directory.of_toolbox(name))),
                "is_open": self._is_listed(name, modes, opened),
            }
            listed.append({**told, **_tell_states(toolbox)})
        open_count = sum(one["is_open"] for one in listed)
        return _tell({"toolboxes": listed, "total_count": len(listed), "open_count": open_count})

    async def _open_toolbox(self, call: Call, parsed: Parsed) -> Reply:
        access, name = self._bench.access(call.caller), parsed.arguments["toolbox_name"]
        self._find_toolbox(name, access)
        await self._bench.settle(name)
        toolbox, directory = self._find_toolbox(name, access), self._bench.directory
        entries = [entry for entry in directory.of_toolbox(name) if access.admits(entry)]
        failed = [server for server in toolbox.servers if server.problem]
        if failed and not entries:
            causes = "; ".join(f"Failed to connect to MCP server '{one.name}': {one.problem}" for one in failed)
            raise ToolError(f"Error opening toolbox '{name}': {causes}")
        await self._note_opened(call, name, is_open=True)
        told: dict[str, Json] = {
            "toolbox": name,
            "description": toolbox.description,
            "servers_connected": sum(server.state == "ready" for server in toolbox.servers),
            **_tell_states(toolbox),
        }
        said = {one.name: one.instructions[:_LONGEST_INSTRUCTIONS] for one in toolbox.servers if one.instructions}
        if said:
            told["instructions"] = said
        return _tell({**told, "tools": [_tell_info(entry) for entry in entries]})

    async def _close_toolbox(self, call: Call, parsed: Parsed) -> Reply:
        name = parsed.arguments["toolbox_name"]
        self._find_toolbox(name, self._bench.access(call.caller))
        if name not in (await self._bench.opened(call.caller) or ()):
            raise ToolError(f"Toolbox '{name}' is not currently open")
        await self._note_opened(call, name, is_open=False)
        return Done({"content": [text_block(f"Successfully closed toolbox '{name}' and unregistered tools.")]})

    async def _note_opened(self, call: Call, toolbox: str, *, is_open: bool) -> None:
        """Change the list of a session that has one of its own, and tell it on the stream of this call."""
        caller = call.caller
        before = await self._bench.opened(caller)
        if before is None or self.modes(self._bench.access(caller)).get(toolbox) != "dynamic":
            return
        after = before | {toolbox} if is_open else before - {toolbox}
        if after != before:
            await self._bench.change_opened(caller, after)
            await call.channel.emit(Notice("notifications/tools/list_changed", {}))

    def _find_toolbox(self, name: str, access: Access) -> Toolbox:
        known = self._visible(access)
        toolbox = known.get(name)
        if toolbox is None:
            there = f"Available toolboxes: {', '.join(known)}" if known else "There are no toolboxes"
            raise ToolError(f"Error: Toolbox '{name[:128]}' not found. {there}")
        return toolbox

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def _search_tools(self, call: Call, parsed: Parsed) -> Reply:
        access, asked = self._bench.access(call.caller), parsed.arguments
        within: str | None = asked.get("toolbox_name")
        if within is not None:
            self._find_toolbox(within, access)
        directory = self._bench.directory
        if not directory.index.is_ready:
            # Others are served meanwhile.
            await asyncio.to_thread(directory.index.prepare)

        def admits(entry: Entry) -> bool:
            return (within is None or entry.place.toolbox == within) and access.admits(entry)

        if len(directory) > _QUICK:
            found = await asyncio.to_thread(directory.search, asked["query"], admits)
        else:
            found = directory.search(asked["query"], admits)
        detail: Detail = asked.get("detail", "full")
        limit = min(asked.get("limit", _FEW if detail == "full" else _MANY), _MOST)
        told: dict[str, Json] = {"found": len(found), "servers": _group(found[:limit], detail)}
        missing = {
            f"{toolbox.name}/{server}": state
            for toolbox in self._visible(access).values()
            for server, state in _tell_states(toolbox).get("servers", {}).items()
        }
        if missing:
            told["not_searched"] = missing
        if not found:
            told["hint"] = "Nothing fits; use other words, or workbench_list_toolboxes"
        return _tell(told)

    async def _tell_details(self, call: Call, parsed: Parsed) -> Reply:
        wanted = read_wanted(parsed.arguments)
        access = self._bench.access(call.caller)
        entry = find_wanted(wanted, self._bench.directory, access)
        if entry is None:
            raise ToolError(self._explain(wanted, access))
        return _tell(_tell_info(entry))

    async def _use_tool(self, call: Call, parsed: Parsed) -> Reply:
        wanted = read_wanted(parsed.arguments)
        if wanted.name in META_NAMES:
            raise ToolError(f"Error: '{wanted.name}' is called directly, not through {call.name}")
        access = self._bench.access(call.caller)
        entry = find_wanted(wanted, self._bench.directory, access)
        if entry is None and (connecting := self._unconnected(wanted, access)):
            await self._bench.settle(connecting)
            entry = find_wanted(wanted, self._bench.directory, access)
        if entry is None:
            return await self._refuse(call, wanted, access)
        if wanted.toolbox and wanted.toolbox != entry.place.toolbox:
            self._find_toolbox(wanted.toolbox, access)
            raise ToolError(
                f"Error: Tool '{entry.name}' is in toolbox '{entry.place.toolbox}', not in '{wanted.toolbox[:128]}'"
            )
        return await self._bench.call(_aimed(call, entry.name, _arguments(call, parsed)))

    async def _refuse(self, call: Call, wanted: Wanted, access: Access) -> Reply:
        """Answer a call that names nothing; what surrounds every call sees this one too, so that it counts."""
        why = self._explain(wanted, access)
        if self._bench.directory.find(wanted.told) is None:
            try:
                return await self._bench.call(_aimed(call, wanted.told, EMPTY_OBJECT))
            except UnknownTool as problem:
                if wanted.place is None and access == Access():
                    # The endpoint knows more, such as what it withholds; but it says so as if all might be seen.
                    why = in_result(problem.message)
        raise ToolError(why)

    def _unconnected(self, wanted: Wanted, access: Access) -> str:
        """The toolbox that a tool may be in whose server nobody has asked yet; empty if there is none."""
        place = wanted.place or parse_name(wanted.name)
        toolbox = None if place is None else self._visible(access).get(place.toolbox)
        if place is None or toolbox is None:
            return ""
        waiting = any(
            server.name == place.server and server.state in ("idle", "connecting") for server in toolbox.servers
        )
        return toolbox.name if waiting else ""

    def _explain(self, wanted: Wanted, access: Access) -> str:
        return explain_missing(wanted, self._bench.directory, self._visible(access), access)


def _aimed(call: Call, name: str, arguments: Raw) -> Call:
    """The call of another tool that this one is for; answers and ticket are the other tool's.

    Headers repeat the arguments of the tool that a client knows of, so they say nothing of this one's.
    """
    return structs.replace(
        call,
        name=name,
        raw=arguments,
        headers=None,
        tool=None,
        parsed=None,
        failed=False,
        _sent=UNSET,
        _state=None,
        _origin=None,
        _task=None,
        _rounds=None,
        _asked=False,
    )


def _arguments(call: Call, parsed: Parsed) -> Raw:
    """What the other tool is called with: the JSON text that was sent, unless it had to be repaired or gathered."""
    if any(warning.code == GATHERED for warning in parsed.warnings):
        return Raw(_encode(parsed.arguments["arguments"]))
    try:
        sent = _decode_sent(call.raw).arguments
    except msgspec.DecodeError:
        sent = Raw(b"")
    return sent if bytes(sent)[:1] == b"{" else Raw(_encode(parsed.arguments.get("arguments", {})))


def _tell(value: Json) -> Done:
    return Done({"content": [text_block(_encode(value).decode("utf-8"))]})


def _tell_states(toolbox: Toolbox) -> dict[str, dict[str, str]]:
    """The servers whose tools are not all there, with the reason."""
    states = {one.name: one.problem or one.state for one in toolbox.servers if one.problem or one.state != "ready"}
    return {"servers": states} if states else {}


def _tell_info(entry: Entry) -> dict[str, Json]:
    """A tool as opening its toolbox tells it: its definition, and where it is."""
    place = entry.place
    return {
        **{key: value for key, value in entry.definition.items() if key not in _NOT_TOLD},
        "server": place.server,
        "toolbox": place.toolbox,
        "source_server": place.server,
        "toolbox_name": place.toolbox,
    }


def _group(entries: Iterable[Entry], detail: Detail) -> list[dict[str, Json]]:
    """The tools by server; the server of the best comes first."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for entry in entries:
        told = entry.name if detail == "name" else _tell_found(entry, detail)
        groups.setdefault((entry.place.toolbox, entry.place.server), []).append(told)
    return [{"toolbox": toolbox, "server": server, "tools": tools} for (toolbox, server), tools in groups.items()]


def _tell_found(entry: Entry, detail: Detail) -> dict[str, Json]:
    said = entry.definition.get("description")
    place = entry.place
    # The group says whose it is.
    about = said.removeprefix(f"[{place.toolbox}/{place.server}]").strip() if isinstance(said, str) else ""
    if detail == "brief":
        line = about.partition("\n")[0]
        return {"name": entry.name, "description": line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"}
    told = {key: value for key, value in entry.definition.items() if key not in _NOT_TOLD}
    return {**told, "description": about} if about else told
