"""Token budgets: who has which, and what happens to a result that is over it."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from pegboard import Board, Client, File, Image, ToolResult
from pegboard.call import Done
from pegboard.client.client import CallResult
from pegboard.errors import REFUSED, DeclarationError, InvalidArguments, ToolError
from pegboard.middleware import Budget, KeptResults, TokenBudget, TokenCount, count_tokens, estimate_tokens
from pegboard.middleware.limits.json_reduction import fit_json
from pegboard.middleware.limits.result_reduction import SMALLEST, truncate
from pegboard.middleware.limits.token_budget import TRUNCATED
from pegboard.testing import FakeClock, Recorder, make_call, run_alone

LONG = " ".join(f"line {number} of the report" for number in range(2000))


async def call(budget: TokenBudget, answer: object = LONG, *, category: str = "", name: str = "report") -> CallResult:
    board = Board()
    board.use(budget)

    async def tool() -> object:
        return answer

    board.add(tool, name=name, category=category)
    async with Client(board) as client:
        return await client.call(name)


async def test_a_result_within_its_budget_is_not_touched() -> None:
    whole = await call(TokenBudget(None))
    assert whole.text == LONG
    assert await call(TokenBudget(count_tokens(LONG))) == whole


async def test_a_cut_keeps_the_first_and_last_part_and_says_its_size_in_numbers() -> None:
    total = count_tokens(LONG)
    result = await call(TokenBudget(500))
    head, note, tail = result.text.split("\n")
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert min(len(head), len(tail)) > 500
    numbers = re.fullmatch(r"\[… ([\d,]+) of ([\d,]+) tokens \(([\d,]+) characters\) left out …\]", note)
    assert numbers is not None
    left_out, of, characters = (int(number.replace(",", "")) for number in numbers.groups())
    assert of == total
    assert left_out == total - count_tokens(head) - count_tokens(tail)
    assert characters == len(LONG) - len(head) - len(tail)
    assert 400 < count_tokens(result.text) <= 500
    assert result.meta[TRUNCATED] == {"tokens": total, "limit": 500}
    assert not result.is_error


async def test_every_text_of_a_result_is_cut_and_the_rest_is_left() -> None:
    image = Image(b"\x89PNG\r\n\x1a\nxxxx")
    result = await call(TokenBudget(1000), ToolResult([LONG, "short", image, File(LONG.encode(), name="a.txt"), LONG]))
    first, short, picture, file, last = result.content
    assert short == {"type": "text", "text": "short"}
    assert picture["type"] == "image"
    assert picture["data"]
    texts = [first["text"], file["resource"]["text"], last["text"]]
    for text in texts:
        assert text.startswith("line 0 ")
        assert text.endswith("report")
        assert "left out" in text
    assert 800 < sum(count_tokens(text) for text in texts) <= 1000


async def test_so_many_texts_that_each_would_be_a_note_lose_their_middle() -> None:
    many = Done({"content": [{"type": "text", "text": f"text number {number}"} for number in range(1000)]})
    run = await run_alone(TokenBudget(200), answer=many)
    assert run.result is not None
    texts = [block["text"] for block in run.result["content"]]
    assert texts[0] == "text number 0"
    assert texts[-1] == "text number 999"
    [note] = [text for text in texts if "left out" in text]
    assert note.startswith(f"[… {1000 - len(texts) + 1} of 1,000 texts with ")
    assert sum(map(count_tokens, texts)) <= 200


async def test_a_refused_result_says_that_the_tool_was_run() -> None:
    total = count_tokens(LONG)
    result = await call(TokenBudget(100, action="refuse"))
    assert result.is_error
    assert result.text == (
        f"report ran, but its result of {total:,} tokens exceeds the budget of 100 and was not sent. Ask for less."
    )
    assert result.meta[REFUSED] == {"reason": "token_budget", "limit": 100, "tokens": total}


async def test_a_warning_is_logged_and_the_result_stands(caplog: pytest.LogCaptureFixture) -> None:
    budget = TokenBudget(100, action="warn")
    result = await call(budget)
    assert result.text == LONG
    assert f"report returned {count_tokens(LONG)} tokens, its budget is 100" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert budget.exceeded == 1


@pytest.mark.parametrize(
    ("budget", "outcome"),
    [
        (TokenBudget(100, categories={"data": 1_000_000}, tools={"report": Budget(200, "refuse")}), "budget of 200"),
        (TokenBudget(100, categories={"data": Budget(300, "refuse")}, tools={"other": 1_000_000}), "budget of 300"),
        (TokenBudget(Budget(400, "refuse"), categories={"other": None}, tools={"other": None}), "budget of 400"),
        (TokenBudget(100, tools={"report": None}), "line 1999 of the report"),
    ],
)
async def test_the_budget_of_a_tool_goes_before_its_category_before_the_default(
    budget: TokenBudget, outcome: str
) -> None:
    assert outcome in (await call(budget, category="data")).text


@dataclass
class Row:
    id: int
    name: str
    notes: str = ""


def rows(count: int, notes: str = "") -> list[Row]:
    return [Row(number, f"row number {number}", notes) for number in range(count)]


async def call_rows(budget: TokenBudget, answer: object, returns: object) -> CallResult:
    board = Board()
    board.use(budget)

    async def tool() -> object:
        return answer

    tool.__annotations__["return"] = returns
    board.add(tool, name="rows")
    async with Client(board) as client:
        return await client.call("rows")


async def test_a_cut_list_stays_json_and_says_how_many_items_are_missing() -> None:
    result = await call_rows(TokenBudget(300), rows(1000), object)
    *kept, note = json.loads(result.text)
    assert kept == [asdict(row) for row in rows(len(kept))]
    assert note == f"… {1000 - len(kept)} more items"
    assert 200 < count_tokens(result.text) <= 300


async def test_cut_structured_content_fits_its_schema_and_meta_counts_what_is_missing() -> None:
    result = await call_rows(TokenBudget(300), {"rows": rows(1000), "total": 1000}, dict[str, list[Row] | int])
    kept = result.structured["rows"]
    assert kept == [asdict(row) for row in rows(len(kept))]
    assert result.structured["total"] == 1000
    assert result.meta[TRUNCATED]["cuts"] == [{"path": "rows", "kept": len(kept), "of": 1000, "unit": "items"}]
    assert count_tokens(json.dumps(result.structured, separators=(",", ":"))) <= 300
    shown = json.loads(result.text)
    assert shown == {"rows": [*kept, f"… {1000 - len(kept)} more items"], "total": 1000}
    # For agents that show their models structured content, and no text beside it.
    note = result.content[-1]
    assert note["type"] == "resource"
    assert note["resource"]["text"] == f"[cut] rows: {len(kept)} of 1,000 items"


async def test_long_texts_inside_json_are_cut_with_a_marker_and_short_values_stay() -> None:
    result = await call_rows(TokenBudget(400), rows(3, LONG), list[Row])
    assert [row["id"] for row in result.structured] == [0, 1, 2]
    assert [row["name"] for row in result.structured] == ["row number 0", "row number 1", "row number 2"]
    for row in result.structured:
        assert row["notes"].startswith("line 0 ")
        assert row["notes"].endswith("report")
        assert re.search(r"\[… [\d,]+ of [\d,]+ characters left out …\]", row["notes"])
    assert json.loads(result.text) == result.structured


async def test_structured_content_is_cut_even_where_its_text_is_short() -> None:
    result = await call(TokenBudget(100), ToolResult("see the numbers", structured={"numbers": list(range(1000))}))
    assert result.text == "see the numbers"
    numbers = result.structured["numbers"]
    assert numbers == list(range(len(numbers)))
    assert 10 < len(numbers) < 100


async def test_a_result_that_cannot_be_cut_without_breaking_its_schema_is_refused() -> None:
    exactly = Annotated[list[int], Meta(min_length=1000)]
    result = await call_rows(TokenBudget(100), list(range(1000)), exactly)
    assert result.is_error
    assert "cannot be cut without violating its output schema" in result.text


async def test_a_number_in_cut_json_keeps_its_digits() -> None:
    text = '{"price": 1.10, "large": 123456789012345678901234567890, "items": [' + "0, " * 1000 + "0]}"
    result = await call(TokenBudget(200), text)
    assert result.text.startswith('{"price":1.10,"large":123456789012345678901234567890,"items":[0,')


async def test_an_error_result_is_cut_and_stays_an_error() -> None:
    result = await call(TokenBudget(100), ToolResult(LONG, is_error=True))
    assert result.is_error
    assert count_tokens(result.text) <= 100


@pytest.mark.parametrize("action", ["truncate", "refuse"])
async def test_the_text_of_an_error_that_a_tool_raises_is_cut(action: Any) -> None:
    board = Board()
    board.use(TokenBudget(100, action=action))

    @board.tool
    async def fails() -> str:
        raise ToolError(LONG, meta={"code": "E1"})

    async with Client(board) as client:
        result = await client.call("fails")
    assert result.is_error
    assert result.text.startswith("line 0 ")
    assert "left out" in result.text
    assert count_tokens(result.text) <= 100
    assert result.meta["code"] == "E1"
    assert result.meta[TRUNCATED] == {"tokens": count_tokens(LONG), "limit": 100}


async def test_a_raised_error_stays_the_same_exception_for_outer_hooks_and_its_whole_text_is_kept() -> None:
    kept = KeptResults()
    error = InvalidArguments(LONG)
    run = await run_alone(TokenBudget(100, kept=kept, link=True), call=make_call("report"), answer=error)
    assert run.exception is error
    uri = error.meta[TRUNCATED]["uri"]
    assert kept.read(uri)["content"][0]["text"] == LONG
    assert error.message.endswith(f"The whole text: {uri}")


async def test_what_is_counted_is_what_is_sent() -> None:
    one_call, recorder = make_call(), Recorder(order=1)
    run = await run_alone(recorder, TokenCount(), TokenBudget(200), call=one_call, answer=LONG)
    assert one_call.state["tokens_out"] == count_tokens(run.text) <= 200


async def test_a_short_result_is_not_even_counted() -> None:
    def counter(_text: str) -> int:
        raise AssertionError("counted")

    budget = TokenBudget(100)
    budget._count = counter
    assert (await run_alone(budget, answer="x" * 100)).text == "x" * 100
    assert isinstance((await run_alone(budget, answer="ü" * 51)).exception, AssertionError)


@given(
    st.lists(st.text(max_size=2000) | st.text("ab \n", max_size=3000), min_size=1, max_size=12),
    st.integers(SMALLEST, 600),
    st.sampled_from([count_tokens, estimate_tokens]),
)
def test_whatever_the_texts_the_cut_fits_its_limit(texts: list[str], limit: int, count: object) -> None:
    sizes = [count(text) for text in texts]  # type: ignore[operator]
    cut = truncate(texts, sizes, limit, count)  # type: ignore[arg-type]
    assert len(cut) == len(texts)
    assert sum(count(text) for text in cut if text is not None) <= limit  # type: ignore[operator]
    if sum(sizes) <= limit:
        assert cut == texts


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=20), inner, max_size=40),
    max_leaves=200,
)


@given(JSON, st.integers(SMALLEST, 600), st.sampled_from([count_tokens, estimate_tokens]))
def test_whatever_the_json_the_cut_fits_its_limit_and_stays_json(value: object, limit: int, count: Any) -> None:
    text = msgspec.json.encode(value).decode()
    reduced = fit_json(value, limit, count)
    shown = reduced.annotated()
    if count(text) <= limit:
        assert reduced.value == value
        assert not reduced.cuts
        return
    assert count(shown) <= limit
    assert type(reduced.value) is type(value)
    if not isinstance(value, str):
        assert type(json.loads(shown)) is type(value)


def test_a_text_whose_ends_are_denser_than_its_middle_still_fits() -> None:
    text = "9F8a7Z" * 200 + "the same word again and again " * 3000 + "x0Y1z2" * 200
    [cut] = truncate([text], [count_tokens(text)], 300, count_tokens)
    assert cut is not None
    assert 150 < count_tokens(cut) <= 300


# -- the whole result, for a while -------------------------------------------------------------------------------------


async def test_the_whole_result_is_kept_for_its_principal_and_for_a_while() -> None:
    clock = FakeClock()
    kept = KeptResults(seconds=60, clock=clock)
    one_call = make_call("report", principal="ann")
    run = await run_alone(TokenBudget(100, kept=kept), call=one_call, answer=LONG)
    assert [block["type"] for block in (run.result or {})["content"]] == ["text"], "no link that nobody could follow"
    name = one_call.state["kept_result"]
    whole = kept.read(name, "ann")
    assert whole is not None
    assert whole["content"][0]["text"] == LONG
    assert kept.read(name, "bob") is None
    assert kept.read("guessed", "ann") is None
    clock.advance(60)
    assert kept.read(name, "ann") is None


async def test_a_link_is_sent_where_the_author_says_that_it_can_be_read() -> None:
    kept = KeptResults()
    run = await run_alone(TokenBudget(100, kept=kept, link=True), call=make_call("report"), answer=LONG)
    assert run.result is not None
    text, link = run.result["content"]
    assert "left out" in text["text"]
    assert link["type"] == "resource_link"
    assert link["uri"].startswith("pegboard://results/")
    assert run.result["_meta"][TRUNCATED]["uri"] == link["uri"]
    assert kept.read(link["uri"]) is not None


def test_kept_results_have_a_bound_and_the_oldest_leave_first() -> None:
    clock = FakeClock()
    kept = KeptResults(max_bytes=1000, clock=clock)
    names = [kept.keep({"content": "x" * 300}) for _ in range(5)]
    assert [name is not None and kept.read(name) is not None for name in names] == [False, False, True, True, True]
    assert kept.keep({"content": "x" * 2000}) is None
    assert len(kept._kept) == 3
    clock.advance(10_000)
    kept.keep({"content": ""})
    assert len(kept._kept) == 1
    assert kept._bytes == len('{"content":""}')


@pytest.mark.parametrize(
    "wrong",
    [
        {"default": 10},
        {"default": 0, "action": "refuse"},
        {"default": 100, "action": "shout"},
        {"default": 100, "tools": {"a": Budget(5)}},
        {"default": 100, "link": True},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, object]) -> None:
    with pytest.raises(DeclarationError):
        TokenBudget(**wrong)  # type: ignore[arg-type]
