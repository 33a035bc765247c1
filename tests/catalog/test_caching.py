"""How long clients may keep what they were told."""

from __future__ import annotations

import asyncio

import pytest

from pegboard import Board, Client, Context
from pegboard.errors import Busy, DeclarationError
from pegboard.limits import Limits

LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


def a_board(**options: int) -> Board:
    board = Board("kept", limits=Limits(completions=3), **options)

    @board.resource("kept://always", ttl_ms=60_000, cache_scope="public")
    def always() -> str:
        return "the same"

    @board.resource("kept://never")
    def never() -> str:
        return "another"

    @board.resource("kept://asked", ttl_ms=60_000, cache_scope="public")
    async def asked(ctx: Context) -> str:
        return str((await ctx.elicit("What?", str, key="what")).content)

    @board.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    return board


@pytest.mark.parametrize("method", LISTS)
async def test_lists_are_kept_as_long_as_the_board_says(method: str) -> None:
    for ttl_ms in (0, 5000):
        async with Client(a_board(ttl_ms=ttl_ms)) as client:
            result = await client.request(method)
        assert (result["ttlMs"], result["cacheScope"]) == (ttl_ms, "public")


@pytest.mark.parametrize(
    ("uri", "ttl_ms", "scope"), [("kept://always", 60_000, "public"), ("kept://never", 0, "private")]
)
async def test_each_resource_says_how_long_it_may_be_kept_and_by_whom(uri: str, ttl_ms: int, scope: str) -> None:
    async with Client(a_board()) as client:
        result = await client.request("resources/read", {"uri": uri})
    assert (result["ttlMs"], result["cacheScope"]) == (ttl_ms, scope)


async def test_what_a_users_answer_went_into_is_not_kept() -> None:
    params = {"uri": "kept://asked", "inputResponses": {"what": {"action": "accept", "content": {"value": "mine"}}}}
    async with Client(a_board(), capabilities={"elicitation": {}}) as client:
        result = await client.request("resources/read", params)
    assert result["contents"][0]["text"] == "mine"
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("ttl_ms", [-1, 1.5, True])
def test_a_time_that_is_none_is_refused_where_it_is_said(ttl_ms: int) -> None:
    with pytest.raises(DeclarationError, match="ttl_ms"):
        Board("kept", ttl_ms=ttl_ms)
    with pytest.raises(DeclarationError, match="ttl_ms"):
        Board("kept").resource("kept://x", ttl_ms=ttl_ms)


def test_a_scope_that_is_none_is_refused_where_it_is_said() -> None:
    with pytest.raises(DeclarationError, match="cache_scope"):
        Board("kept").resource("kept://x", cache_scope="shared")  # type: ignore[arg-type]  # what is tested


@pytest.mark.requirement("legacy/completion/rate-limited", "modern/completion/rate-limited")
async def test_completions_come_no_faster_than_a_board_can_stand() -> None:
    ref = {"type": "ref/prompt", "name": "greet"}
    async with Client(a_board()) as client:
        # However a second falls between them, eight are more than three in each of two.
        told = await asyncio.gather(*(client.complete(ref, "name", "a") for _ in range(8)), return_exceptions=True)
    refused = [one for one in told if isinstance(one, Busy)]
    assert len(refused) >= 2
    assert refused[0].retry_after == 1
