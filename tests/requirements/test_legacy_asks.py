"""What a server asks of its client while a call runs, by the rules of 2025-11-25."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Board
from tests.requirements.clients import Client, connect
from tests.requirements.test_asks import ABLE, PAGE, filled, make_board, tool
from tests.server.fake_sink import EventReader, Visit
from tests.server.fake_transport import until
from tests.waiting import SOON


class Asked:
    """A call whose client is asked, and what it has heard."""

    def __init__(self, client: Client, name: str, request_id: Any = 1) -> None:
        assert client.session is not None
        self.session = client.session
        self.visit: Visit = self.session.ask("tools/call", tool(name), request_id)

    @property
    def heard(self) -> list[Any]:
        return [json.loads(event.data) for event in EventReader().feed(bytes(self.visit.sink.written)) if event.data]

    @property
    def questions(self) -> list[Any]:
        return [message for message in self.heard if "method" in message and "id" in message]

    async def wait_for(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(SOON):
            await until(what)

    async def question(self, number: int = 1) -> Any:
        """The question of that number."""
        await self.wait_for(lambda: len(self.questions) >= number)
        return self.questions[number - 1]

    async def answer(self, question: Any, result: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode()
        response = await self.session.send(body).response()
        assert (response.status, response.body) == (202, b"")

    async def text(self) -> str:
        """What the tool said in the end."""
        result = (await self.visit.response()).json["result"]
        return str(result["content"][0]["text"])


@pytest.mark.requirement("legacy/asks/elicit-message", "legacy/asks/elicit-form", "legacy/http/notification-202")
async def test_a_question_comes_on_the_stream_of_its_call_and_its_answer_by_post() -> None:
    asked = Asked(await connect(make_board(), "legacy", ABLE), "greet")
    question = await asked.question()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Who are you?"
    assert question["params"].get("mode", "form") == "form"
    assert question["params"]["requestedSchema"]["type"] == "object"
    await asked.answer(question, filled("Ada"))
    assert await asked.text() == "Hello, Ada"
    assert "method" not in asked.heard[-1]


@pytest.mark.requirement("legacy/asks/elicit-url")
async def test_an_elicitation_by_url_has_a_mode_a_message_the_url_and_an_id() -> None:
    asked = Asked(await connect(make_board(), "legacy", ABLE), "visit")
    question = await asked.question()
    params = question["params"]
    assert (params["mode"], params["message"], params["url"]) == ("url", "Sign in", PAGE)
    assert isinstance(params["elicitationId"], str)
    assert params["elicitationId"]
    await asked.answer(question, {"action": "accept"})
    assert await asked.text() == "accept"


@pytest.mark.requirement("legacy/base/own-request-ids", "legacy/base/own-request-ids-once")
async def test_our_requests_have_ids_that_are_used_once() -> None:
    client = await connect(make_board(), "legacy", ABLE)
    ids: list[Any] = []
    for number in range(3):
        asked = Asked(client, "twice", number)
        for step in (1, 2):
            question = await asked.question(step)
            await asked.answer(question, filled(f"{step}"))
            ids.append(question["id"])
        assert await asked.text() == "1 2"
    both = Asked(client, "at_once", 9)
    await both.question(2)
    ids += [question["id"] for question in both.questions]
    assert {type(one) for one in ids} <= {str, int}
    assert len(set(ids)) == len(ids) == 8
    for question in both.questions:
        await both.answer(question, filled("x"))
    assert await both.text() == "x x"


@pytest.mark.requirement("legacy/asks/modes", "legacy/asks/sampling-tools", "legacy/lifecycle/capabilities-respected")
@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("greet", {}),
        ("greet", {"elicitation": {"url": {}}}),
        ("visit", {"elicitation": {}}),
        ("visit", {"elicitation": {"form": {}}}),
        ("think", {}),
        ("think", {"sampling": {}}),
        ("look_around", {"sampling": {}}),
    ],
)
async def test_nothing_is_asked_that_the_session_did_not_declare(name: str, declared: dict[str, Any]) -> None:
    client = await connect(make_board(), "legacy", declared)
    response = await client.response("tools/call", tool(name))
    assert not [message for message in client.heard if "method" in message]
    assert response.json.get("error") or response.json["result"]["isError"]


@pytest.mark.requirement("legacy/asks/bound-to-user", "legacy/asks/state-of-the-user", "legacy/asks/state-storage")
async def test_only_the_client_that_was_asked_can_answer() -> None:
    board = make_board()
    one = await connect(board, "legacy", ABLE)
    asked = Asked(one, "greet")
    question = await asked.question()
    body = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": filled("Mallory")}).encode()
    other = await one.door.open_session()
    assert (await other.send(body).response()).status == 202
    assert not asked.visit.sink.ended
    await asked.answer({"id": "made-up"}, filled("Mallory"))
    await asked.answer(question, filled("Ada"))
    await asked.answer(question, filled("Mallory"))
    assert await asked.text() == "Hello, Ada"


@pytest.mark.requirement("legacy/cancellation/own-requests-only")
async def test_what_we_cancel_are_questions_of_ours_that_are_open() -> None:
    client = await connect(make_board(), "legacy", ABLE)
    asked = Asked(client, "twice", 7)
    first = await asked.question()
    await asked.answer(first, filled("one"))
    second = await asked.question(2)
    await asked.session.notify("notifications/cancelled", {"requestId": 7})
    await asked.visit.settled()
    cancelled = [message for message in asked.heard if message.get("method") == "notifications/cancelled"]
    assert [message["params"]["requestId"] for message in cancelled] in ([], [second["id"]])
    assert all("id" not in message for message in cancelled)


@pytest.mark.requirement("legacy/logging/capability")
async def test_a_server_whose_tools_may_log_declares_it() -> None:
    client = await connect(Board(), "legacy")
    assert (await client.capabilities())["logging"] == {}
    assert await client.result("logging/setLevel", {"level": "debug"}) == {}
