"""Callers of both eras through the gateway to servers of both eras."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Client
from pegboard.errors import InvalidParams
from tests.client.process_leftovers import nothing_left
from tests.gateway.asking_server import Asker
from tests.gateway.minimal_gateway import LEGACY, MODERN, Crossing, crossing, served
from tests.waiting import until

ERAS = [
    pytest.param(caller, server, id=f"{caller[:4]}-to-{server[:4]}")
    for caller in (LEGACY, MODERN)
    for server in (LEGACY, MODERN)
]
pytestmark = [pytest.mark.process, pytest.mark.parametrize(("caller", "server"), ERAS)]


class People:
    """Answers whatever is asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def elicit(self, asked: Any) -> dict[str, str]:
        self.asked.append(asked.message)
        return {"name": f"answer to {asked.message}"}

    def sample(self, params: Any) -> str:
        self.asked.append(params["messages"][0]["content"]["text"])
        return "hello"


@asynccontextmanager
async def crossed(caller: str, server: str, board: Asker, **options: Any) -> AsyncIterator[tuple[Client, Crossing]]:
    """A client of one era in front of a server of another."""
    async with nothing_left(), crossing(board, server) as made, served(made.board) as url:
        people = People()
        answers: dict[str, Any] = {"elicit": people.elicit, "sample": people.sample, "roots": ["file:///home"]}
        async with Client(url, version=caller, **{**answers, **options}) as client:
            assert client.version == caller
            yield client, made


async def test_a_call_comes_back_with_its_result(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("add_up", {"a": 2, "b": 3})).text == "5"


async def test_a_question_is_answered(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("ask")).text == "Hello answer to Who are you?"


async def test_two_questions_at_once_are_answered(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("two_asks")).text == "answer to First? and answer to Second?"


async def test_a_question_after_a_question_is_answered(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        text = (await client.call("ask_twice")).text
    assert text == "answer to First?, then answer to After answer to First??"


async def test_a_model_and_roots_are_asked_for(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("sample")).text == "hello"
        assert (await client.call("roots")).text == "file:///home"


async def test_progress_is_reported_before_and_after_a_question(caller: str, server: str) -> None:
    steps: list[tuple[float, float | None, str | None]] = []
    async with crossed(caller, server, Asker()) as (client, _):
        text = (await client.call("ask_and_tell", progress=lambda *step: steps.append(step))).text
    assert text == "answer to Who?"
    assert (1, 3, "before") in steps
    assert steps[-1] == (2, 3, "after")


async def test_progress_is_reported_in_order(caller: str, server: str) -> None:
    steps: list[Any] = []
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("tell", progress=lambda *step: steps.append(step))).text == "told"
        assert (await client.call("tell")).text == "told"
    assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize(("level", "heard"), [("info", ["much", "little"]), ("warning", ["little"]), ("error", [])])
async def test_logs_go_by_the_level_of_the_caller(caller: str, server: str, level: str, heard: list[str]) -> None:
    logs: list[Any] = []
    listen = {"log": lambda _level, data: logs.append(data), "log_level": level}
    async with crossed(caller, server, Asker(), **listen) as (client, _):
        assert (await client.call("log")).text == "logged"
    assert logs == heard


async def test_a_cancelled_call_is_cancelled_at_the_server(caller: str, server: str) -> None:
    board = Asker()
    async with crossed(caller, server, board) as (client, made):
        call = asyncio.create_task(client.call("wait"))
        await board.waiting.wait()
        call.cancel()
        await until(lambda: board.stopped == ["wait"])
        await until(lambda: made.downstream.in_flight == 0)
        assert (await client.call("add_up", {"a": 1, "b": 1})).text == "2"


async def test_structured_content_stays_what_it_is(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        result = await client.call("point")
        assert result.structured == {"x": 1, "y": 2}
        number = await client.call("add_up", {"a": 1, "b": 1})
        assert number.structured == (2 if (caller, server) == (MODERN, MODERN) else {"result": 2})


async def test_errors_stay_what_they_are(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        failed = await client.call("fail")
        assert (failed.is_error, failed.text) == (True, "it did not work")
        with pytest.raises(InvalidParams, match="not like this") as refused:
            await client.call("refuse")
        assert refused.value.data == {"hint": "otherwise"}


async def test_who_cannot_be_asked_declines(caller: str, server: str) -> None:
    board = Asker()
    async with crossed(caller, server, board, elicit=None, sample=None, roots=None) as (client, _):
        if server == LEGACY:
            assert (await client.call("ask")).text == "Hello decline"
            failed = await client.call("sample")
            assert failed.is_error
            assert "does not support" in failed.text
            assert (await client.call("roots")).text == ""
        else:
            failed = await client.call("ask")
            assert failed.is_error
            assert "needs a client with the capability elicitation.form" in failed.text


async def test_metadata_comes_back(caller: str, server: str) -> None:
    async with crossed(caller, server, Asker()) as (client, _):
        assert (await client.call("echo_meta")).meta["example.org/back"] == {"deep": [1, 2]}
