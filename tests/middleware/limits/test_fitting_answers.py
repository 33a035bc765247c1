"""Answers that fit: modes, warnings, estimates, and the rest of a long result in pages."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pegboard
from pegboard import Board, Client, Gateway
from pegboard.errors import DeclarationError, InvalidParams
from pegboard.middleware import (
    Budget,
    Estimate,
    EstimateTally,
    KeptResults,
    Logging,
    ResponseModes,
    TokenBudget,
    count_tokens,
)
from pegboard.testing import FakeClock, expect, make_call, run_alone

NEAR, TRUNCATED, PAGE = "dev.pegboard/nearLimit", "dev.pegboard/truncated", "dev.pegboard/page"


def make_board(*budgets: TokenBudget) -> Board:
    board = Board("answers")

    @board.tool
    async def lines(count: int = 2000) -> str:
        return "\n".join(f"line {number} of the report" for number in range(count))

    @board.tool
    async def rows(count: int = 2000) -> list[dict[str, int]]:
        return [{"id": number, "square": number * number} for number in range(count)]

    @board.tool
    async def settings(count: int = 1000) -> dict[str, str]:
        return {f"key{number}": "value" for number in range(count)}

    board.use(*budgets)
    return board


# Warnings.


async def test_a_result_near_its_budget_is_sent_whole_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    budget = TokenBudget(Budget(1_000, "refuse", warn=300))
    with caplog.at_level(logging.WARNING, "pegboard.tokens"):
        async with Client(make_board(budget)) as client:
            few = await client.call("lines", {"count": 10})
            near = await client.call("lines", {"count": 100})
            many = await client.call("lines", {"count": 400})
    assert NEAR not in few.meta
    expect(near).ok().contains("line 50 of")
    assert near.meta[NEAR] == {"tokens": count_tokens(near.text), "limit": 1000, "warn": 300}
    expect(many).refused("token_budget")
    assert (budget.warned, budget.exceeded) == (1, 1)
    assert "lines returned" in caplog.text


# Modes.


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_a_caller_chooses_the_length_of_a_result(version: str) -> None:
    budget = TokenBudget(500, modes=ResponseModes(summary=100, full=5_000))
    async with Client(make_board(budget), version=version) as client:
        auto = await client.call("lines", {"count": 300})
        summary = await client.call("lines", {"count": 300, "responseMode": "summary"})
        full = await client.call("lines", {"count": 300, "responseMode": "full"})
        too_long = await client.call("lines", {"responseMode": "full"})
        wrong = await client.call("lines", {"responseMode": "short"})
        same = await client.call("lines", {"count": 300, "responseMode": "auto"})
    expect(auto).ok().tokens_at_most(560).notes('For the whole result, call it with "responseMode": "full".')
    assert auto == same
    expect(summary).ok().tokens_at_most(160)
    expect(full).ok().contains("line 150 of")
    assert TRUNCATED not in full.meta
    expect(too_long).refused("token_budget").contains('Or call it with "responseMode": "summary".')
    expect(wrong).error("responseMode: got 'short'", code="invalid_arguments")


async def test_the_mode_can_be_in_the_metadata_of_the_request() -> None:
    call = make_call("report", meta={"dev.pegboard/responseMode": "summary"})
    run = await run_alone(TokenBudget(None, modes=ResponseModes(summary=100)), call=call, answer="word " * 2000)
    expect(run).ok().tokens_at_most(110)


async def test_a_tool_that_declares_the_argument_gets_it_and_without_modes_it_is_unknown() -> None:
    board = Board("own")

    @board.tool
    async def own(responseMode: str = "auto") -> str:  # noqa: N803 — the name on the wire
        return responseMode

    board.use(TokenBudget(500, modes=True), tool="own")
    async with Client(board) as client:
        expect(await client.call("own", {"responseMode": "full"})).text("full")
    async with Client(make_board(TokenBudget(500))) as client:
        expect(await client.call("lines", {"responseMode": "full"})).error().invalid("responseMode")


# The rest of a result.


async def read_all(client: Any, uri: str) -> list[str]:
    """All pages from this one on."""
    pages = []
    while uri:
        page, note = await client.read(uri)
        pages.append(str(page["text"]))
        assert count_tokens(pages[-1]) <= 600
        uri = str(note["text"]).partition("The next page: ")[2]
    return pages


def link_of(result: Any) -> str:
    (link,) = [block for block in result.content if block["type"] == "resource_link"]
    assert link["uri"] == result.meta[TRUNCATED]["uri"]
    return str(link["uri"])


async def test_the_rest_of_a_long_result_is_read_in_pages() -> None:
    async with Client(make_board(TokenBudget(500, overflow=True))) as client:
        lines = await read_all(client, link_of(await client.call("lines")))
        rows = await read_all(client, link_of(await client.call("rows")))
        settings = await read_all(client, link_of(await client.call("settings")))
    assert "".join(lines) == "\n".join(f"line {number} of the report" for number in range(2000))
    assert all(page.endswith("\n") for page in lines[:-1])
    # Each page of a list is a list.
    assert [row for page in rows for row in json.loads(page)] == [{"id": n, "square": n * n} for n in range(2000)]
    assert json.loads("".join(settings)) == {f"key{number}": "value" for number in range(1000)}
    assert min(map(len, (lines, rows, settings))) > 5


async def test_a_refused_result_can_be_read_too_and_the_capability_is_declared() -> None:
    async with Client(make_board(TokenBudget(Budget(500, "refuse"), overflow=True))) as client:
        refused = await client.call("lines")
        expect(refused).refused("token_budget").contains("The whole result can be read at pegboard://results/")
        pages = await read_all(client, refused.meta["dev.pegboard/refused"]["uri"])
        described = await client.discover()
    assert pages[0].startswith("line 0 of")
    assert "resources" in described["capabilities"]


@pytest.mark.parametrize(
    "attach",
    [
        lambda board, budget: board.use(budget, tool="lines"),
        lambda board, budget: board.add(lambda: "word " * 9000, name="own", middleware=[budget]),
    ],
)
async def test_pages_are_served_wherever_the_budget_is_attached(attach: Callable[[Board, TokenBudget], Any]) -> None:
    board = make_board()
    attach(board, TokenBudget(500, overflow=True))
    async with pegboard.Client(board) as client:
        name = "own" if "own" in {tool.name for tool in board.tools} else "lines"
        assert len(await read_all(client, link_of(await client.call(name)))) > 5


async def test_pages_that_do_not_exist_are_unknown_resources() -> None:
    clock = FakeClock()
    kept = KeptResults(seconds=60, clock=clock)
    board = make_board(TokenBudget(500, overflow=True, kept=kept))
    async with Client(board) as client:
        uri = link_of(await client.call("lines"))
        (whole,) = await client.read(uri.removesuffix("/1"))
        assert "line 1999" in str(whole["text"])
        for wrong in (f"{uri}0000", uri.replace("/1", "/x"), "pegboard://results/other/1", "notes://other"):
            with pytest.raises(InvalidParams):
                await client.read(wrong)
        clock.advance(61)
        with pytest.raises(InvalidParams):
            await client.read(uri)


async def test_another_principal_cannot_read_a_page() -> None:
    kept = KeptResults()
    name = kept.keep({"content": [{"type": "text", "text": "secret"}]}, "ann")
    assert await kept.read_page(f"pegboard://results/{name}/1", "bob") is None
    page = await kept.read_page(f"pegboard://results/{name}/1", "ann")
    assert page is not None
    assert page["_meta"] == {PAGE: {"page": 1, "pages": 1}}


# Estimates.


async def test_a_call_whose_estimate_exceeds_its_budget_is_not_run() -> None:
    budget = TokenBudget(Budget(1_000, "refuse"), estimate={"lines": Estimate(10, {"count": 6})})
    async with Client(make_board(budget)) as client:
        expect(await client.call("lines", {"count": 50})).ok()
        refused = await client.call("lines", {"count": "500"})
        by_default = await client.call("lines")
    expect(refused).refused("token_budget").contains(
        "lines was not run: its result would have about 3,010 tokens, and its budget is 1,000. Ask for a smaller count."
    )
    expect(by_default).refused("token_budget").contains("12,010")
    tally = budget.stats()["lines"]
    assert (tally.calls, tally.estimated, tally.refused) == (1, 310, 2)
    assert tally.actual > 100
    assert 0.5 < tally.accuracy <= 1


async def test_an_estimate_is_compared_with_the_result_whatever_the_budget_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = TokenBudget(200, estimate={"rows": lambda call: len(call.arguments["ids"]) * 100})
    call = make_call("rows", {"ids": [1, 2, 3]})
    with caplog.at_level(logging.INFO):
        run = await run_alone(Logging(), budget, call=call, answer="word " * 50)
    assert run.ran == 1
    assert call.state["tokens_estimated"] == 300
    assert caplog.records[-1].tokens_estimated == 300
    assert budget.stats()["rows"].calls == 1
    assert EstimateTally().accuracy == 1


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        ({"n": 3}, 31),
        ({"n": "3"}, 31),
        ({"n": [1, 2]}, 21),
        ({"n": "ab"}, 21),
        ({"n": None}, 1),
        ({"n": True}, 1),
        ({"n": {}}, 1),
        ({"n": -5}, 0),
        ({"n": 1e300}, 10**12),
        ({"n": 10**400}, 10**12),
        ({}, 1),
    ],
)
def test_an_estimate_counts_what_an_argument_asks_for(arguments: dict[str, Any], tokens: int) -> None:
    assert Estimate(1, {"n": 10})(make_call("tool", arguments)) == tokens


# A gateway file.


async def test_all_of_it_can_be_set_in_a_gateway_file(tmp_path: Path) -> None:
    (tmp_path / "reports.py").write_text(
        "from pegboard import Board\n"
        "board = Board('reports')\n"
        "@board.tool\n"
        "async def lines(count: int = 2000) -> str:\n"
        "    return '\\n'.join(f'line {number} of the report' for number in range(count))\n"
    )
    options = {
        "default": {"tokens": 500, "action": "refuse", "warn": 100},
        "overflow": True,
        "modes": {"summary": 100},
        "estimate": {"main__reports__lines": {"base": 10, "per": {"count": 0.1}}},
    }
    server = {"board": "reports.py", "middleware": [{"use": "TokenBudget", "options": options}]}
    tree = {"toolboxes": {"main": {"description": "x", "mcpServers": {"reports": server}}}}
    file = tmp_path / "pegboard.json"
    file.write_text(json.dumps(tree))
    async with pegboard.Client(Gateway(file)) as client:
        refused = await client.call("main__reports__lines")
        expect(refused).refused("token_budget")
        assert len(await read_all(client, refused.meta["dev.pegboard/refused"]["uri"])) > 5
        expect(await client.call("main__reports__lines", {"responseMode": "summary"})).ok().tokens_at_most(160)
        near = await client.call("main__reports__lines", {"count": 30})
        assert near.meta[NEAR]["warn"] == 100
        not_run = await client.call("main__reports__lines", {"count": 50_000})
        expect(not_run).refused("token_budget").contains("was not run")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"default": Budget(100, warn=100)}, "warn=100: use a number above 0 and below the 100 tokens of the budget"),
        ({"default": "many"}, "A budget is a number of tokens, a Budget, or None for no limit, got 'many'"),
        ({"modes": ResponseModes(summary=5)}, "modes: use at least 64 tokens for a summary"),
        ({"modes": ResponseModes(summary=500, full=400)}, "modes: use at least 64 tokens"),
        ({"link": True}, "link=True needs kept"),
    ],
)
def test_options_that_make_no_sense_are_rejected(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        TokenBudget(**options)
    assert str(caught.value).startswith(problem)
