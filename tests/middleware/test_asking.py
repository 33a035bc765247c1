"""Middleware around tools that ask their caller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pegboard import Board, Client, Context
from pegboard.call import Call, Handler, InputRequired, Reply
from pegboard.middleware import Audit, Cache, Logging, Retry, TokenBudget
from tests.client_variants import fails_here
from tests.middleware.audit.audit_records import records_of
from tests.requirements.clients import connect

ABLE: dict[str, Any] = {"elicitation": {"form": {}}}
PROMISES = {"readOnlyHint": True, "idempotentHint": True}


class Asked:
    """A board with a tool that asks and then fails as often as it is told to; and how often either happened."""

    def __init__(self) -> None:
        self.board = Board("asked", version="1")
        self.failures = self.runs = self.questions = 0

        @self.board.tool(annotations=PROMISES)
        async def confirm(ctx: Context, what: str = "it") -> str:
            """Asks and does it."""
            self.runs += 1
            answer = await ctx.elicit(f"Do {what}?", bool, key="sure")
            if self.failures:
                self.failures -= 1
                raise OSError("not now")
            return f"{what}: {answer.content}"

    def answer(self, _question: Any) -> dict[str, Any]:
        self.questions += 1
        return {"value": self.questions == 1}


def again(asked: dict[str, Any]) -> dict[str, Any]:
    """The request sent again with its answer."""
    answers = {"sure": {"action": "accept", "content": {"value": True}}}
    return {"name": "confirm", "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]}


async def no_wait(_seconds: float) -> None:
    return


@fails_here
async def test_what_is_tried_again_keeps_the_answer_it_got(road: str) -> None:
    one = Asked()
    one.board.use(Retry(sleep=no_wait))
    one.failures = 2
    async with Client(one.board, elicit=one.answer) as client:
        assert (await client.call("confirm")).text == "it: True"
    # Over a wire the request comes again with the answer, and the tool begins again.
    assert (one.runs, one.questions) == (4 if road == "ws" else 3, 1)


async def test_a_question_is_an_answer_that_is_not_tried_again() -> None:
    one = Asked()
    one.board.use(Retry(sleep=no_wait))
    one.failures = 1
    client = await connect(one.board, "modern", ABLE)
    asked = await client.result("tools/call", {"name": "confirm", "arguments": {}})
    assert (asked["resultType"], one.runs) == ("input_required", 1)
    assert (await client.result("tools/call", again(asked)))["content"][0]["text"] == "it: True"
    assert one.runs == 3


async def test_what_a_user_said_is_not_kept_though_another_middleware_changed_the_arguments() -> None:
    one = Asked()

    async def rewrite(call: Call, proceed: Handler) -> Reply:
        return await proceed(call.with_arguments({"what": "this"}))

    one.board.use(Cache(60))
    one.board.use(rewrite, order=200)
    async with Client(one.board, elicit=one.answer) as client:
        assert [(await client.call("confirm")).text for _ in range(2)] == ["this: True", "this: False"]
    asking = await connect(one.board, "modern", ABLE)
    asked = await asking.result("tools/call", {"name": "confirm", "arguments": {}})
    # The state is bound to what was sent, not to what a middleware made of it.
    assert (await asking.result("tools/call", again(asked)))["content"][0]["text"] == "this: True"


async def test_questions_are_recorded_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, audit = Asked(), Audit(tmp_path / "audit")
    one.board.use(audit, Logging())
    client = await connect(one.board, "modern", ABLE)
    with caplog.at_level(logging.INFO, "pegboard.calls"):
        asked = await client.result("tools/call", {"name": "confirm", "arguments": {}})
        await client.result("tools/call", again(asked))
    audit.close()
    assert [record["outcome"] for record in records_of(tmp_path / "audit")] == ["asked", "ok"]
    assert [getattr(record, "outcome", "") for record in caplog.records] == ["asked", "ok"]


async def test_a_budget_lets_questions_through_as_they_are() -> None:
    one, seen = Asked(), list[Reply]()

    async def look(call: Call, proceed: Handler) -> Reply:
        seen.append(await proceed(call))
        return seen[-1]

    one.board.use(TokenBudget(64, counter=len))
    one.board.use(look, order=-1)
    client = await connect(one.board, "modern", ABLE)
    asked = await client.result("tools/call", {"name": "confirm", "arguments": {"what": "x" * 1000}})
    assert asked["inputRequests"]["sure"]["params"]["message"] == f"Do {'x' * 1000}?"
    assert isinstance(seen[0], InputRequired)
