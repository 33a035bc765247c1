"""Prompts and resources take messages, return results in the protocol's own form, and belong to groups, as tools do."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import Field

from pegboard import Board, Client, Image, InvalidParams, JsonRpcMessage, Middleware, Refusal, ToolResponse
from pegboard.errors import InternalFailure

PIXEL = b"\x89PNG\r\n\x1a\n"


async def test_a_prompt_takes_and_returns_a_message() -> None:
    board = Board()

    @board.prompt
    def review(request: JsonRpcMessage) -> JsonRpcMessage:
        code = request.get("code")
        messages = [{"role": "assistant", "content": {"type": "text", "text": f"{request.method}: {code}"}}]
        return ToolResponse.success(request.id, {"description": "A review", "messages": messages})

    async with Client(board) as client:
        result = await client.request("prompts/get", name="review", params={"arguments": {"code": "x = 1"}})
    assert result["description"] == "A review"
    assert result["messages"] == [{"role": "assistant", "content": {"type": "text", "text": "review: x = 1"}}]


async def test_a_resource_takes_and_returns_a_message_with_the_variables_of_its_template() -> None:
    board = Board()

    @board.resource("notes://{folder}/{name}")
    def note(request: JsonRpcMessage) -> JsonRpcMessage:
        text = f"{request.method} {request.get('folder')} {request.get('name')}"
        return ToolResponse.success(request.id, {"contents": [{"uri": "notes://other", "text": text}]})

    async with Client(board) as client:
        assert await client.read("notes://a/b") == [{"uri": "notes://other", "text": "notes://a/b a b"}]


@pytest.mark.parametrize(("method", "name"), [("prompts/get", "refuse"), ("resources/read", "a://b")])
async def test_the_error_of_a_returned_message_is_the_error_of_the_request(method: str, name: str) -> None:
    board = Board()

    @board.prompt
    @board.resource("a://b")
    def refuse(request: JsonRpcMessage) -> JsonRpcMessage:
        return ToolResponse.error(request.id, -31000, "not today")

    async with Client(board) as client:
        with pytest.raises(Refusal, match="not today") as refused:
            await client.request(method, name=name)
    assert refused.value.code == -31000


@dataclass
class Answer:
    description: str
    messages: list[dict[str, Any]]


async def test_a_prompt_returns_the_result_as_in_the_protocol() -> None:
    board = Board()

    @board.prompt
    def as_dict() -> dict[str, Any]:
        return {
            "description": "D",
            "_meta": {"a.b/c": 1},
            "messages": [{"role": "user", "content": Image(PIXEL)}, {"role": "assistant", "content": "fine"}],
        }

    @board.prompt
    def as_dataclass() -> Answer:
        return Answer("E", [{"role": "user", "content": "hello", "_meta": {"a.b/c": 2}}])

    async with Client(board) as client:
        result = await client.request("prompts/get", name="as_dict")
        assert (result["description"], result["_meta"]["a.b/c"]) == ("D", 1)
        assert [one["content"]["type"] for one in result["messages"]] == ["image", "text"]
        result = await client.request("prompts/get", name="as_dataclass")
        assert result["description"] == "E"
        assert result["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "hello"}, "_meta": {"a.b/c": 2}}
        ]


@pytest.mark.parametrize("role", ["robot", "system", None])
async def test_an_unknown_role_is_an_error_that_names_it_in_the_log(
    role: Any, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board()

    @board.prompt
    def wrong() -> list[Any]:
        return ["first", {"role": role, "content": "x"}]

    async with Client(board) as client:
        with caplog.at_level(logging.ERROR), pytest.raises(InternalFailure, match="error id"):
            await client.prompt("wrong")
    assert f"messages[1].role: is {role!r}; use 'user' or 'assistant'" in caplog.text


async def test_a_resource_returns_contents_as_in_the_protocol() -> None:
    board = Board()

    @board.resource("a://many", mime_type="text/markdown")
    def many() -> dict[str, Any]:
        return {"contents": [{"text": "one"}, {"uri": "a://2", "mimeType": "image/png", "blob": "AAAA"}]}

    @board.resource("a://one")
    def one() -> dict[str, Any]:
        return {"uri": "a://one", "mimeType": "text/css", "text": "b {}"}

    @board.resource("a://data")
    def data() -> dict[str, Any]:
        return {"uri": "a://data", "text": "data", "author": "Ada"}

    async with Client(board) as client:
        assert await client.read("a://many") == [
            {"mimeType": "text/markdown", "uri": "a://many", "text": "one"},
            {"mimeType": "image/png", "uri": "a://2", "blob": "AAAA"},
        ]
        assert await client.read("a://one") == [{"uri": "a://one", "mimeType": "text/css", "text": "b {}"}]
        (part,) = await client.read("a://data")
        assert part["mimeType"] == "application/json"


@pytest.mark.parametrize("part", [{"text": 1}, {}, {"text": "a", "blob": "b"}, "text"])
async def test_malformed_contents_are_an_error(part: Any, caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    board.resource("a://b")(lambda: {"contents": [part]})
    async with Client(board) as client:
        with caplog.at_level(logging.ERROR), pytest.raises(InternalFailure):
            await client.read("a://b")
    assert "contents[0]" in caplog.text


async def test_icons_may_be_a_url_and_arguments_have_titles() -> None:
    board = Board()
    board.resource("a://b", icons="https://x.example/i.png")(lambda: "")

    @board.prompt(icons="https://x.example/p.png")
    def ask(
        who: Annotated[str, Field(title="Person")], what: Annotated[str, msgspec.Meta(title="Thing")], why: str = ""
    ) -> str:
        return who + what + why

    async with Client(board) as client:
        (resource,) = await client.list_resources()
        (prompt,) = await client.list_prompts()
    assert (resource["title"], resource["icons"]) == ("B", [{"src": "https://x.example/i.png"}])
    assert prompt["icons"] == [{"src": "https://x.example/p.png"}]
    assert prompt["arguments"] == [
        {"name": "who", "title": "Person", "required": True},
        {"name": "what", "title": "Thing", "required": True},
        {"name": "why", "required": False},
    ]


class Count(Middleware):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def before(self, call: Any) -> None:
        self.seen.append(call.name)


async def test_a_group_has_prompts_and_resources() -> None:
    board, count = Board(), Count()
    group = board.group("shop").group("orders")
    group.use(count)

    @group.prompt
    def review(item: str) -> str:
        return item

    @group.resource("orders://{number}", title="An order")
    def order(number: int) -> str:
        return str(number + 1)

    @board.resource("other://x")
    def other() -> str:
        return ""

    async with Client(board) as client:
        assert [one["name"] for one in await client.list_prompts()] == ["shop.orders.review"]
        assert [one["name"] for one in await client.list_templates()] == ["shop.orders.order"]
        await client.prompt("shop.orders.review", {"item": "x"})
        assert (await client.read("orders://4"))[0]["text"] == "5"
        await client.read("other://x")
        with pytest.raises(InvalidParams):
            await client.prompt("review", {"item": "x"})
    assert count.seen == ["shop.orders.review", "orders://4"]
