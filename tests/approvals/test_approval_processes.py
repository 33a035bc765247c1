"""Approvals at real replicas: decided at another one, and after the one that held the call was killed.

Both eras, clients that can be asked and clients that cannot, with the stores that processes share.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pegboard import Client, Limits
from pegboard.auth.api_keys import ApiKeys
from pegboard.stores.store_url import open_store
from tests.middleware.valkey import Valkey
from tests.server.http_clients import Peer, Response
from tests.server_processes import MODERN, ROOT, HttpChild
from tests.stores.store_urls import address
from tests.waiting import SOON

pytestmark = pytest.mark.process

BOARD = ROOT / "tests" / "approvals" / "approved_board.py"
FORM: Mapping[str, Any] = {"elicitation": {"form": {}}}
URL: Mapping[str, Any] = {"elicitation": {"url": {}}}
NONE: Mapping[str, Any] = {}
YES = {"action": "accept", "content": {"approve": True}}
PEOPLE: Mapping[str, list[str]] = {"ann": [], "lea": ["lead"]}
NOTES = """
import os
from pathlib import Path
from pegboard import Board

board = Board("notes")


@board.tool
async def delete_note(name: str) -> str:
    with Path(os.environ["RAN"]).open("a") as file:
        file.write(f"deleted {name}\\n")
    return f"deleted {name}"
"""


class Replicas:
    """Two servers that share a store, and the file of what their tools did."""

    def __init__(self, one: HttpChild, two: HttpChild, ran: Path) -> None:
        self.one, self.two, self._ran = one, two, ran

    def ran(self, name: str = "old") -> list[str]:
        """What was done to a note."""
        done = self._ran.read_text().splitlines() if self._ran.exists() else []
        return [line for line in done if line.endswith(f" {name}")]

    def kill(self) -> None:
        """Kill the first server without any warning."""
        self.one.signal(signal.SIGKILL)
        self.one.wait()

    async def open_requests(self, server: HttpChild, token: str = "lea") -> list[dict[str, Any]]:
        async with httpx.AsyncClient(trust_env=False, timeout=SOON) as client:
            listed = await client.get(f"http://127.0.0.1:{server.port}/approvals", headers=_headers(token))
            found: list[dict[str, Any]] = listed.json()["open"]
            return found

    async def waiting(self, server: HttpChild, token: str = "lea") -> dict[str, Any]:
        """The one open request, at this server, once it is there."""
        async with asyncio.timeout(SOON):
            while not (found := await self.open_requests(server, token)):  # noqa: ASYNC110 — another process makes it
                await asyncio.sleep(0.02)
        [request] = found
        return request

    async def decide(
        self, server: HttpChild, token: str = "lea", action: str = "approve", reason: str = ""
    ) -> dict[str, Any]:
        """Decide the one open request, at this server, once it is there."""
        request = await self.waiting(server, token)
        async with httpx.AsyncClient(trust_env=False, timeout=SOON) as client:
            url = f"http://127.0.0.1:{server.port}/approvals/{request['id']}"
            body = {"action": action, "reason": reason}
            answer = await client.post(url, json=body, headers=_headers(token))
            assert answer.status_code == 200, answer.text
            return request


@pytest.fixture
def replicas(store: str, tmp_path: Path) -> Iterator[Replicas]:
    with _serve(store, tmp_path) as one, _serve(store, tmp_path) as two:
        yield Replicas(one, two, tmp_path / "ran")


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def both(
    request: pytest.FixtureRequest, server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    """Replicas for all tests that leave them as they found them; each test has a note of its own."""
    folder = tmp_path_factory.mktemp("both")
    with address(request.param, server) as found, _serve(found, folder) as one, _serve(found, folder) as two:
        yield Replicas(one, two, folder / "ran")


@pytest.fixture
def hasty(store: str, tmp_path: Path) -> Iterator[Replicas]:
    """Replicas whose calls do not wait for a decision."""
    with _serve(store, tmp_path, "0") as one, _serve(store, tmp_path, "0") as two:
        yield Replicas(one, two, tmp_path / "ran")


def _serve(store: str, folder: Path, wait: str = "60") -> HttpChild:
    return HttpChild("--store", store, target=BOARD, RAN=str(folder / "ran"), APPROVAL_WAIT=wait)


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Accept": "application/json"}


# -- clients of 2026-07-28 --------------------------------------------------------------------------------------------


async def call(
    server: HttpChild,
    tool: str,
    capabilities: Mapping[str, Any],
    ticket: str | None = None,
    answers: Any = None,
    note: str = "old",
) -> Any:
    """The result of one request."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    params: dict[str, Any] = {"name": tool, "arguments": {"name": note}, "_meta": meta}
    if ticket is not None:
        params |= {"requestState": ticket, "inputResponses": answers}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    peer = Guest(server.port)
    try:
        sent = {name.lower().replace("-", "_"): value for name, value in headers.items()}
        answer = await peer.send("POST", json.dumps(body).encode(), **sent)
        await answer.rest()
        return answer.json["result"]
    finally:
        peer.close()


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


async def test_a_modern_call_waits_at_one_replica_and_is_approved_at_the_other(both: Replicas) -> None:
    calling = asyncio.create_task(call(both.one, "delete_note", NONE, note="waiting"))
    request = await both.decide(both.two)
    assert (request["requester"], request["tool"]) == ("ann", "delete_note")
    assert text(await calling) == f"deleted waiting by {both.one.process.pid}"
    assert both.ran("waiting") == ["deleted waiting"]


async def test_a_modern_call_without_elicitation_runs_once_after_its_replica_was_killed(hasty: Replicas) -> None:
    assert "waits for approval" in text(await call(hasty.one, "delete_note", NONE))
    hasty.kill()
    await hasty.decide(hasty.two)
    assert text(await call(hasty.two, "delete_note", NONE)) == f"deleted old by {hasty.two.process.pid}"
    assert "waits for approval" in text(await call(hasty.two, "delete_note", NONE))
    assert hasty.ran() == ["deleted old"]


async def test_a_modern_form_is_answered_at_the_other_replica_after_its_own_was_killed(replicas: Replicas) -> None:
    asked = await call(replicas.one, "write_note", FORM)
    [key] = asked["inputRequests"]
    replicas.kill()
    ran = await call(replicas.two, "write_note", FORM, asked["requestState"], {key: YES})
    assert text(ran) == f"wrote old by {replicas.two.process.pid}"
    again = await call(replicas.two, "write_note", FORM, asked["requestState"], {key: YES})
    assert again["resultType"] == "input_required"
    assert replicas.ran() == ["wrote old"]


async def test_a_modern_link_leads_to_a_decision_at_the_other_replica_after_a_kill(replicas: Replicas) -> None:
    asked = await call(replicas.one, "delete_note", URL)
    [(key, question)] = asked["inputRequests"].items()
    [request] = await replicas.open_requests(replicas.two)
    assert question["params"]["url"] == f"http://127.0.0.1:{replicas.one.port}/approvals/{request['id']}"
    replicas.kill()
    continuing = asyncio.create_task(
        call(replicas.two, "delete_note", URL, asked["requestState"], {key: {"action": "accept"}})
    )
    await replicas.decide(replicas.two)
    assert text(await continuing) == f"deleted old by {replicas.two.process.pid}"
    assert replicas.ran() == ["deleted old"]


async def test_a_refusal_at_the_other_replica_is_a_result_of_the_call(both: Replicas) -> None:
    calling = asyncio.create_task(call(both.one, "delete_note", NONE, note="refused"))
    await both.decide(both.two, action="refuse", reason="still needed")
    refused = await calling
    assert refused["isError"]
    assert "refused by lea: still needed" in text(refused)
    assert both.ran("refused") == []


# -- clients of 2025-11-25 --------------------------------------------------------------------------------------------


class Guest(Peer):
    """A client with the token of a person, which may go to another server with its session."""

    async def send(self, verb: str, body: bytes = b"", **headers: str | None) -> Response:
        return await super().send(verb, body, authorization="Bearer ann", **headers)


@asynccontextmanager
async def guest(server: HttpChild, capabilities: Mapping[str, Any]) -> AsyncIterator[Guest]:
    found = Guest(server.port)
    try:
        await found.initialize(capabilities)
        yield found
    finally:
        found.close()


@asynccontextmanager
async def at(server: HttpChild, client: Guest) -> AsyncIterator[Guest]:
    """The same client, at another server."""
    other = Guest(server.port)
    other.session = client.session
    try:
        yield other
    finally:
        other.close()


async def test_a_legacy_stream_stays_open_and_continues_when_it_is_approved_elsewhere(both: Replicas) -> None:
    async with guest(both.one, NONE) as client:
        response = await client.start("delete_note", name="streamed")
        [progress] = await response.read(1)
        assert progress["params"]["message"] == (
            "waiting for approval: another person with the role lead has to approve it"
        )
        await both.decide(both.two)
        assert text((await response.rest())[-1]["result"]) == f"deleted streamed by {both.one.process.pid}"
    assert both.ran("streamed") == ["deleted streamed"]


async def test_a_legacy_call_is_repeated_at_the_other_replica_after_a_kill(replicas: Replicas) -> None:
    async with guest(replicas.one, NONE) as client, at(replicas.two, client) as elsewhere:
        response = await client.start("delete_note", name="old")
        await response.read(1)
        replicas.kill()
        await replicas.decide(replicas.two)
        repeated = await elsewhere.ask("tools/call", {"name": "delete_note", "arguments": {"name": "old"}}, 2)
        assert text(repeated.json["result"]) == f"deleted old by {replicas.two.process.pid}"
    assert replicas.ran() == ["deleted old"]


async def test_a_legacy_form_is_answered_through_the_other_replica(both: Replicas) -> None:
    async with guest(both.one, FORM) as client, at(both.two, client) as elsewhere:
        response = await client.start("write_note", name="answered")
        [question] = await response.read(1)
        assert question["method"] == "elicitation/create"
        await elsewhere.answer(question["id"], result=YES)
        assert text((await response.rest())[-1]["result"]) == f"wrote answered by {both.one.process.pid}"
    assert both.ran("answered") == ["wrote answered"]


async def test_a_legacy_caller_that_is_asked_may_decide_at_the_other_replica_instead(both: Replicas) -> None:
    async with guest(both.one, FORM) as client:
        response = await client.start("write_note", name="decided")
        await response.read(1)
        await both.decide(both.two, "ann")
        messages = await response.rest()
        assert text(messages[-1]["result"]) == f"wrote decided by {both.one.process.pid}"
        assert messages[1]["method"] == "notifications/cancelled"
    assert both.ran("decided") == ["wrote decided"]


async def test_a_legacy_form_is_asked_again_at_the_other_replica_after_a_kill(replicas: Replicas) -> None:
    async with guest(replicas.one, FORM) as client, at(replicas.two, client) as elsewhere:
        response = await client.start("write_note", name="old")
        await response.read(1)
        replicas.kill()
        again = await elsewhere.start("write_note", 2, name="old")
        [question] = await again.read(1)
        await elsewhere.answer(question["id"], result=YES)
        assert text((await again.rest())[-1]["result"]) == f"wrote old by {replicas.two.process.pid}"
    assert replicas.ran() == ["wrote old"]


# -- gateways ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_a_gateway_forwards_a_call_once_after_its_replica_was_killed(
    store: str, tmp_path: Path, version: str
) -> None:
    opened = open_store(store, Limits())
    await opened.start()
    try:
        keys = {name: await ApiKeys(opened.records).add(name, roles=roles) for name, roles in PEOPLE.items()}
    finally:
        await opened.close()
    notes = tmp_path / "notes.py"
    notes.write_text(NOTES)
    entry = {
        "command": sys.executable,
        "args": ["-m", "pegboard", "run", str(notes)],
        "env": {"RAN": str(tmp_path / "ran")},
    }
    config = {
        "auth": {"keys": True},
        "toolboxes": {"office": {"description": "Notes", "mcpServers": {"notes": entry}}},
        "rules": [
            {"who": "*", "allow": ["*"]},
            {"tools": ["office/notes/delete_*"], "approve": {"role": "lead"}},
        ],
    }
    path = tmp_path / "pegboard.json"
    path.write_text(json.dumps(config))
    with (
        HttpChild("--store", store, target=path, verb="up") as one,
        HttpChild("--store", store, target=path, verb="up") as two,
    ):
        replicas = Replicas(one, two, tmp_path / "ran")

        def client(server: HttpChild) -> Client:
            headers = {"Authorization": f"Bearer {keys['ann']}"}
            return Client(f"http://127.0.0.1:{server.port}/mcp", headers=headers, version=version)

        async with client(one) as caller:
            calling = asyncio.create_task(caller.call("office__notes__delete_note", {"name": "old"}))
            request = await replicas.waiting(two, keys["lea"])
            assert (request["requester"], request["toolbox"], request["server"]) == ("key:ann", "office", "notes")
            replicas.kill()
            await asyncio.gather(calling, return_exceptions=True)
        await replicas.decide(two, keys["lea"])
        async with client(two) as caller:
            assert (await caller.call("office__notes__delete_note", {"name": "old"})).text == "deleted old"
        assert replicas.ran() == ["deleted old"]
