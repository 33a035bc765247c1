"""Lists, searches, calls, reads, completions and notifications all follow the one verdict of the rules.

Each test draws principals and rules at random and tries every item of a board, or of a gateway, through every method
that can reveal it. What the rules say is computed from the text of the rules and from items that the test describes itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from pegboard import Board, Gateway, Principal
from pegboard.call import NULL_CHANNEL, Call, Caller, Change, Done, EncodedResult, Handler, Subscribed
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.config.rule_keys import read_rules
from pegboard.errors import AccessDenied, InsufficientScope, InvalidParams, Refusal
from pegboard.limits import Limits
from pegboard.protocol.revisions import MODERN
from pegboard.rules.rule import Item
from pegboard.rules.verdicts import Rules, Verdict
from tests.depth import examples

# A failure names its item and rules; to make the lists of pairs smaller would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
LIMITS = Limits(completions=1_000_000)
TOOLS = ("add", "delete_note", "read")
SCOPES = frozenset({"notes.write"})


def make_board(name: str) -> Board:
    board = Board(name, limits=LIMITS)

    for tool in TOOLS:

        def run() -> str:
            """Works on notes."""
            return "ran"

        hints = {"readOnlyHint": True} if tool == "read" else {}
        board.add(run, name=tool, annotations=hints, tags={"loud"} if tool == "add" else (), inline=True)

    @board.prompt("review")
    async def review(tone: str) -> str:
        return "reviewed"

    @board.resource("notes://fixed/list")
    async def listing() -> str:
        return "read"

    @board.resource("notes://one/{name}")
    async def note(name: str) -> str:
        return "read"

    return board


NAMES = st.sampled_from(
    ["*", "a", "b", "?", "add", "delete_*", "re*", "notes://*", "notes://one/{name}", "notes://one/x"]
)
PARTS = st.sampled_from(["*", "a", "b", "[ab]"])
LOCATED = st.one_of(
    st.just("*"), st.builds("{}/*".format, PARTS), st.builds("{}/{}".format, PARTS, PARTS),
    st.builds("{}/{}/{}".format, PARTS, PARTS, NAMES),
)  # fmt: skip


def whats(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    detailed = st.fixed_dictionaries(
        {},
        optional={
            "match": patterns,
            "kind": st.sampled_from(["tool", "prompt", "resource", "meta-tool"]),
            "annotation": st.sampled_from([{"readOnlyHint": True}, {"destructiveHint": True}]),
            "tag": st.just("loud"),
        },
    )
    return st.one_of(patterns, detailed)


WHO: st.SearchStrategy[Any] = st.one_of(
    st.just("*"),
    st.sampled_from(["ann", "bob"]),
    st.builds(dict, scope=st.sampled_from(["r", "r w", ["w", "x"]])),
    st.builds(dict, role=st.just("admin")),
    st.builds(dict, claim=st.just({"team": "red"})),
)


def rule_lists(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    what = st.lists(whats(patterns), min_size=1, max_size=2)
    rule = st.fixed_dictionaries({"who": WHO, "allow": what}, optional={"deny": what, "hide": what})
    return st.lists(rule, min_size=1, max_size=4)


PRINCIPALS = st.builds(
    Principal,
    st.sampled_from(["ann", "bob", "cid"]),
    st.frozensets(st.sampled_from(["r", "w", "x"])),
    st.sampled_from([frozenset(), frozenset({"admin"})]),
    st.sampled_from([{}, {"team": "red"}]),
    st.sampled_from(["token", "key"]),
)


# -- what a caller observes --------------------------------------------------------------------------------------------


class Observer:
    """Sends requests as one principal and describes what comes back."""

    def __init__(self, handler: Handler, principal: Principal) -> None:
        self._handler = handler
        self._caller = Caller(version=MODERN, transport="http", principal=principal)

    async def send(self, method: str, name: str = "", params: Mapping[str, Any] | None = None) -> Any:
        sent = Raw(msgspec.json.encode(params or {}))
        arguments = Raw(msgspec.json.encode((params or {}).get("arguments", {})))
        call = Call(
            method=method, caller=self._caller, channel=NULL_CHANNEL, id=1, name=name, params=sent, raw=arguments
        )
        reply = await self._handler(call)
        if isinstance(reply, Subscribed):
            return reply
        assert isinstance(reply, Done)
        return reply.result.value if isinstance(reply.result, EncodedResult) else reply.result

    async def outcome(self, method: str, name: str = "", params: Mapping[str, Any] | None = None) -> str:
        """`allow`, `hide`, or `deny` with the scopes that would help."""
        try:
            result = await self.send(method, name, params)
        except InsufficientScope as refusal:
            return f"deny {' '.join(refusal.scopes)}"
        except AccessDenied:
            return "deny "
        except InvalidParams:
            return "hide"
        if not result.get("isError"):
            return "allow"
        said = result["content"][0]["text"]
        refused = result.get("_meta", {}).get("dev.pegboard/refused")
        assert (refused == {"reason": "denied"}) == ("denied" in said)
        return "deny " if refused else f"hide {said}"

    async def listed(self, method: str, member: str, key: str) -> set[str]:
        result = await self.send(method)
        assert result["cacheScope"] == "private"
        return {one[key] for one in result[member]}


def expected(verdict: Verdict) -> str:
    return f"deny {' '.join(verdict.scopes)}" if verdict.effect == "deny" else verdict.effect


async def check_common(
    observer: Observer, verdicts: Mapping[str, Verdict], served: Mapping[str, tuple[str, str]]
) -> None:
    """Everything but searches: `served` has the kind and the name of each item as callers use it."""
    lists = {
        "tool": await observer.listed("tools/list", "tools", "name"),
        "prompt": await observer.listed("prompts/list", "prompts", "name"),
        "resource": await observer.listed("resources/list", "resources", "uri"),
        "template": await observer.listed("resources/templates/list", "resourceTemplates", "uriTemplate"),
    }
    listen = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": [
        name for kind, name in served.values() if kind == "resource"]}}  # fmt: skip
    follow = await observer.send("subscriptions/listen", params=listen)
    for item, (kind, name) in served.items():
        verdict = verdicts[item]
        said = expected(verdict)
        if kind != "expanded":
            assert (name in lists[kind]) == verdict.listed, (item, verdict)
        if kind == "tool":
            assert await observer.outcome("tools/call", name) == said, item
        elif kind == "prompt":
            assert await observer.outcome("prompts/get", name, {"arguments": {"tone": "kind"}}) == said, item
            ref = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "tone", "value": ""}}
            assert await observer.outcome("completion/complete", name, ref) == said, item
        elif kind == "template":
            ref = {"ref": {"type": "ref/resource", "uri": name}, "argument": {"name": "name", "value": ""}}
            assert await observer.outcome("completion/complete", name, ref) == said, item
        else:
            assert await observer.outcome("resources/read", name) == said, item
            assert await observer.outcome("resources/subscribe", name) == said, item
            assert follow.visible.admits(Change("updated", name)) == (verdict.effect == "allow"), item
        await check_suggestions(observer, kind, name, verdict, lists)


async def check_suggestions(
    observer: Observer, kind: str, name: str, verdict: Verdict, lists: Mapping[str, set[str]]
) -> None:
    """A name that does not exist suggests nothing but what the caller sees; after many of them, nothing at all."""
    method = {"tool": "tools/call", "prompt": "prompts/get"}.get(kind)
    if method is None:
        return
    with pytest.raises(Refusal) as caught:
        await observer.send(method, f"{name}x", {"arguments": {}})
    assert name in lists[kind] or repr(name) not in caught.value.message, (name, verdict)


# -- a board -----------------------------------------------------------------------------------------------------------

BOARD_ITEMS: dict[str, tuple[Item, str]] = {
    "add": (Item(kind="tool", name="add", tags=frozenset({"loud"})), "tool"),
    "delete_note": (Item(kind="tool", name="delete_note"), "tool"),
    "read": (Item(kind="tool", name="read", annotations={"readOnlyHint": True}), "tool"),
    "scoped": (Item(kind="tool", name="scoped", scopes=SCOPES), "tool"),
    "review": (Item(kind="prompt", name="review"), "prompt"),
    "notes://fixed/list": (Item(kind="resource", name="notes://fixed/list"), "resource"),
    "notes://one/{name}": (Item(kind="resource", name="notes://one/{name}"), "template"),
    "notes://one/x": (Item(kind="resource", name="notes://one/x", template="notes://one/{name}"), "expanded"),
}


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(st.lists(st.tuples(rule_lists(NAMES), PRINCIPALS), min_size=20, max_size=20))
async def test_every_method_of_a_board_gives_the_same_verdict(
    pairs: list[tuple[list[dict[str, Any]], Principal]],
) -> None:
    """30 × 20 pairs of principal and rules, with 8 items each: 4,800 triples."""
    board = make_board("one")
    board.tool(scoped, scopes=SCOPES)
    for rules, principal in pairs:
        board._replace_rules(Rules(read_rules(rules)))
        compiled = Rules(read_rules(rules))
        verdicts = {name: compiled.verdict(principal, item) for name, (item, _) in BOARD_ITEMS.items()}
        served = {name: (kind, name) for name, (_, kind) in BOARD_ITEMS.items()}
        note(f"{principal} {rules}")
        await check_common(Observer(board.handler, principal), verdicts, served)


async def scoped() -> str:
    return "ran"


# -- a gateway ---------------------------------------------------------------------------------------------------------

PLACES = [(toolbox, server) for toolbox in ("a", "b") for server in ("a", "b")]


def gateway_items() -> dict[str, tuple[Item, str, str]]:
    """Each item by its path, with its kind and the name that callers use."""
    items: dict[str, tuple[Item, str, str]] = {}
    for toolbox, server in PLACES:
        at: dict[str, Any] = {"toolbox": toolbox, "server": server}
        host = f"{server}.{toolbox}.pegboard"
        for tool in TOOLS:
            # Of the board in the gateway's own process, the author's annotations count; tags are the operator's.
            hints = {"readOnlyHint": True} if tool == "read" else {}
            item = Item(kind="tool", name=tool, annotations=hints, **at)
            items[f"{toolbox}/{server}/{tool}"] = item, "tool", f"{toolbox}__{server}__{tool}"
        item = Item(kind="prompt", name="review", **at)
        items[f"{toolbox}/{server}/review"] = item, "prompt", f"{toolbox}__{server}__review"
        item = Item(kind="resource", name="notes://fixed/list", **at)
        items[f"{toolbox}/{server}/fixed"] = item, "resource", f"notes://{host}/~fixed/list"
        item = Item(kind="resource", name="notes://one/{name}", **at)
        items[f"{toolbox}/{server}/template"] = item, "template", f"notes://{host}/~one/{{name}}"
        item = Item(kind="resource", name="notes://one/x", template="notes://one/{name}", **at)
        items[f"{toolbox}/{server}/x"] = item, "expanded", f"notes://{host}/~one/x"
    return items


GATEWAY_ITEMS = gateway_items()


CONFIG = GatewayConfig(
    path="pegboard.json",
    lock="off",
    toolboxes={
        toolbox: ToolboxConfig(
            name=toolbox,
            description="notes",
            servers={
                server: ServerConfig(name=server, kind="board", board=f"{toolbox}{server}") for server in ("a", "b")
            },
        )
        for toolbox in ("a", "b")
    },
)


@settings(max_examples=examples(5), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(st.lists(st.tuples(rule_lists(LOCATED), PRINCIPALS), min_size=20, max_size=20))
async def test_every_method_of_a_gateway_gives_the_same_verdict(
    pairs: list[tuple[list[dict[str, Any]], Principal]],
) -> None:
    """10 × 20 pairs of principal and rules, with 28 items each: 5,600 triples."""
    boards = {f"{toolbox}{server}": make_board("x") for toolbox, server in PLACES}
    gateway = Gateway(CONFIG, boards=boards, limits=LIMITS)
    await gateway.start()
    try:
        await gateway.wait_connected()
        for rules, principal in pairs:
            await check_gateway(gateway, rules, principal)
    finally:
        await gateway.stop()


async def check_gateway(gateway: Gateway, rules: list[dict[str, Any]], principal: Principal) -> None:
    read = read_rules(rules)
    for endpoint in gateway.endpoints:
        endpoint.reconfigure(structs.replace(gateway.config, rules=read), endpoint._toolboxes)
    compiled = Rules(read, located=True)
    verdicts = {path: compiled.verdict(principal, item) for path, (item, _, _) in GATEWAY_ITEMS.items()}
    served = {path: (kind, name) for path, (_, kind, name) in GATEWAY_ITEMS.items()}
    observer = Observer(gateway.handler, principal)
    note(f"{principal} {rules}")
    await check_common(observer, verdicts, served)
    await check_meta_tools(observer, compiled, principal, verdicts, served)
    await check_toolbox_endpoint(gateway, principal, verdicts, served)


async def check_meta_tools(
    observer: Observer,
    rules: Rules,
    principal: Principal,
    verdicts: Mapping[str, Verdict],
    served: Mapping[str, tuple[str, str]],
) -> None:
    """Searching, opening and calling through the meta-tools, where the caller may use these themselves."""
    visible = {name for path, (kind, name) in served.items() if kind == "tool" and verdicts[path].listed}

    async def text_of(meta_tool: str, **arguments: Any) -> str | None:
        verdict = rules.verdict(principal, Item(kind="meta-tool", name=meta_tool))
        params = {"name": meta_tool, "arguments": arguments}
        if verdict.effect != "allow":
            assert (await observer.outcome("tools/call", meta_tool, params)).startswith(verdict.effect)
            return None
        return str((await observer.send("tools/call", meta_tool, params))["content"][0]["text"])

    found = await text_of("search_tools", query="notes add delete read", detail="name", limit=50)
    if found is not None:
        result = msgspec.json.decode(found)
        assert {name for server in result["servers"] for name in server["tools"]} == visible
        assert result["found"] == len(visible)
    listed = await text_of("workbench_list_toolboxes")
    if listed is not None:
        shown = {one["name"]: one["tool_count"] for one in msgspec.json.decode(listed)["toolboxes"]}
        counts = {toolbox: sum(name.startswith(f"{toolbox}__") for name in visible) for toolbox in "ab"}
        assert shown == {toolbox: count for toolbox, count in counts.items() if count}
    uses = all(
        rules.verdict(principal, Item(kind="meta-tool", name=name)).effect == "allow"
        for name in ("workbench_use_tool", "get_tool_details")
    )
    for path, (kind, name) in served.items():
        if kind == "tool" and uses:
            params = {"arguments": {"tool_name": name, "arguments": {}}}
            outcome = await observer.outcome("tools/call", "workbench_use_tool", params)
            assert outcome.partition(" Error")[0] == expected(verdicts[path]), path
            details = await observer.outcome("tools/call", "get_tool_details", params)
            shown = "allow" if verdicts[path].listed else expected(verdicts[path])
            assert details.partition(" Error")[0] == shown, path


async def check_toolbox_endpoint(
    gateway: Gateway, principal: Principal, verdicts: Mapping[str, Verdict], served: Mapping[str, tuple[str, str]]
) -> None:
    """The endpoint of a toolbox follows the same rules."""
    observer = Observer(gateway.places["a"], principal)
    listed = await observer.listed("tools/list", "tools", "name")
    tools = {path: name for path, (kind, name) in served.items() if kind == "tool" and path.startswith("a/")}
    assert listed == {name for path, name in tools.items() if verdicts[path].listed}
    for path, name in tools.items():
        assert await observer.outcome("tools/call", name) == expected(verdicts[path]), path
