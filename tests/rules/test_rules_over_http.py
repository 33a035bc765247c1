"""Rules at the endpoints: what callers with different tokens get, in both protocol eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from pegboard import Board, Client, Context, Gateway, Middleware, Principal
from pegboard.call import Call
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.config.rule_keys import read_rules
from pegboard.errors import InvalidParams
from pegboard.middleware import Cache
from pegboard.protocol.revisions import MODERN
from pegboard.testing import fixed_tokens
from tests.auth.serving import HELLO, META, Site, bearer, legacy_message, serving, write_request
from tests.server.http_clients import Reply
from tests.waiting import SOON, until

PRINCIPALS = {
    "ada": Principal("ada", roles=frozenset({"admin"})),
    "wim": Principal("wim", scopes=frozenset({"notes.write"})),
    "gus": Principal("gus"),
    "key": Principal("key", kind="key"),
}
RULES: list[dict[str, Any]] = [
    {"who": {"role": "admin"}, "allow": ["*"]},
    {"who": {"scope": "notes.write"}, "allow": ["write"]},
    {"who": "*", "allow": ["read", "notes://public/*", "greet"], "hide": ["delete*", "notes://secret"]},
]


def notes_board(rules: list[dict[str, Any]] = RULES) -> Board:
    board = Board("notes", auth=fixed_tokens(PRINCIPALS), rules=rules)

    for name in ("read", "write", "delete", "send"):

        async def run(name: str = name) -> str:
            """Works on notes."""
            return f"{name} ran"

        board.add(run, name=name)

    @board.prompt
    async def greet() -> str:
        return "hello"

    @board.prompt
    async def delete_all() -> str:
        return "gone"

    @board.resource("notes://secret")
    async def secret() -> str:
        return "hidden"

    @board.resource("notes://public/{name}")
    async def public(name: str) -> str:
        return f"the note {name}"

    return board


async def ask(site: Site, method: str, token: str, path: str = "/mcp", **params: Any) -> Reply:
    """Send a request as a client of 2026-07-28."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get("name") or params.get("uri")
    if name:
        headers["Mcp-Name"] = name
    return await site.ask("POST", path, body, {**headers, **bearer(token)})


def text(reply: Reply) -> str:
    return str(reply.json["result"]["content"][0]["text"])


async def names(site: Site, method: str, token: str, member: str, key: str = "name") -> list[str]:
    return [one[key] for one in (await ask(site, method, token)).json["result"][member]]


async def test_each_caller_sees_and_calls_what_its_rules_allow() -> None:
    async with serving(notes_board()) as site:
        assert await names(site, "tools/list", "ada", "tools") == ["read", "write", "delete", "send"]
        assert await names(site, "tools/list", "wim", "tools") == ["read", "write"]
        # A token can be exchanged for one with the scope; a key cannot.
        assert await names(site, "tools/list", "gus", "tools") == ["read", "write"]
        assert await names(site, "tools/list", "key", "tools") == ["read"]
        assert await names(site, "prompts/list", "gus", "prompts") == ["greet"]
        assert await names(site, "resources/list", "gus", "resources", "uri") == []
        assert await names(site, "resources/list", "ada", "resources", "uri") == ["notes://secret"]
        assert text(await ask(site, "tools/call", "wim", name="write", arguments={})) == "write ran"


async def test_a_missing_scope_is_a_step_up_with_all_scopes_that_are_needed() -> None:
    async with serving(notes_board()) as site:
        for token in ("gus", "key"):
            reply = await ask(site, "tools/call", token, name="write", arguments={})
            assert reply.status == 403
            assert reply.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="notes.write"'
            assert reply.json["error"]["code"] == -32600


async def test_a_denial_that_no_scope_would_help_is_a_result_for_the_model() -> None:
    async with serving(notes_board()) as site:
        reply = await ask(site, "tools/call", "gus", name="send", arguments={})
        assert reply.status == 200
        assert reply.json["result"]["isError"] is True
        assert text(reply) == (
            "Access to 'send' is denied: the rules of this server do not allow it for this client. "
            "Do not retry; continue without it"
        )
        assert reply.json["result"]["_meta"]["dev.pegboard/refused"] == {"reason": "denied"}


async def test_a_prompt_or_resource_that_is_denied_is_an_error() -> None:
    rules = [{"who": "*", "allow": ["read"]}]
    async with serving(notes_board(rules)) as site:
        for method, named in (("prompts/get", {"name": "greet"}), ("resources/read", {"uri": "notes://secret"})):
            reply = await ask(site, method, "gus", **named)
            assert (reply.status, reply.json["error"]["code"]) == (403, -32600)
            assert "www-authenticate" not in reply.headers


def without(reply: Reply, name: str) -> str:
    return json.dumps([reply.status, reply.json], sort_keys=True).replace(name, "NAME")


async def test_what_is_hidden_is_answered_as_if_it_did_not_exist() -> None:
    async with serving(notes_board()) as site:
        for method, key, hidden, unknown in (
            ("tools/call", "name", "delete", "xkcdqz"),
            ("prompts/get", "name", "delete_all", "xkcdqzwert"),
            ("resources/read", "uri", "notes://secret", "notes://xkcdqz"),
        ):
            answered = await ask(site, method, "gus", **{key: hidden}, arguments={})
            expected = await ask(site, method, "gus", **{key: unknown}, arguments={})
            assert answered.status == 400
            assert without(answered, hidden) == without(expected, unknown)


async def test_a_legacy_session_follows_the_scopes_of_each_request() -> None:
    principals = {**PRINCIPALS, "gus-more": Principal("gus", scopes=frozenset({"notes.write"}))}
    board = notes_board()
    board.auth = fixed_tokens(principals)
    async with serving(board) as site:
        opened = await site.ask("POST", "/mcp", *legacy_message("initialize", "gus", **HELLO))
        session = opened.headers["mcp-session-id"]

        async def call(token: str) -> Reply:
            message = legacy_message("tools/call", token, session, name="write", arguments={})
            return await site.ask("POST", "/mcp", *message)

        refused = await call("gus")
        assert (refused.status, refused.json["error"]["code"]) == (403, -32600)
        assert text(await call("gus-more")) == "write ran"
        assert (await call("gus")).status == 403


class Watcher(Middleware):
    """Records the calls that reach it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    async def before(self, call: Call) -> None:
        self.seen.append((call.name, call.known))


async def test_middleware_sees_refused_calls_as_calls_of_unknown_names() -> None:
    board, everywhere, of_the_tool = notes_board(), Watcher(), Watcher()
    board.use(everywhere)
    board.use(of_the_tool, tool=["delete", "send"])
    async with serving(board) as site:
        for name in ("delete", "send", "read"):
            await ask(site, "tools/call", "gus", name=name, arguments={})
    assert everywhere.seen == [("delete", False), ("send", False), ("read", True)]
    assert of_the_tool.seen == []


async def test_a_shared_cache_gives_nothing_to_a_caller_that_may_not_call() -> None:
    board = notes_board()
    board.use(Cache(60, tools=["send", "delete"], shared=True))
    async with serving(board) as site:
        for name in ("send", "delete"):
            assert text(await ask(site, "tools/call", "ada", name=name, arguments={})) == f"{name} ran"
        assert "denied" in text(await ask(site, "tools/call", "gus", name="send", arguments={}))
        assert (await ask(site, "tools/call", "gus", name="delete", arguments={})).status == 400


class Stream:
    """An open subscription."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def received(self, last: str) -> list[str]:
        """The notifications, with their URIs, up to the one that ends with `last`."""
        data = await asyncio.wait_for(self.reader.readuntil(last.encode()), SOON)
        found = []
        for part in data.decode().split('"method":"')[1:]:
            method = part.partition('"')[0].removeprefix("notifications/")
            uri = part.partition('"uri":"')[2].partition('"')[0]
            found.append(f"{method} {uri}".strip())
        return found


@asynccontextmanager
async def listening(site: Site, token: str, **notifications: Any) -> AsyncIterator[Stream]:
    """A subscription, from its acknowledgement on."""
    params = {"notifications": notifications, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": params}).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen", **bearer(token)}
    stream = Stream(*await asyncio.open_connection("127.0.0.1", site.port))
    try:
        stream.writer.write(write_request("POST", "/mcp", body, headers))
        await stream.received("acknowledged")
        await stream.reader.readuntil(b"\n\n")
        yield stream
    finally:
        stream.writer.transport.abort()


async def test_a_caller_is_not_notified_of_changes_of_what_it_does_not_see() -> None:
    board = notes_board()
    async with serving(board) as site:
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["notes://secret", "notes://public/a"],
        }

        async def delete_more() -> None: ...

        async with listening(site, "gus", **wanted) as guest, listening(site, "ada", **wanted) as admin:
            board.add(delete_more, name="delete_more")
            board.resource_changed("notes://secret")
            board.resource_changed("notes://public/a")
            assert await guest.received("public/a") == ["resources/updated notes://public/a"]
            assert await admin.received("public/a") == [
                "tools/list_changed",
                "resources/updated notes://secret",
                "resources/updated notes://public/a",
            ]
            board.remove("read")
            assert await guest.received("list_changed") == ["tools/list_changed"]


async def test_a_notification_of_the_author_reaches_all_callers() -> None:
    board = notes_board()
    async with serving(board) as site, listening(site, "gus", **{"dev.pegboard/notifications": True}) as stream:
        board.notify("notifications/orders/shipped", {"order": 7})
        assert await stream.received("shipped") == ["orders/shipped"]


async def test_a_client_in_the_same_process_sees_what_everyone_may_see() -> None:
    board = notes_board()
    async with Client(board) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["read"]


@pytest.mark.parametrize(
    ("scheme", "path", "version"),
    [
        ("http", "/mcp", MODERN),
        ("http", "/mcp", "2025-11-25"),
        ("http", "/sse", "2024-11-05"),
        ("ws", "/ws", MODERN),
        ("ws", "/ws", "2025-11-25"),
    ],
)
async def test_rules_hold_on_every_transport_and_in_both_eras(scheme: str, path: str, version: str) -> None:
    async with serving(notes_board()) as site:
        url = f"{scheme}://127.0.0.1:{site.port}{path}"
        async with Client(url, headers=bearer("key"), version=version) as client:
            assert [tool["name"] for tool in await client.list_tools()] == ["read"]
            assert (await client.call("read")).text == "read ran"
            assert "denied" in (await client.call("send")).text
            with pytest.raises(InvalidParams):
                await client.call("delete")


# -- a gateway ---------------------------------------------------------------------------------------------------------


def tool_board(*names: str) -> Board:
    board = Board("x")
    for name in names:

        async def run(name: str = name) -> str:
            return f"{name} ran"

        board.add(run, name=name)
    return board


def make_gateway(rules: list[dict[str, Any]], mode: Any = "all") -> Gateway:
    toolboxes = {
        toolbox: ToolboxConfig(
            name=toolbox,
            description=f"the {toolbox}",
            servers={name: ServerConfig(name=name, kind="board", board=name) for name in servers},
        )
        for toolbox, servers in {"office": ("notes", "mail"), "everyday": ("clock",)}.items()
    }
    config = GatewayConfig(path="x.json", lock="off", mode=mode, toolboxes=toolboxes, rules=read_rules(rules))
    boards: Mapping[str, Any] = {
        "notes": tool_board("read", "delete_note"),
        "mail": tool_board("send"),
        "clock": tool_board("now", "delete_alarm"),
    }
    gateway = Gateway(config, boards=boards)
    gateway.auth = fixed_tokens(PRINCIPALS)
    return gateway


GATEWAY_RULES: list[dict[str, Any]] = [
    {"who": {"role": "admin"}, "allow": ["*"]},
    {"who": {"scope": "notes.write"}, "allow": ["office/notes/*"]},
    {"who": "*", "allow": ["everyday/*"], "hide": ["*/*/delete_*"]},
]


async def test_a_gateway_tells_a_caller_nothing_about_servers_it_may_not_see() -> None:
    gateway = make_gateway(GATEWAY_RULES)
    async with serving(gateway) as site:
        assert await names(site, "tools/list", "key", "tools") == ["everyday__clock__now"]
        assert len(await names(site, "tools/list", "ada", "tools")) == 5
        about = await ask(site, "server/discover", "key")
        instructions = about.json["result"]["instructions"]
        assert "everyday" in instructions
        assert "office" not in instructions
        assert about.json["result"]["cacheScope"] == "private"
        refused = await ask(site, "tools/call", "key", name="office__notse__read", arguments={})
        assert refused.json["error"]["message"] == "Toolbox 'office' not found"
        near = await ask(site, "tools/call", "key", name="everyday__clock__delete_alarn", arguments={})
        assert "delete_alarm" not in near.json["error"]["message"]


@pytest.mark.parametrize("path", ["/mcp", "/toolboxes/office/mcp", "/rpc"])
async def test_rules_hold_at_every_endpoint(path: str) -> None:
    async with serving(make_gateway(GATEWAY_RULES)) as site:
        reply = await ask(site, "tools/call", "wim", path, name="office__mail__send", arguments={})
        assert "denied" in text(reply)
        reply = await ask(site, "tools/call", "wim", path, name="office__notes__read", arguments={})
        assert text(reply) == "read ran"
        reply = await ask(site, "tools/call", "gus", path, name="office__notes__read", arguments={})
        assert (reply.status, reply.json["error"]["code"]) == (403, -32600)


async def test_edited_rules_hold_for_the_next_request_and_its_caller_is_notified() -> None:
    gateway = make_gateway(GATEWAY_RULES)
    async with serving(gateway) as site:
        await gateway.wait_connected()
        edited = structs.replace(gateway.config, rules=read_rules([{"who": "*", "allow": ["office/mail/*"]}]))
        async with listening(site, "key", toolsListChanged=True) as stream:
            await gateway.reload(gateway.config, edited)
            assert await stream.received("list_changed") == ["tools/list_changed"]
        assert await names(site, "tools/list", "key", "tools") == ["office__mail__send"]


@pytest.mark.parametrize("rules", [[], [{"who": "*", "allow": ["box/*"]}]])
async def test_the_scopes_of_a_board_in_the_gateway_s_process_hold_at_the_gateway(rules: list[dict[str, Any]]) -> None:
    board = Board("own")

    @board.tool(scopes={"notes.write"})
    async def write(ctx: Context) -> str:
        return f"{ctx.principal.id} wrote"

    @board.prompt(scopes={"notes.write"})
    async def plan() -> str:
        return "planned"

    @board.resource("notes://one/{name}", scopes={"notes.write"})
    async def note(name: str) -> str:
        return f"{name} read"

    toolbox = ToolboxConfig(
        name="box", description="d", servers={"own": ServerConfig(name="own", kind="board", board="own")}
    )
    config = GatewayConfig(path="x.json", lock="off", toolboxes={"box": toolbox}, rules=read_rules(rules))
    gateway = Gateway(config, boards={"own": board})
    gateway.auth = fixed_tokens(PRINCIPALS)
    async with serving(gateway) as site:
        assert await names(site, "tools/list", "gus", "tools") == ["box__own__write"]
        assert await names(site, "tools/list", "key", "tools") == []
        requests: tuple[tuple[str, dict[str, Any]], ...] = (
            ("tools/call", {"name": "box__own__write", "arguments": {}}),
            ("prompts/get", {"name": "box__own__plan"}),
            ("resources/read", {"uri": "notes://own.box.pegboard/~one/x"}),
        )
        for method, params in requests:
            refused = await ask(site, method, "gus", **params)
            assert (refused.status, refused.json["error"]["data"]["scope"]) == (403, "notes.write")
            assert "result" in (await ask(site, method, "wim", **params)).json
        assert text(await ask(site, *requests[0][:1], "wim", **requests[0][1])) == "wim wrote"


class Slow(Board):
    """A board that has not started yet."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.may_start = asyncio.Event()

    async def start(self, shared: Any = None) -> None:
        await self.may_start.wait()
        await super().start(shared)


async def test_what_is_hidden_waits_for_starting_servers_as_an_unknown_name_does() -> None:
    """While a server is connecting, an unknown name may turn out to be its: only then is it answered."""
    ready, other, slow = Board("ready"), Board("other"), Slow()

    @ready.tool
    async def delete() -> str:
        return "deleted"

    @ready.resource("notes://secret")
    async def secret() -> str:
        return "hidden"

    @other.resource("notes://other")
    async def another() -> str:
        return "shown"

    servers = {name: ServerConfig(name=name, kind="board", board=name) for name in ("ready", "other", "slow")}
    toolbox = ToolboxConfig(name="box", description="d", names="plain", servers=servers)
    rules = read_rules([{"who": "*", "hide": ["*/*/delete", "*/*/notes://secret"], "allow": ["*"]}])
    config = GatewayConfig(path="x.json", lock="off", list_wait=0.01, toolboxes={"box": toolbox}, rules=rules)
    gateway = Gateway(config, boards={"ready": ready, "other": other, "slow": slow})
    gateway.auth = fixed_tokens(PRINCIPALS)
    async with serving(gateway) as site:
        await until(lambda: all(one.catalog is not None for one in gateway.downstreams[:2]))
        # Their offers are published in the next turn of the loop.
        await asyncio.sleep(0)
        asked = [
            asyncio.create_task(ask(site, method, "gus", **{key: name}))
            for method, key, name in (
                ("tools/call", "name", "delete"),
                ("tools/call", "name", "xkcdqz"),
                ("resources/read", "uri", "notes://secret"),
                ("resources/read", "uri", "notes://xkcdqz"),
            )
        ]
        # Whatever does not wait is answered before this list, which is asked for later on the same loop.
        await names(site, "tools/list", "gus", "tools")
        assert [one.done() for one in asked] == [False] * 4
        slow.may_start.set()
        assert [(await one).status for one in asked] == [400] * 4


async def test_instructions_name_only_the_tools_that_the_caller_sees() -> None:
    board = notes_board()
    board.set_instructions("Tools:\n{{tools}}{{if delete}}\nDelete with care.{{end}}")
    async with serving(board) as site:
        seen = {}
        for token in ("ada", "key"):
            about = await ask(site, "server/discover", token)
            seen[token] = about.json["result"]["instructions"]
        assert "delete" in seen["ada"]
        assert "read" in seen["key"]
        assert "elete" not in seen["key"]
