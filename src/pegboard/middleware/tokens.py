"""How many tokens calls cost a model: counted exactly where the `tokens` extra is installed, else estimated."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import Call, Json
from pegboard.errors import DeclarationError, ToolError
from pegboard.execution.hooks import Middleware
from pegboard.middleware.keys import OTHERS, key_function

Counter: TypeAlias = Callable[[str], int]
By: TypeAlias = Literal["tool", "category", "client", "principal"]

_log = logging.getLogger("pegboard.tokens")
_ACCOUNTS = 10_000
# Counting holds the loop for about a millisecond in 50 KB; more than this is counted in a thread.
_LONG = 256 * 1024

# What an estimate takes for one token, found by comparing with the vocabulary o200k: a word of up to ten letters, three
# digits, four marks, a line's end with its indentation. Without a property of letters for ASCII: that is three times
# faster.
_ASCII = re.compile(r"_?[A-Z]?[a-z]{1,10}|[^\sA-Za-z0-9]{1,4}|[A-Z]{1,3}|[0-9]{1,3}|\s{2,}|\n")
_UNICODE = re.compile(
    r"[\u3040-\u9fff\uac00-\ud7af]{1,2}|_?[A-Za-z\u00c0-\u024f]{1,8}|[^\W\d_]{1,6}|[!-/:-@\[-`{-~]{1,4}|[^\w\s]"
    r"|\d{1,3}|\s{2,}|\n"
)
# A long text is judged by this many samples of that many characters.
_SAMPLES, _SAMPLE = 16, 512

_encode = msgspec.json.Encoder().encode


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, in bounded time.

    Within 15 % for tool lists, code and English prose; other scripts than Latin and Cyrillic may be far off.
    """
    pieces = (_ASCII if text.isascii() else _UNICODE).findall
    length = len(text)
    if length <= _SAMPLES * _SAMPLE:
        return len(pieces(text))
    step = (length - _SAMPLE) / (_SAMPLES - 1)
    seen = sum(len(pieces(text, int(index * step), int(index * step) + _SAMPLE)) for index in range(_SAMPLES))
    return round(seen * length / (_SAMPLES * _SAMPLE))


def count_tokens(text: str) -> int:
    """How many tokens a text has: exactly (vocabulary o200k) with the `tokens` extra, else `estimate_tokens`."""
    return _counter()(text)


def is_exact() -> bool:
    """Whether `count_tokens` counts or estimates."""
    return _counter() is not estimate_tokens


@cache
def _counter() -> Counter:
    try:
        from splintr import Tokenizer  # noqa: PLC0415 — an extra, and 0.1 s to load: at the first text that is counted
    except ImportError:
        return estimate_tokens
    # Ordinary: a text that spells a control token is still only text.
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    return lambda text: len(encode(text))


def texts_of(result: Mapping[str, Json]) -> Iterator[str]:
    """The texts of a result that a model reads; pictures and sounds have a price of their own and are left out."""
    blocks = result.get("content")
    if not blocks and result.get("structuredContent") is not None:
        yield _encode(result["structuredContent"]).decode("utf-8")
    for block in blocks or ():
        match block.get("type"):
            case "text":
                yield block["text"]
            case "resource":
                yield block["resource"].get("text", "")
            case "resource_link":
                yield _encode(block).decode("utf-8")


class TokenTally(Struct):
    """The calls of one account, with the tokens of their arguments and of their results."""

    calls: int = 0
    input: int = 0
    output: int = 0


class TokenCount(Middleware):
    """Counts the tokens of arguments and results: per call in `call.state`, in sum by tool, category, client, principal.

    `call.state["tokens_in"]` and `["tokens_out"]` are there for the after-hooks outside of this one. A call that raised
    has its arguments counted, and the words of a ToolError.
    """

    order = 100

    def __init__(self, counter: Counter | None = None) -> None:
        self._count: Counter = counter or count_tokens
        self.total = TokenTally()
        self._accounts: dict[str, dict[str, TokenTally]] = {
            by: {} for by in ("tool", "category", "client", "principal")
        }
        self._readers = [(key_function(by), accounts) for by, accounts in self._accounts.items()]  # type: ignore[arg-type]  # the keys above are Parts

    def stats(self, by: By = "tool") -> Mapping[str, TokenTally]:
        """The sums so far of each tool, category, client or principal."""
        if by not in self._accounts:
            raise DeclarationError(f"by={by!r}: use one of {', '.join(self._accounts)}")
        return dict(self._accounts[by])

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        blocks = result.get("content")
        if blocks and len(blocks) == 1 and blocks[0].get("type") == "text":
            told = blocks[0]["text"]
        else:
            told = "\n".join(texts_of(result))
        await self._record(call, told)

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        await self._record(call, exception.message if isinstance(exception, ToolError) else "")

    async def _record(self, call: Call, told: str) -> None:
        asked = bytes(call.raw).decode("utf-8", "replace")
        spent = await self._measure(asked)
        got = await self._measure(told) if told else 0
        state = call.state
        state["tokens_in"], state["tokens_out"] = spent, got
        total = self.total
        total.calls += 1
        total.input += spent
        total.output += got
        for read, accounts in self._readers:
            name = read(call)
            tally = accounts.get(name)
            if tally is None:
                tally = accounts.setdefault(name if len(accounts) < _ACCOUNTS else OTHERS, TokenTally())
            tally.calls += 1
            tally.input += spent
            tally.output += got
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%s: %d + %d = %d tokens", call.name[:128].encode("unicode_escape").decode(), spent, got, spent + got
            )

    async def _measure(self, text: str) -> int:
        return self._count(text) if len(text) < _LONG else await asyncio.to_thread(self._count, text)
