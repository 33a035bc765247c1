"""The pages at /approvals: what people see, who may decide, and the same for programs; and every endpoint asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from pegboard import Auth, Board, Limits, Principal
from pegboard.approvals.approval_request import ApprovalRequest
from pegboard.testing import fixed_tokens
from tests.auth.serving import META, Site, bearer, serving
from tests.server.pages.paged_board import browsing
from tests.server_processes import open_socket

PEOPLE = {
    "ann": Principal("ann"),
    "bob": Principal("bob"),
    "lea": Principal("lea", roles=frozenset({"lead"})),
    "ann-as-lead": Principal("ann", roles=frozenset({"lead"})),
}
AT_ONCE = Limits(approval_wait_seconds=0.0)
BY_LEAD = {"tools": ["delete_*"], "approve": {"role": "lead"}}
HTML = {"Accept": "text/html"}


class Served:
    """A server whose `delete_note` needs an approval."""

    def __init__(self, board: Board, site: Site, ran: list[str]) -> None:
        self.board, self.site, self.ran = board, site, ran

    async def call(self, text: str = "old", token: str | None = "ann") -> str:
        reply = await self.site.call("delete_note", token, text=text)
        return str(reply.json["result"]["content"][0]["text"])

    async def request(self, principal: Principal = PEOPLE["lea"]) -> ApprovalRequest:
        [found] = await self.board.approvals.open_for(principal)
        return found

    async def ask(self, path: str, token: str | None, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.get(
                self.site.url + path, headers={"Accept": "application/json", **bearer(token), **headers}
            )

    async def decide(self, request: str, token: str | None, body: Any, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"{self.site.url}/approvals/{request}"
            return await client.post(url, json=body, headers={"Accept": "application/json", **bearer(token), **headers})


@asynccontextmanager
async def served(
    rule: dict[str, Any] = BY_LEAD, auth: Auth | None = None, *, anyone: bool = False, **options: Any
) -> AsyncIterator[Served]:
    board = Board("notes", auth=None if anyone else auth or fixed_tokens(PEOPLE), rules=[rule], limits=AT_ONCE)
    ran: list[str] = []

    @board.tool
    async def delete_note(text: str) -> str:
        ran.append(text)
        return f"deleted {text}"

    async with serving(board, **options) as site:
        board.listens_at(f"{site.url}/mcp")
        yield Served(board, site, ran)


async def test_a_program_lists_and_decides_with_its_credentials() -> None:
    async with served() as notes:
        assert "waits for approval" in await notes.call()
        listed = (await notes.ask("/approvals", "lea")).json()
        [request] = listed["open"]
        assert request | {"id": "", "since": 0, "expires": 0} == {
            "id": "",
            "state": "open",
            "tool": "delete_note",
            "toolbox": "",
            "server": "",
            "requester": "ann",
            "client": "",
            "arguments": '{\n  "text": "old"\n}',
            "wanted": "another person with the role lead has to approve it",
            "rule": "rules[0]: approve delete_*",
            "since": 0,
            "expires": 0,
        }
        decided = await notes.decide(request["id"], "lea", {"action": "refuse", "reason": "keep it"})
        assert (decided.status_code, decided.json()["state"], decided.json()["decidedBy"]) == (200, "refused", "lea")
        assert "refused by lea: keep it" in await notes.call()
        listed = (await notes.ask("/approvals", "ann")).json()
        assert ([entry["state"] for entry in listed["own"]], listed["open"]) == (["refused"], [])
        assert [(event["step"], event["by"]) for event in listed["history"]] == [("refused", "lea"), ("asked", "ann")]


async def test_the_requester_cannot_decide_where_others_must_and_strangers_see_nothing() -> None:
    async with served() as notes:
        await notes.call()
        request = await notes.request()
        for token in ("ann", "ann-as-lead"):
            refused = await notes.decide(request.id, token, {"action": "approve"})
            assert refused.status_code == 403
            assert "you made this call, and another person has to decide" in refused.json()["error"]
            page = await notes.ask(f"/approvals/{request.id}", token, **HTML)
            assert "You made this call" in page.text
            assert "<button" not in page.text
        for attempt in (
            await notes.ask(f"/approvals/{request.id}", "bob"),
            await notes.ask("/approvals/0000", "lea"),
        ):
            assert attempt.status_code == 404
            assert "There is no such approval request" in attempt.json()["error"]
        assert (await notes.decide(request.id, "bob", {"action": "approve"})).status_code == 409
        assert (await notes.request()).state == "open"


@pytest.mark.parametrize(
    ("body", "status"), [({"action": "maybe"}, 400), ({}, 400), ([], 400), ({"action": "approve", "reason": 3}, 200)]
)
async def test_a_decision_has_to_be_one(body: Any, status: int) -> None:
    async with served() as notes:
        await notes.call()
        request = await notes.request()
        assert (await notes.decide(request.id, "lea", body)).status_code == status
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"{notes.site.url}/approvals/{request.id}"
            assert (await client.delete(url, headers=bearer("lea"))).status_code == 405


async def test_an_approval_works_once_and_the_second_decision_says_so() -> None:
    async with served() as notes:
        await notes.call()
        request = await notes.request()
        assert (await notes.decide(request.id, "lea", {"action": "approve"})).status_code == 200
        again = await notes.decide(request.id, "lea", {"action": "refuse"})
        assert (again.status_code, again.json()["error"]) == (
            409,
            "delete_note: the request was already approved by lea.",
        )
        assert await notes.call() == "deleted old"
        used = await notes.decide(request.id, "lea", {"action": "approve"})
        assert "was used already; the next call needs another one" in used.json()["error"]
        assert notes.ran == ["old"]


async def test_a_link_alone_shows_and_decides_nothing() -> None:
    async with served() as notes, browsing() as browser:
        text = await notes.call()
        request = await notes.request()
        link = f"{notes.site.url}/approvals/{request.id}"
        assert link in text
        page = await browser.open(link)
        assert page.status_code == 401
        assert "delete_note" not in page.text
        posted = await browser.post(link, action="approve")
        assert posted.status_code in (401, 403)
        assert (await notes.request()).state == "open"


async def test_the_user_who_started_a_server_without_authentication_decides_with_its_link() -> None:
    async with served({"tools": ["*"], "approve": "self"}, anyone=True) as notes, browsing() as browser:
        await notes.call(token=None)
        page = await browser.open(notes.board.approvals_link())
        assert "delete_note for an anonymous caller (open)" in page.text
        shown = await browser.follow("delete_note for an anonymous caller")
        assert "<h1>Approve delete_note?</h1>" in shown.text
        decided = await browser.submit(reason="", action="approve")
        assert "<h1>delete_note is approved</h1>" in decided.text
        assert await notes.call(token=None) == "deleted old"
        assert "that call has run" in (await browser.open(str(decided.url))).text


async def test_a_decision_needs_the_token_of_our_form() -> None:
    async with served({"tools": ["*"], "approve": "self"}, anyone=True) as notes, browsing() as browser:
        await notes.call(token=None)
        await browser.open(notes.board.approvals_link())
        page = await browser.follow("delete_note for an anonymous caller")
        assert (await browser.post(str(page.url), action="approve")).status_code == 403
        forged = await browser.client.post(
            str(page.url), json={"action": "approve"}, headers={"origin": notes.site.url, "accept": "application/json"}
        )
        assert forged.status_code == 403
        assert "deleted" not in await notes.call(token=None)


async def test_arguments_are_shown_as_text() -> None:
    async with served() as notes:
        await notes.call('<script>alert(1)</script> \u202e \u200b"&\x00')
        request = await notes.request()
        page = await notes.ask(f"/approvals/{request.id}", "lea", **HTML)
        assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202e \\u200b\\&quot;&amp;\\u0000" in page.text
        assert "<script" not in page.text
        assert "script-src" not in page.headers["content-security-policy"]
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        for fact in ("ann", "delete_note", "rules[0]: approve delete_*"):
            assert f"<dd>{fact}</dd>" in page.text


async def test_a_server_without_such_rules_has_no_pages() -> None:
    async with serving(Board("plain", auth=fixed_tokens(PEOPLE))) as site:
        assert (await site.ask("GET", "/approvals", headers=bearer("lea"))).status == 404


async def test_every_endpoint_of_a_server_asks_for_the_approval() -> None:
    call = {"name": "delete_note", "arguments": {"text": "old"}}
    async with served(
        {"tools": ["*"], "approve": "others"}, anyone=True, legacy_endpoints="all", direct_methods=True
    ) as notes:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**call, "_meta": META}}
        direct = {"jsonrpc": "2.0", "id": 1, "method": "delete_note", "params": {"text": "old"}}
        answers = []
        for path, body in (("/rpc", message), ("/rpc", direct), ("/sse", message)):
            answers.append((await notes.site.ask("POST", path, json.dumps(body).encode())).body)

        def over_websocket() -> bytes:
            with open_socket(notes.site.port) as socket:
                socket.send(json.dumps(message))
                return str(socket.recv(timeout=30)).encode()

        answers.append(await asyncio.to_thread(over_websocket))
        assert [b"waits for approval" in answer for answer in answers] == [True] * 4, answers
        assert notes.ran == []
        # One person is asked once.
        assert len(await notes.board.approvals.open_for(PEOPLE["bob"])) == 1
