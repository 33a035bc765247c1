"""What belongs to one principal is out of reach of others, and what one principal uses up leaves room for others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Board, Context, Elicit, Gateway, Principal
from pegboard.config.gateway_config import GatewayConfig, ServerConfig, ToolboxConfig
from pegboard.limits import Limits
from pegboard.middleware import Cache, RateLimit
from pegboard.protocol.revisions import MODERN
from pegboard.testing import fixed_tokens
from tests.auth.serving import HELLO, META, Site, bearer, legacy_message, serving, write_request
from tests.server.http_clients import Reply
from tests.waiting import SOON, until

TOKENS = {"ann": Principal("ann"), "ann-again": Principal("ann"), "bob": Principal("bob"), "Ann": Principal("Ann")}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def ask(site: Site, method: str, token: str, path: str = "/mcp", **params: Any) -> Reply:
    """Send a request as a client of 2026-07-28 that answers questions and polls tasks."""
    capabilities = {"elicitation": {"form": {}}, **TASKS}
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get("name") or params.get("taskId")
    if name:
        headers["Mcp-Name"] = name
    return await site.ask("POST", path, body, {**headers, **bearer(token)})


async def call(site: Site, token: str, name: str, **more: Any) -> Reply:
    return await ask(site, "tools/call", token, name=name, arguments=more.pop("arguments", {}), **more)


def text(reply: Reply) -> str:
    return str(reply.json["result"]["content"][0]["text"])


def board_with(**options: Any) -> Board:
    return Board("apart", auth=fixed_tokens(TOKENS), **options)


async def test_a_state_opens_only_for_the_principal_that_was_asked() -> None:
    board = board_with()

    @board.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.ask(sure=Elicit("Sure?", {"type": "object", "properties": {}}))
        return f"{ctx.principal.id} {type(answer['sure']).__name__}"

    async with serving(board) as site:
        asked = (await call(site, "ann", "book")).json["result"]
        answered = {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]},
        }
        for other in ("bob", "Ann"):
            assert (await call(site, other, "book", **answered)).json["error"]["code"] == -32602
        assert text(await call(site, "ann-again", "book", **answered)) == "ann Accepted"


async def test_a_task_is_unknown_to_every_other_principal() -> None:
    board = board_with()

    @board.tool(task="required")
    async def work() -> str:
        return "done"

    async with serving(board) as site:
        task = (await call(site, "ann", "work")).json["result"]["taskId"]
        unknown = (await ask(site, "tasks/get", "bob", taskId="0" * 32)).json["error"]
        for other in ("bob", "Ann"):
            for method in ("tasks/get", "tasks/cancel"):
                refused = (await ask(site, method, other, taskId=task)).json["error"]
                assert (refused["code"], refused["message"].replace(task, "")) == (
                    unknown["code"],
                    unknown["message"].replace("0" * 32, ""),
                )
        assert "result" in (await ask(site, "tasks/get", "ann-again", taskId=task)).json


async def test_one_principal_s_tasks_leave_room_for_those_of_others() -> None:
    board = board_with(limits=Limits(tasks_per_caller=2))

    @board.tool(task="required")
    async def work() -> str:
        return "done"

    async with serving(board) as site:
        for _ in range(2):
            assert "taskId" in (await call(site, "ann", "work")).json["result"]
        assert (await call(site, "ann-again", "work")).json["result"]["isError"]
        assert "taskId" in (await call(site, "bob", "work")).json["result"]


async def test_cached_results_and_rate_limits_are_each_principal_s_own() -> None:
    board = board_with()
    board.use(Cache(60, tools=["whoami"]))
    board.use(RateLimit(1, 3600), tool="once")

    @board.tool
    async def whoami(ctx: Context) -> str:
        return ctx.principal.id

    @board.tool
    async def once() -> str:
        return "ran"

    async with serving(board) as site:
        for token, name in (("ann", "ann"), ("bob", "bob"), ("Ann", "Ann"), ("ann-again", "ann")):
            assert text(await call(site, token, "whoami")) == name
        assert text(await call(site, "ann", "once")) == "ran"
        assert (await call(site, "ann-again", "once")).json["result"]["isError"]
        assert text(await call(site, "bob", "once")) == "ran"


# -- sessions and streams ----------------------------------------------------------------------------------------------


async def open_session(site: Site, token: str) -> str:
    opened = await site.ask("POST", "/mcp", *legacy_message("initialize", token, **HELLO))
    return opened.headers["mcp-session-id"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_does_not_exist_for_another_principal(method: str) -> None:
    async with serving(board_with()) as site:
        session = await open_session(site, "ann")
        body, headers = legacy_message("ping", "bob", session)
        headers |= {"Accept": "text/event-stream"} if method == "GET" else {}
        reply = await site.ask(method, "/mcp", body if method == "POST" else b"", headers)
        assert reply.status == 404
        kept = await site.ask("POST", "/mcp", *legacy_message("ping", "ann", session))
        assert kept.status == 200


async def test_a_stream_is_resumed_only_by_its_principal() -> None:
    board = board_with()

    @board.tool
    async def speak(ctx: Context) -> str:
        await ctx.progress(1)
        return "spoken"

    async with serving(board) as site:
        session = await open_session(site, "ann")
        params = {"name": "speak", "arguments": {}, "_meta": {"progressToken": 1}}
        spoken = await site.ask("POST", "/mcp", *legacy_message("tools/call", "ann", session, **params))
        event = next(line for line in spoken.body.decode().splitlines() if line.startswith("id:")).removeprefix("id: ")
        stream = event.rpartition("-")[0]
        for token, status in (("bob", 404), ("ann", 200)):
            _, headers = legacy_message("ping", token, session)
            headers |= {"Accept": "text/event-stream", "Last-Event-ID": f"{stream}-0"}
            async with opened_stream(site, headers) as reader:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n"), SOON)
                assert f" {status} ".encode() in head
                if status == 200:
                    await asyncio.wait_for(reader.readuntil(b"spoken"), SOON)


@asynccontextmanager
async def opened_stream(site: Site, headers: dict[str, str]) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        writer.write(write_request("GET", "/mcp", b"", headers))
        yield reader
    finally:
        writer.transport.abort()


async def test_many_sessions_of_one_principal_do_not_displace_those_of_others() -> None:
    async with serving(board_with(limits=Limits(sessions=10))) as site:
        bobs = await open_session(site, "bob")
        for _ in range(15):
            await open_session(site, "ann")
        assert (await site.ask("POST", "/mcp", *legacy_message("ping", "bob", bobs))).status == 200


@pytest.mark.parametrize("path", ["/mcp", "/rpc"])
async def test_the_running_calls_of_one_principal_leave_room_for_those_of_others(path: str) -> None:
    board, running, ended = board_with(limits=Limits(calls_per_caller=2)), 0, asyncio.Event()

    @board.tool
    async def wait() -> str:
        nonlocal running
        running += 1
        await ended.wait()
        return "waited"

    @board.tool
    async def answer() -> str:
        return "answered"

    async with serving(board) as site:
        waiting = [
            asyncio.create_task(ask(site, "tools/call", "ann", path, name="wait", arguments={})) for _ in range(2)
        ]
        await until(lambda: running == 2)
        refused = await ask(site, "tools/call", "ann-again", path, name="wait", arguments={})
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert "2 calls at the same time for one caller" in refused.json["error"]["message"]
        assert text(await ask(site, "tools/call", "bob", path, name="answer", arguments={})) == "answered"
        ended.set()
        assert [text(await one) for one in waiting] == ["waited", "waited"]
        assert text(await ask(site, "tools/call", "ann", path, name="answer", arguments={})) == "answered"


async def test_the_subscriptions_of_one_principal_leave_room_for_those_of_others() -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": params}).encode()

    async def listen(site: Site, token: str) -> tuple[bytes, asyncio.StreamWriter]:
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen", **bearer(token)}
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(write_request("POST", "/mcp", body, headers))
        return await asyncio.wait_for(reader.readuntil(b"\r\n"), SOON), writer

    async with serving(board_with(limits=Limits(subscribers_per_caller=2))) as site:
        opened = [await listen(site, token) for token in ("ann", "ann-again", "ann", "bob")]
        for _, writer in opened:
            writer.transport.abort()
        assert [head.split()[1] for head, _ in opened] == [b"200", b"200", b"429", b"200"]


# -- a gateway ---------------------------------------------------------------------------------------------------------


def gateway_over(url: str, **options: Any) -> Gateway:
    server = ServerConfig(name="far", kind="http", url=url, **options)
    toolbox = ToolboxConfig(name="box", description="d", names="plain", servers={"far": server})
    gateway = Gateway(GatewayConfig(path="x.json", lock="off", toolboxes={"box": toolbox}))
    gateway.auth = fixed_tokens(TOKENS)
    return gateway


def counting_board() -> Board:
    """A legacy server that counts the calls of each of its sessions."""
    board, counts = Board("far"), dict[str, int]()

    @board.tool
    async def count(ctx: Context) -> str:
        counts[ctx.caller.session] = counts.get(ctx.caller.session, 0) + 1
        return str(counts[ctx.caller.session])

    return board


@pytest.mark.parametrize(
    ("share", "counted"),
    [("all", ["1", "2", "3", "4"]), ("principal", ["1", "2", "1", "1"]), ("session", ["1", "2", "1", "1"])],
)
async def test_a_server_is_shared_between_callers_as_its_entry_says(share: Any, counted: list[str]) -> None:
    async with serving(counting_board()) as far:
        gateway = gateway_over(f"{far.url}/mcp", share=share, version="2025-11-25")
        async with serving(gateway) as site:
            await gateway.wait_connected()
            seen = [text(await call(site, token, "count")) for token in ("ann", "ann-again", "bob", "Ann")]
    assert seen == counted


async def test_a_parked_call_is_continued_only_by_its_principal_and_leaves_room_for_others() -> None:
    board = Board("far")

    @board.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.ask(sure=Elicit("Sure?", {"type": "object", "properties": {}}))
        return type(answer["sure"]).__name__

    async with serving(board) as far:
        gateway = gateway_over(f"{far.url}/mcp", version="2025-11-25")
        async with serving(gateway) as site:
            await gateway.wait_connected()
            asked = (await call(site, "ann", "book")).json["result"]
            answered = {
                "requestState": asked["requestState"],
                "inputResponses": {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]},
            }
            for other in ("bob", "Ann"):
                assert (await call(site, other, "book", **answered)).json["error"]["code"] == -32602
            lot = gateway._forwarder.parking_lot
            assert (lot._counts["ann"], lot._counts["bob"]) == (1, 0)
            assert text(await call(site, "ann-again", "book", **answered)) == "Accepted"
