"""Questions to a client and their answers: each finds the call that waits for it, and no other answer finds anybody."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pegboard.call import Question
from pegboard.errors import LimitReached, QuestionFailed
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import Message
from pegboard.sessions.open_questions import OpenQuestions

ROOTS = Question("roots/list", {})
FORM = Question("elicitation/create", {"message": "?"})


class Road:
    """The way of a test: what was sent, settled and cancelled, by id."""

    def __init__(self) -> None:
        self.sent: dict[str, Question] = {}
        self.settled: list[str] = []
        self.cancelled: dict[str, str] = {}
        self.blocked = False
        self.news = asyncio.Event()

    async def send_question(self, request_id: str, question: Question) -> None:
        if self.blocked:
            raise QuestionFailed("no way")
        self.sent[request_id] = question
        self.news.set()

    async def question_answered(self, request_id: str) -> None:
        self.settled.append(request_id)

    async def cancel_question(self, request_id: str, reason: str) -> None:
        self.cancelled[request_id] = reason

    async def ids(self, count: int = 1) -> list[str]:
        while len(self.sent) < count:
            self.news.clear()
            await self.news.wait()
        return list(self.sent)


def answered(request_id: Any, **members: Any) -> Message:
    return msgspec.json.decode(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **members}), type=Message)


def put(asks: OpenQuestions, road: Road, limits: Limits | None = None, **questions: Question) -> asyncio.Future[Any]:
    return asyncio.ensure_future(asks.put(questions, road, limits or Limits()))


async def test_the_answer_to_a_question_is_its_result() -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, roots=ROOTS)
    [request_id] = await road.ids()
    assert len(request_id) == 16
    assert road.sent[request_id] is ROOTS
    assert (len(asks), asks.calls) == (1, 1)
    asks.receive_answer(answered(request_id, result={"roots": []}))
    assert await asking == {"roots": {"roots": []}}
    assert road.settled == [request_id]
    assert (len(asks), asks.calls, road.cancelled) == (0, 0, {})


async def test_several_questions_are_asked_at_once_and_answered_in_any_order() -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, a=ROOTS, b=FORM, c=ROOTS)
    ids = await road.ids(3)
    for number in (2, 0, 1):
        asks.receive_answer(answered(ids[number], result={"n": number}))
    assert list((await asking).items()) == [("a", {"n": 0}), ("b", {"n": 1}), ("c", {"n": 2})]


async def test_a_second_and_an_unknown_answer_are_dropped() -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, a=ROOTS)
    [request_id] = await road.ids()
    for strange in ("0" * 16, 7, ""):
        asks.receive_answer(answered(strange, result={}))
    asks.receive_answer(answered(request_id, result={"n": 1}))
    asks.receive_answer(answered(request_id, result={"n": 2}))
    asks.receive_answer(answered(request_id, error={"code": 1, "message": "late"}))
    assert await asking == {"a": {"n": 1}}


async def test_what_another_client_answers_answers_nothing() -> None:
    asks, others, road = OpenQuestions(), OpenQuestions(), Road()
    asking = put(asks, road, a=ROOTS)
    [request_id] = await road.ids()
    others.receive_answer(answered(request_id, result={"foreign": True}))
    asks.receive_answer(answered(request_id, result={}))
    assert await asking == {"a": {}}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"code": -1, "message": "User rejected"}, "elicitation/create: User rejected"),
        ({"code": -1, "message": ""}, "no reason given"),
        ({"code": -1, "message": 5}, "no reason given"),
        ("what", "no reason given"),
        ({"code": -1, "message": "x" * 10_000}, "x" * 300),
    ],
)
async def test_an_error_of_the_client_fails_the_question_and_withdraws_the_others(error: Any, told: str) -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, a=FORM, b=ROOTS)
    first, second = await road.ids(2)
    asks.receive_answer(answered(first, error=error))
    with pytest.raises(QuestionFailed) as caught:
        await asking
    assert told in caught.value.message
    assert len(caught.value.message) < 400
    assert list(road.cancelled) == [second]
    assert len(asks) == 0


async def test_a_non_object_result_fails_its_question() -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, a=ROOTS)
    asks.receive_answer(answered((await road.ids())[0], result=[1]))
    with pytest.raises(QuestionFailed, match="is not an object"):
        await asking


async def test_a_question_that_cannot_be_sent_fails_at_once() -> None:
    asks, road = OpenQuestions(), Road()
    road.blocked = True
    with pytest.raises(QuestionFailed, match="no way"):
        await put(asks, road, a=ROOTS)
    assert len(asks) == 0


async def test_who_does_not_answer_in_time_is_waited_for_no_longer() -> None:
    asks, road = OpenQuestions(), Road()
    asking = put(asks, road, Limits(ask_seconds=0.05), a=ROOTS, b=FORM)
    first, second = await road.ids(2)
    asks.receive_answer(answered(first, result={}))
    with pytest.raises(QuestionFailed, match=r"within 0\.05 seconds"):
        await asking
    assert list(road.cancelled) == [second]
    assert "0.05 seconds" in road.cancelled[second]
    assert len(asks) == 0


async def test_a_cancelled_call_withdraws_its_questions() -> None:
    asks, road, other = OpenQuestions(), Road(), Road()
    asking, others = put(asks, road, a=ROOTS), put(asks, other, a=ROOTS)
    [request_id], [foreign] = await road.ids(), await other.ids()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert list(road.cancelled) == [request_id]
    assert other.cancelled == {}
    asks.receive_answer(answered(request_id, result={}))
    asks.receive_answer(answered(foreign, result={}))
    assert await others == {"a": {}}


async def test_a_call_has_so_many_questions_open_and_an_answer_makes_room() -> None:
    asks, road, other = OpenQuestions(), Road(), Road()
    limits = Limits(questions=2)
    first = put(asks, road, limits, a=ROOTS, b=ROOTS)
    ids = await road.ids(2)
    with pytest.raises(LimitReached, match="2 questions at a time"):
        await put(asks, road, limits, c=ROOTS)
    elsewhere = put(asks, other, limits, c=ROOTS)
    asks.receive_answer(answered((await other.ids())[0], result={}))
    assert await elsewhere == {"c": {}}
    for request_id in ids:
        asks.receive_answer(answered(request_id, result={}))
    await first
    again = put(asks, road, limits, c=ROOTS)
    asks.receive_answer(answered((await road.ids(3))[2], result={}))
    assert await again == {"c": {}}
