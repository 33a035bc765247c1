"""What a request has to bring along before a tool hears of it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from pegboard import Board, Client, Header
from tests.server.fake_sink import Door, Response, request


class Watched:
    """A board whose tool is about a region, and what that tool was called with."""

    def __init__(self) -> None:
        self.board = Board("entry", version="1")
        self.seen: list[Any] = []

        @self.board.tool
        async def deploy(
            region: Annotated[str, Header("Region")] = "nowhere",
            count: Annotated[int, Header("Count")] = 1,
            force: Annotated[bool, Header("Force")] = False,
        ) -> str:
            """Deploys."""
            self.seen.append((region, count, force))
            return region

    async def deploy(self, arguments: dict[str, Any], **headers: str) -> Response:
        door = Door(handler=self.board.handler, info=self.board.info)
        named = {f"Mcp-Param-{name}": value for name, value in headers.items()}
        return await door.call("deploy", arguments=arguments, headers=named).response()


@pytest.mark.requirement("modern/headers/param-match")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("Hello", "Hello"),
        ("Hello", "=?base64?SGVsbG8=?="),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("größe", "=?base64?Z3LDtsOfZQ==?="),
        ("", ""),
    ],
)
async def test_a_header_that_says_what_the_argument_says_is_accepted(value: str, header: str) -> None:
    one = Watched()
    response = await one.deploy({"region": value}, region=header)
    assert (response.status, response.json["result"].get("isError")) == (200, None)
    assert one.seen == [(value, 1, False)]


@pytest.mark.requirement("modern/headers/param-match", "modern/headers/param-characters")
@pytest.mark.parametrize(
    "header",
    ["hello", "Hello!", "=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?aGVsbG8=?=", "Hell\xf6", "Hel\x00lo"],
)
async def test_any_other_header_is_refused_and_the_tool_does_not_run(header: str) -> None:
    one = Watched()
    response = await one.deploy({"region": "Hello"}, region=header)
    assert (response.status, response.code, response.json["id"]) == (400, -32020, 1)
    assert one.seen == []


@pytest.mark.requirement("modern/headers/param-omitted")
@pytest.mark.parametrize("arguments", [{"region": "eu"}, {"count": 2}, {"force": False}, {"region": ["eu"]}])
async def test_an_argument_without_its_header_is_refused(arguments: dict[str, Any]) -> None:
    one = Watched()
    response = await one.deploy(arguments)
    assert (response.status, response.code) == (400, -32020)
    assert one.seen == []


@pytest.mark.requirement("modern/headers/param-null", "modern/headers/param-absent")
@pytest.mark.parametrize("arguments", [{}, {"region": None}])
async def test_a_parameter_without_a_value_needs_no_header_and_allows_none(arguments: dict[str, Any]) -> None:
    one = Watched()
    assert (await one.deploy(arguments)).json["result"]["content"][0]["text"] == "nowhere"
    response = await one.deploy(arguments, region="eu")
    assert (response.status, response.code) == (400, -32020)
    assert len(one.seen) == 1


@pytest.mark.requirement("modern/headers/annotation-safe-integers")
async def test_an_integer_that_a_double_cannot_count_is_refused() -> None:
    one = Watched()
    assert (await one.deploy({"count": 2**53 - 1}, count=str(2**53 - 1))).status == 200
    assert (await one.deploy({"count": 2**53}, count=str(2**53))).code == -32020


async def test_headers_mirror_what_was_sent_and_not_what_became_of_it() -> None:
    one = Watched()
    assert (await one.deploy({"count": "3", "force": "yes"}, count="3", force="yes")).status == 200
    assert one.seen == [("nowhere", 3, True)]
    assert (await one.deploy({"count": "3"}, count="3.0")).code == -32020


async def test_a_hook_may_change_arguments_without_their_headers() -> None:
    one = Watched()

    async def move(call: Any, proceed: Any) -> Any:
        return await proceed(call.with_arguments({"region": "moon"}))

    one.board.use(move)
    assert (await one.deploy({"region": "eu"}, region="eu")).json["result"]["content"][0]["text"] == "moon"
    assert (await one.deploy({"region": "eu"}, region="moon")).code == -32020


async def test_headers_of_undeclared_parameters_are_ignored() -> None:
    one = Watched()
    response = await one.deploy({"region": "eu"}, region="eu", other="\xff", zone="=?base64?!?=")
    assert response.status == 200


async def test_where_there_are_no_headers_none_are_missed() -> None:
    one = Watched()
    async with Client(one.board) as client:
        assert (await client.call("deploy", {"region": "eu"})).text == "eu"
    session = await Door(handler=one.board.handler, info=one.board.info).open_session()
    body = request("tools/call", {"name": "deploy", "arguments": {"region": "us"}})
    assert (await session.send(body, {"mcp-param-region": "eu"}).response()).status == 200
    assert [region for region, _, _ in one.seen] == ["eu", "us"]
