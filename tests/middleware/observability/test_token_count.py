"""Token counts: exact, estimated, and summed up."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Board, Client, Image, Link, ToolError, ToolResult
from pegboard.errors import DeclarationError
from pegboard.middleware import TokenCount, count_tokens, estimate_tokens
from pegboard.middleware.observability.token_count import TokenTally, is_exact
from pegboard.testing import make_call, run_alone
from tests.middleware.tool_lists import tool_lists
from tests.peers.judges import HERE, NODE

TWENTY = [
    "",
    "hello world",
    "The quick brown fox jumps over the lazy dog.",
    '{"query":"agent state","limit":10,"tags":["a","b"]}',
    json.dumps({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}, indent=2),
    'def add(a: float, b: float) -> float:\n    """Adds two numbers."""\n    return a + b\n',
    "1234567890 3.14159 -42 1e-9 0x1F 1,000,000",
    "2026-07-28T12:34:56.789Z",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "Übergrößenträger prüfen Süßölgefäße",
    "本协议允许应用程序与语言模型之间建立标准化的连接",
    "これはトークンの数え方の試験です",
    "Инструменты проверяются перед выполнением",
    "مرحبا بالعالم",
    "😀🎉🚀 👩‍👩‍👧‍👦 🇩🇪",
    "  \n\t indentation \r\n\r\n\n   and   spaces   ",
    "<|endoftext|> is only text here, <|im_start|> too",
    "SELECT u.name, COUNT(*) FROM users u WHERE u.id IN (1,2,3) GROUP BY 1;",
    "https://example.test/a/b?c=d&e=f#g camelCaseAndPascalCase snake_case_name KEBAB-CASE don't I'll we've",
    "lorem ipsum dolor sit amet " * 400,
]


@pytest.mark.peer
def test_the_exact_counter_agrees_with_an_independent_tokenizer_on_twenty_texts() -> None:
    assert is_exact(), "the `tokens` extra is not installed: run `make setup`"
    assert (HERE / "node" / "node_modules" / "js-tiktoken").is_dir(), "js-tiktoken is not installed: run `make setup`"
    counted = subprocess.run(
        [NODE, HERE / "node" / "count_tokens.mjs"],
        input=json.dumps(TWENTY),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert counted.returncode == 0, counted.stderr
    assert len(TWENTY) == 20
    assert [count_tokens(text) for text in TWENTY] == json.loads(counted.stdout)


async def test_the_estimate_is_within_15_percent_on_tool_lists() -> None:
    assert is_exact()
    off = {name: estimate_tokens(text) / count_tokens(text) - 1 for name, text in (await tool_lists()).items()}
    assert {name: share for name, share in off.items() if abs(share) > 0.15} == {}


@pytest.mark.parametrize("text", [TWENTY[2] * 30, TWENTY[4] * 20, TWENTY[5] * 20, TWENTY[10] * 30, TWENTY[12] * 30])
def test_the_estimate_is_near_for_prose_json_code_and_other_scripts(text: str) -> None:
    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.2)


async def test_a_long_text_is_estimated_from_samples() -> None:
    text = "\n".join([*(await tool_lists()).values()] * 20)
    assert len(text) > 200_000
    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.15)


@given(st.text())
def test_any_text_can_be_counted_and_has_no_more_tokens_than_bytes(text: str) -> None:
    size = len(text.encode())
    assert 0 <= estimate_tokens(text) <= size
    assert (size > 0) <= count_tokens(text) <= size


def test_without_the_extra_the_estimate_is_used() -> None:
    code = (
        "import sys; sys.modules['splintr'] = None\n"
        "from pegboard.middleware import count_tokens, estimate_tokens\n"
        "from pegboard.middleware.observability.token_count import is_exact\n"
        "assert not is_exact()\n"
        "assert count_tokens('one two') == estimate_tokens('one two') == 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_vocabulary_is_loaded_at_the_first_count_and_not_before() -> None:
    code = (
        "import sys\n"
        "from pegboard.middleware import TokenCount, count_tokens\n"
        "TokenCount()\n"
        "assert 'splintr' not in sys.modules\n"
        "count_tokens('x')\n"
        "assert 'splintr' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def words(text: str) -> int:
    return len(text.split())


async def test_arguments_and_results_are_counted_and_summed_up() -> None:
    board, tokens = Board(), TokenCount(words)
    board.use(tokens)

    @board.tool(category="data")
    async def say(text: str) -> str:
        return text

    @board.tool
    async def refuse() -> str:
        raise ToolError("three more words")

    async with Client(board, name="editor") as client:
        await client.call("say", {"text": "one two"})
        await client.call("say", {"text": "three"})
        await client.call("refuse")
    # The arguments are counted as the JSON that was sent: {"text":"one two"} has two words here.
    assert tokens.stats() == {"say": TokenTally(2, 3, 3), "refuse": TokenTally(1, 1, 3)}
    assert tokens.stats("category") == {"data": TokenTally(2, 3, 3), "": TokenTally(1, 1, 3)}
    assert tokens.stats("client") == {"editor": TokenTally(3, 4, 6)}
    assert tokens.stats("principal") == {"": TokenTally(3, 4, 6)}
    assert tokens.total == TokenTally(3, 4, 6)
    with pytest.raises(DeclarationError):
        tokens.stats("weather")  # type: ignore[arg-type]


async def test_what_a_call_cost_is_in_its_state() -> None:
    call = make_call(arguments={"a": "b c"})
    await run_alone(TokenCount(words), call=call, answer="x y z")
    assert (call.state["tokens_in"], call.state["tokens_out"]) == (2, 3)


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (None, 0),
        (ToolResult([Image(b"\x89PNG\r\n\x1a\nxxxx"), "two words"]), 2),
        (ToolResult(None, structured={"a": "three more words"}), 3),
        (ToolResult([Image(b"\x89PNG\r\n\x1a\nxxxx"), "one", "two three"]), 3),
        (ToolResult([Link("https://example.test/a", "a name"), "one"]), 3),
    ],
)
async def test_texts_are_counted_and_pictures_are_not(answer: object, output: int) -> None:
    call = make_call()
    await run_alone(TokenCount(words), call=call, answer=answer)
    assert call.state["tokens_out"] == output


async def test_a_very_long_result_is_counted_off_the_loop() -> None:
    import threading

    seen = []

    def counter(text: str) -> int:
        seen.append(threading.get_ident())
        return len(text)

    call = make_call()
    await run_alone(TokenCount(counter), call=call, answer="x" * 300_000)
    assert call.state["tokens_out"] == 300_000
    assert seen[0] == threading.get_ident()
    assert seen[1] != threading.get_ident()


async def test_invented_names_share_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.middleware.observability.token_count._ACCOUNTS", 3)
    tokens = TokenCount(words)
    for number in range(10):
        await run_alone(tokens, call=make_call(client=f"client {number}"))
    assert sum(tally.calls for tally in tokens.stats("client").values()) == 10
    assert set(tokens.stats("client")) == {"client 0", "client 1", "client 2", "(others)"}


async def test_counts_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pegboard.tokens")
    await run_alone(TokenCount(words), answer="one two")
    assert [record.getMessage() for record in caplog.records] == ["stub: 1 + 2 = 3 tokens"]
