"""Questions of a server that are being answered: how many at a time, and what a flood of them costs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pegboard.call import Json, Notification, Question
from pegboard.client.links.legacy_session import MAX_ID_LENGTH, IncomingQuestions
from pegboard.client.links.server_messages import ServerMessage, read_server_message
from pegboard.limits import Limits

LIMITS = Limits()
MAX_OPEN = 4 * LIMITS.questions


class Nobody:
    """A channel whose user never answers."""

    async def emit(self, notice: Notification) -> None: ...

    async def close_stream(self, retry_ms: int) -> None: ...

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Json]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a wait without an end")


class Pipe:
    """Holds what is sent, as a pipe does whose other end reads nothing."""

    def __init__(self) -> None:
        self.held: list[bytes] = []

    async def send(self, body: bytes) -> None:
        self.held.append(body)
        await asyncio.get_running_loop().create_future()


def asked(request_id: Any, method: str = "ping", **params: Any) -> ServerMessage:
    return read_server_message(
        msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}), LIMITS
    )


@pytest.mark.parametrize("method", ["ping", "elicitation/create"])
async def test_a_server_that_asks_and_does_not_read_the_answers_fills_no_memory(method: str) -> None:
    pipe = Pipe()
    questions = IncomingQuestions(pipe.send, LIMITS)
    before = len(asyncio.all_tasks())
    for number in range(10_000):
        questions.start(asked(f"q{number}", method), Nobody())
        if not number % 100:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(pipe.held) <= MAX_OPEN
    assert len(asyncio.all_tasks()) - before <= MAX_OPEN
    await questions.close()


async def test_a_question_under_an_endless_id_is_not_answered() -> None:
    pipe = Pipe()
    questions = IncomingQuestions(pipe.send, LIMITS)
    questions.start(asked("x" * (MAX_ID_LENGTH + 1)), Nobody())
    questions.start(asked("x" * MAX_ID_LENGTH), Nobody())
    await asyncio.sleep(0)
    assert len(pipe.held) == 1
    await questions.close()


async def test_an_answer_that_was_sent_makes_room_for_the_next_question() -> None:
    sent: list[bytes] = []

    async def send(body: bytes) -> None:
        sent.append(body)

    questions = IncomingQuestions(send, LIMITS)
    for number in range(10 * MAX_OPEN):
        questions.start(asked(number), Nobody())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(sent) == 10 * MAX_OPEN
    await questions.close()


@pytest.mark.parametrize("request_id", [None, [], {}, 1.5])
async def test_an_id_that_is_none_cancels_nothing(request_id: Any) -> None:
    questions = IncomingQuestions(Pipe().send, LIMITS)
    questions.start(asked("q"), Nobody())
    questions.drop(request_id)
    await asyncio.sleep(0)
    assert len(questions._open) == 1
    await questions.close()
