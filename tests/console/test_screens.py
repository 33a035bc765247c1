"""What the pages of the console show: sessions and streams, people, servers, agents."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
from scripts.agents_table import MODULE, PAGE, read_agents, write_module

from pegboard import Auth, Board, Client, Context, Gateway, Limits, Middleware
from pegboard.console.board_subject import BoardSubject
from pegboard.console.console import Console
from pegboard.errors import LimitReached
from pegboard.logs.audit_sink import AuditSink, Decision
from pegboard.middleware import Audit
from tests.auth.serving import bearer, serving
from tests.console.served import ServedConsole, serving_console
from tests.console.test_console import send
from tests.server.pages.test_sign_in import add_key

LEGACY = "2025-11-25"


def make_board(**options: Any) -> Board:
    board = Board("shop", **options)

    @board.tool
    async def count(steps: int, ctx: Context) -> int:
        """Counts."""
        for step in range(steps):
            await ctx.progress(step, steps)
        return steps

    @board.tool(scopes={"shop.admin"})
    def empty_shop() -> str:
        """Sells everything."""
        return "sold"

    return board


async def open_legacy(client: httpx.AsyncClient, url: str) -> dict[str, str]:
    """A session of a legacy client: the headers of its requests."""
    accept = {"accept": "application/json, text/event-stream"}
    about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "old agent", "version": "3"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    opened = await client.post(url, json=hello, headers=accept)
    return {**accept, "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}


async def call_with_progress(client: httpx.AsyncClient, url: str, headers: dict[str, str], steps: int) -> str:
    """Make a call that streams; the ids of its events are in the text that is returned."""
    params = {"name": "count", "arguments": {"steps": steps}, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    return (await client.post(url, json=message, headers=headers)).text


async def sessions_of(at: ServedConsole) -> Any:
    return (await send(at, "/console/api/sessions")).json


async def test_a_legacy_session_is_shown_with_its_streams_and_resumptions() -> None:
    async with serving_console(make_board()) as at, httpx.AsyncClient(trust_env=False) as client:
        assert (await sessions_of(at))["sessions"] == []
        headers = await open_legacy(client, at.mcp)
        text = await call_with_progress(client, at.mcp, headers, 3)
        ids = re.findall(r"^id: (\S+)", text, re.MULTILINE)
        (session,) = (await sessions_of(at))["sessions"]
        assert (session["client"], session["version"], session["principal"]) == ("old agent 3", LEGACY, "")
        assert headers["mcp-session-id"] not in str(session)
        assert session["streams"] == [{"last": ids[-1], "connected": False}]
        again = await client.get(at.mcp, headers={**headers, "last-event-id": ids[0]})
        assert ids[-1] in again.text
        async with client.stream("GET", at.mcp, headers={**headers, "last-event-id": "00000000-7"}) as listening:
            assert listening.status_code == 200
        (session,) = (await sessions_of(at))["sessions"]
        assert session["tally"] == {"opened": 1, "resumed": 1, "refused": 1, "lost": 0}
        await client.delete(at.mcp, headers=headers)
        assert (await sessions_of(at))["sessions"] == []


async def test_events_that_were_trimmed_before_they_were_read_are_counted() -> None:

    board = make_board(limits=Limits(stream_events=4))
    async with serving_console(board) as at, httpx.AsyncClient(trust_env=False) as client:
        headers = await open_legacy(client, at.mcp)
        ids = re.findall(r"^id: (\S+)", await call_with_progress(client, at.mcp, headers, 20), re.MULTILINE)
        await client.get(at.mcp, headers={**headers, "last-event-id": ids[0]})
        (session,) = (await sessions_of(at))["sessions"]
        assert session["tally"]["lost"] > 0


async def test_view_as_names_the_rule_that_hides_a_tool() -> None:
    rules = [
        {"who": {"role": "clerk"}, "allow": ["count"], "hide": ["empty_*"]},
        {"who": "boss", "allow": ["*"]},
    ]
    async with serving_console(make_board(rules=rules)) as at:

        async def view(query: str) -> dict[str, tuple[str, str]]:
            shown = (await send(at, f"/console/api/view?{query}")).json
            return {item["name"]: (item["effect"], item["rule"]) for item in shown["items"]}

        clerk = await view("principal=ann&roles=clerk")
        assert clerk == {
            "count": ("allow", "rules[0]: allow count"),
            "empty_shop": ("hide", "rules[0]: hide empty_*"),
        }
        boss = await view("principal=boss&scopes=shop.admin")
        assert boss["empty_shop"] == ("allow", "rules[1]: allow *")
        assert (await view("principal=boss"))["empty_shop"][0] == "deny"
        assert (await view("principal=nobody"))["count"] == ("deny", "no rule matches")


async def test_principals_that_called_are_known_with_their_scopes(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, "ann", scopes=["console.read", "shop.admin"])
    board = make_board(auth=Auth(keys=True))
    Console(BoardSubject(board), link=False)
    async with serving(board, store=store) as site, httpx.AsyncClient(trust_env=False) as client:
        people = (await client.get(f"{site.url}/console/api/people", headers=bearer(key))).json()
        assert people == [{"id": "key:ann", "kind": "key", "scopes": ["console.read", "shop.admin"], "roles": []}]


async def test_a_single_tool_of_a_server_is_switched_off_and_on() -> None:
    config = {"toolboxes": {"office": {"description": "Sums", "mcpServers": {"desk": {"board": make_board()}}}}}
    gateway = Gateway(config)
    async with serving_console(gateway) as at:
        await gateway.wait_connected(30)
        tools = (await send(at, "/console/api/server?toolbox=office&server=desk")).json
        assert {tool["name"]: tool["on"] for tool in tools} == {"count": True, "empty_shop": True}
        switch = {"toolbox": "office", "server": "desk", "tool": "count", "on": False}
        tools = (await send(at, "/console/api/tool", method="POST", body=switch)).json
        assert {tool["name"]: tool["on"] for tool in tools} == {"count": False, "empty_shop": True}
        assert [tool["tool"] for tool in (await send(at, "/console/api/tools")).json] == ["empty_shop"]
        (toolbox,) = (await send(at, "/console/api/overview")).json["toolboxes"]
        (server,) = toolbox["servers"]
        assert (server["off"], server["failures"], server["retry"]) == (1, 0, 0)
        await send(at, "/console/api/tool", method="POST", body={**switch, "on": True})
        assert len((await send(at, "/console/api/tools")).json) == 2
        unknown = await send(at, "/console/api/tool", method="POST", body={**switch, "server": "other"})
        assert unknown.status == 400


async def test_the_time_of_a_server_is_told_apart_from_that_of_the_gateway() -> None:
    config = {"toolboxes": {"office": {"description": "Sums", "mcpServers": {"desk": {"board": make_board()}}}}}
    gateway = Gateway(config)
    async with serving_console(gateway) as at:
        await gateway.wait_connected(30)
        async with Client(at.mcp) as client:
            await client.call("office__desk__count", {"steps": 3})
        (row,) = (await send(at, "/console/api/calls")).json
        assert 0 < row["tool_ms"] < row["ms"]


async def test_every_change_in_the_console_is_recorded_before_it_is_made(tmp_path: Path) -> None:
    config = {"toolboxes": {"office": {"description": "Sums", "mcpServers": {"desk": {"board": make_board()}}}}}
    gateway = Gateway(config)
    gateway.use(Audit(tmp_path / "audit"))
    async with serving_console(gateway) as at:
        await gateway.wait_connected(30)
        place = {"toolbox": "office", "server": "desk"}
        assert (await send(at, "/console/api/tool", method="POST", body={**place, "tool": "count"})).status == 200
        assert (await send(at, "/console/api/server", method="POST", body={**place, "action": "stop"})).status == 200
        assert (await send(at, "/console/api/accept", method="POST", body={"names": ["office/desk"]})).status == 400
        shown = (await send(at, "/console/api/audit")).json["records"]
        records = [record for record in shown if "name" in record]
        wanted = [
            ("lock.accept", "office/desk"),
            ("servers.stop", "office/desk"),
            ("tools.disable", "office/desk/count"),
        ]
        assert [(record["action"], record["name"]) for record in records] == wanted
        assert {record["principal"].partition(":")[0] for record in records} == {"local"}
        assert {(record["transport"], record["address"]) for record in records} == {("console", "127.0.0.1")}


async def test_nothing_is_changed_if_it_cannot_be_recorded(tmp_path: Path) -> None:
    config = {"toolboxes": {"office": {"description": "Sums", "mcpServers": {"desk": {"board": make_board()}}}}}
    gateway = Gateway(config)
    gateway.use(UnwritableAudit())
    async with serving_console(gateway) as at:
        await gateway.wait_connected(30)
        stop = {"toolbox": "office", "server": "desk", "action": "stop"}
        assert (await send(at, "/console/api/server", method="POST", body=stop)).status == 503
        assert [server.state for server in gateway.downstreams] == ["ready"]


class UnwritableAudit(Middleware, AuditSink):
    """An audit log whose disk is full."""

    async def record(self, decision: Decision) -> None:
        raise LimitReached("The audit log cannot be written", "audit_unavailable")


async def test_only_administrators_read_the_audit_log(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    key = await add_key(store, "ann", scopes=["console.operate"])
    board = make_board(auth=Auth(keys=True))
    board.use(Audit(tmp_path / "audit"))
    Console(BoardSubject(board), link=False)
    async with serving(board, store=store) as site, httpx.AsyncClient(trust_env=False) as client:
        refused = await client.get(f"{site.url}/console/api/audit", headers=bearer(key))
        assert (refused.status_code, "console.administer" in refused.text) == (403, True)


def test_all_files_together_are_small() -> None:
    folder = files("pegboard.console").joinpath("static")
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in folder.iterdir()}
    assert sum(sizes.values()) < 60 * 1024, sizes


def test_the_agents_of_the_console_are_those_of_the_documentation() -> None:
    agents = read_agents(PAGE.read_text())
    assert len(agents) > 10
    assert MODULE.read_text() == write_module(agents), "run `.venv/bin/python scripts/agents_table.py`"
