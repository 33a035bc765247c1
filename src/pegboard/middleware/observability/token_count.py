"""Counts the tokens of calls: exactly with the `tokens` extra, else estimated."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from pegboard.call import Call, Json
from pegboard.errors import DeclarationError, ToolError
from pegboard.hooks.middleware import Middleware
from pegboard.middleware.call_keys import OTHERS, category_of, client_of, tool_of
from pegboard.protocol.json_values import as_object, objects_in

Counter: TypeAlias = Callable[[str], int]
By: TypeAlias = Literal["tool", "category", "client", "principal"]

_log = logging.getLogger("pegboard.tokens")
_BY: tuple[By, ...] = get_args(By)
_ACCOUNTS = 10_000
# Counting blocks the loop for about a millisecond per 50 KB; larger texts are counted in a thread.
LONG = 256 * 1024

# An estimate counts as one token: a word of up to ten letters, three digits, four marks, a line end with its
# indentation (found by comparing with the vocabulary o200k). ASCII classes instead of letter properties: three times
# faster.
_ASCII = re.compile(r"[a-z]{1,10}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,4}|[A-Z](?:[a-z]{1,10}|[A-Z]{0,2})|\s\s+|[\0-\x1f\x7f]")
_UNICODE = re.compile(
    r"[\u3040-\u9fff\uac00-\ud7af]{1,2}|_?[A-Za-z\u00c0-\u024f]{1,8}|[^\W\d_]{1,6}|[!-/:-@\[-`{-~]{1,4}|[^\w\s]"
    r"|\d{1,3}|\s{2,}|\n"
)
# A long text is estimated from this many samples of that many characters.
_SAMPLES, _SAMPLE = 16, 512

_encode = msgspec.json.Encoder().encode


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, in bounded time.

    Within 15 % for tool lists, code and English prose; scripts other than Latin and Cyrillic may be far off.
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


def tokens_of(definition: Mapping[str, Json], count: Counter = estimate_tokens) -> int:
    """The approximate tokens of a definition; an exact count would need 40 MB of vocabulary per process."""
    return count(_encode(definition).decode("utf-8"))


def is_exact() -> bool:
    """Whether `count_tokens` counts or estimates."""
    return _counter() is not estimate_tokens


@cache
def _counter() -> Counter:
    try:
        from splintr import Tokenizer  # noqa: PLC0415 — an extra, and 0.1 s to load: at the first text that is counted
    except ImportError:
        return estimate_tokens
    # Ordinary encoding: text that spells a control token is still text.
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    return lambda text: len(encode(text)) if text else 0


def texts_of(result: Mapping[str, Json]) -> Iterator[str]:
    """The texts of a result that a model reads; images and audio are priced differently and are left out."""
    blocks = objects_in(result.get("content"))
    if not blocks and result.get("structuredContent") is not None:
        yield _encode(result["structuredContent"]).decode("utf-8")
    for block in blocks:
        match block.get("type"):
            case "text":
                yield str(block["text"])
            case "resource":
                yield str(as_object(block["resource"]).get("text", ""))
            case "resource_link":
                yield _encode(block).decode("utf-8")


async def measure(text: str, count: Counter) -> int:
    """Count short text on the loop, and long text in a thread, where it does not delay other calls."""
    return count(text) if len(text) < LONG else await asyncio.to_thread(count, text)


class TokenTally(Struct):
    """The calls of one account, with the tokens of their arguments and results."""

    calls: int = 0
    input: int = 0
    output: int = 0

    def add(self, other: TokenTally) -> None:
        self.calls += other.calls
        self.input += other.input
        self.output += other.output


class TokenCount(Middleware):
    """Counts the tokens of arguments and results of tools: per call in `call.state`, and in total by tool, category, client,
    principal.

    `call.state["tokens_in"]` and `["tokens_out"]` are available to after-hooks outside of this one. For a call that
    raised, its arguments and the text of a ToolError are counted.
    """

    order = 100
    kinds = ("tool",)

    def __init__(self, counter: Counter | None = None) -> None:
        self._count: Counter = counter or count_tokens
        # One account for each combination that occurs, so that a call is added once; totals are computed on request.
        self._accounts: dict[tuple[str, str, str, str], TokenTally] = {}

    @property
    def total(self) -> TokenTally:
        """The totals of all calls."""
        total = TokenTally()
        for tally in self._accounts.values():
            total.add(tally)
        return total

    def stats(self, by: By = "tool") -> Mapping[str, TokenTally]:
        """The totals of each tool, category, client or principal."""
        if by not in _BY:
            raise DeclarationError(f"by={by!r}: use one of {', '.join(_BY)}")
        place, sums = _BY.index(by), dict[str, TokenTally]()
        for account, tally in self._accounts.items():
            sums.setdefault(account[place], TokenTally()).add(tally)
        return sums

    async def after(self, call: Call, result: Mapping[str, Json], elapsed_ms: float) -> None:
        await self._record(call, "\n".join(texts_of(result)))

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        await self._record(call, exception.message if isinstance(exception, ToolError) else "")

    async def _record(self, call: Call, text: str) -> None:
        asked = bytes(call.raw).decode("utf-8", "replace")
        # Only long text is worth another coroutine.
        spent = self._count(asked) if len(asked) < LONG else await measure(asked, self._count)
        got = self._count(text) if len(text) < LONG else await measure(text, self._count)
        state = call.state
        state["tokens_in"], state["tokens_out"] = spent, got
        tool, category, client, principal = tool_of(call), category_of(call), client_of(call), call.caller.principal.id
        tally = self._accounts.get((tool, category, client, principal))
        if tally is None:
            if len(self._accounts) >= _ACCOUNTS:
                client = principal = OTHERS
            tally = self._accounts.setdefault((tool, category, client, principal), TokenTally())
        tally.calls += 1
        tally.input += spent
        tally.output += got
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %d + %d = %d tokens", tool, spent, got, spent + got)
