"""How questions of a server are answered: defaults, declines, what nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Accepted, Cancelled, Declined
from pegboard.call import Question
from pegboard.client.client_channel import QuestionHandlers
from pegboard.errors import MethodNotFound

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "default": 0},
        "agree": {"type": "boolean", "default": False},
        "note": {"type": "string"},
    },
}
ASK = Question("elicitation/create", {"message": "?", "requestedSchema": FORM})
DEFAULTS = {"name": "Ada", "age": 0, "agree": False}


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ({}, {"action": "accept", "content": DEFAULTS}),
        ({"age": 7, "note": "x"}, {"action": "accept", "content": {**DEFAULTS, "age": 7, "note": "x"}}),
        (Accepted({"name": "Bob"}), {"action": "accept", "content": {**DEFAULTS, "name": "Bob"}}),
        (Accepted(), {"action": "accept", "content": DEFAULTS}),
        (None, {"action": "decline"}),
        (Declined(), {"action": "decline"}),
        (Cancelled(), {"action": "cancel"}),
    ],
)
async def test_a_form_is_filled_in_with_its_defaults(told: Any, answer: Any) -> None:
    async def later(asked: Any) -> Any:
        return told

    assert await QuestionHandlers(elicit=lambda asked: told).answer(ASK) == answer
    assert await QuestionHandlers(elicit=later).answer(ASK) == answer


async def test_a_url_that_was_opened_has_no_content() -> None:
    ask = Question("elicitation/create", {"mode": "url", "message": "?", "url": "https://a/"})
    assert await QuestionHandlers(elicit=lambda asked: Accepted() if asked.url else None).answer(ask) == {
        "action": "accept"
    }


async def test_a_question_without_a_handler_is_neither_declared_nor_answered() -> None:
    nobody = QuestionHandlers()
    assert nobody.capabilities() == {}
    for method in ("elicitation/create", "sampling/createMessage", "roots/list", "other"):
        with pytest.raises(MethodNotFound):
            await nobody.answer(Question(method, {}))
    everybody = QuestionHandlers(elicit=lambda _: None, sample=lambda _: "", roots=[])
    assert set(everybody.capabilities()) == {"elicitation", "sampling", "roots"}
