"""Questions to a legacy client that are not answered yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct

from pegboard.call import Json, Question
from pegboard.errors import LimitReached, QuestionFailed
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import NOTHING, Message, decode_json

_QUOTED = 300


class QuestionSender(Protocol):
    """How a call sends questions to its client: on its stream, or on the shared connection."""

    async def send_question(self, request_id: str, question: Question) -> None:
        """Send the request; QuestionFailed if the client cannot be reached."""

    async def question_answered(self, request_id: str) -> None:
        """The question has been answered."""

    async def cancel_question(self, request_id: str, reason: str) -> None:
        """The call no longer waits for the answer."""


class _OpenQuestion(Struct, eq=False):
    sender: QuestionSender
    answer: asyncio.Future[Message]


class OpenQuestions:
    """Delivers each answer to the call that waits for it; other answers are dropped.

    If several processes serve one client, the id of a question names the `worker` that waits for the answer.
    """

    __slots__ = ("_open", "_prefix")

    def __init__(self, worker: str = "") -> None:
        self._prefix = f"{worker}." if worker else ""
        self._open: dict[object, _OpenQuestion] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def calls(self) -> int:
        """How many calls wait."""
        return len({id(question.sender) for question in self._open.values()})

    def receive_answer(self, message: Message) -> None:
        """Deliver an answer; duplicates and unknown ids are dropped."""
        found = None if message.id is UNSET else self._open.pop(message.id, None)
        if found is not None and not found.answer.done():
            found.answer.set_result(message)

    async def put(
        self, questions: Mapping[str, Question], sender: QuestionSender, limits: Limits
    ) -> Mapping[str, Json]:
        """Ask all questions at once and wait for the result of each."""
        waiting = sum(question.sender is sender for question in self._open.values())
        if waiting + len(questions) > limits.questions:
            text = f"A call may ask its caller {limits.questions} questions at a time; this one asks {waiting + len(questions)}"
            raise LimitReached(text, "asks", limit=limits.questions)
        loop = asyncio.get_running_loop()
        # Ids cannot be guessed, so a client cannot answer the questions of another one.
        opened = {key: (self._prefix + secrets.token_hex(8), loop.create_future()) for key in questions}
        reason = "The call was cancelled"
        try:
            for key, (request_id, answer) in opened.items():
                self._open[request_id] = _OpenQuestion(sender, answer)
                await sender.send_question(request_id, questions[key])
            results: dict[str, Json] = {}
            pending = {answer: key for key, (_, answer) in opened.items()}
            deadline = loop.time() + limits.ask_seconds
            while pending:
                left = deadline - loop.time()
                done, _ = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    raise QuestionFailed(f"The client did not answer within {limits.ask_seconds:g} seconds")
                for answer in done:
                    key = pending.pop(answer)
                    await sender.question_answered(opened[key][0])
                    results[key] = read_result(answer.result(), questions[key])
        except QuestionFailed as failed:
            reason = failed.message
            raise
        finally:
            for request_id, _ in opened.values():
                if self._open.pop(request_id, None) is not None:
                    await sender.cancel_question(request_id, reason)
        return {key: results[key] for key in questions}


def worker_of_question(request_id: object) -> str:
    """The process that waits for the answer to that question; empty if the id does not name one."""
    return request_id.rpartition(".")[0] if isinstance(request_id, str) else ""


def read_result(message: Message, question: Question) -> Json:
    """The result of an answer; QuestionFailed if it is an error or malformed."""
    if message.result is NOTHING:
        raise QuestionFailed(f"The client could not answer {question.method}: {_reason(bytes(message.error))}")
    result = decode_json(message.result)
    if not isinstance(result, dict):
        raise QuestionFailed(f"The client's answer to {question.method} is not an object")
    return result


def _reason(error: bytes) -> str:
    try:
        message = decode_json(error).get("message")
    except (msgspec.MsgspecError, AttributeError):
        message = None
    return message[:_QUOTED] if isinstance(message, str) and message else "no reason given"
