"""Shortens the result of a tool to a number of tokens; the result stays valid.

A client shows its model either the content or the structured content, so each of the two gets the whole limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from pegboard.call import Json
from pegboard.middleware.limits.json_reduction import ATTEMPTS, Cut, Reduced, fit_json, read_container
from pegboard.middleware.observability.token_count import LONG, Counter, measure
from pegboard.protocol.content import is_note
from pegboard.protocol.json_values import as_list, as_object

SMALLEST = 64
"""The smallest budget to cut to; the note alone takes about 25 tokens."""
_NOTE = 32

_encode = msgspec.json.Encoder().encode


class ResultSize(Struct, frozen=True):
    """The tokens of a result: of each text in its content, and of its structured content."""

    texts: Sequence[int]
    structured: int

    @property
    def tokens(self) -> int:
        """The larger of the two forms, of which a model reads one."""
        return max(sum(self.texts), self.structured)


class ReducedResult(Struct, frozen=True):
    """A shortened result, and what was cut from its structured content, where no note says so."""

    result: Mapping[str, Json]
    cuts: Sequence[Cut]


def has_few_bytes(result: Mapping[str, Json], limit: int) -> bool:
    """Whether a result has at most this many bytes, and so at most this many tokens: no token is shorter than a byte."""
    if sum(map(_bytes, map(text_of, as_list(result.get("content"))))) > limit:
        return False
    structured = result.get("structuredContent", UNSET)
    return structured is UNSET or len(_encode(structured)) <= limit


async def measure_result(result: Mapping[str, Json], count: Counter) -> ResultSize:
    """The tokens of a result; long texts are counted in a thread."""
    texts = [text_of(block) for block in as_list(result.get("content"))]
    sizes = [await measure(text, count) if text else 0 for text in texts]
    structured = _structured_text(result)
    known = dict(zip(texts, sizes, strict=True)).get(structured)
    return ResultSize(sizes, await measure(structured, count) if known is None else known)


async def fit_result(result: Mapping[str, Json], size: ResultSize, limit: int, count: Counter) -> ReducedResult:
    """The result within `limit` tokens: its texts, and its structured content."""
    if sum(map(len, map(text_of, as_list(result.get("content"))))) + len(_structured_text(result)) < LONG:
        return _fit(result, size, limit, count)
    return await asyncio.to_thread(_fit, result, size, limit, count)


def _fit(result: Mapping[str, Json], size: ResultSize, limit: int, count: Counter) -> ReducedResult:
    blocks = as_list(result.get("content"))
    places = [place for place, block in enumerate(blocks) if text_of(block)]
    texts = truncate(
        [text_of(blocks[place]) for place in places], [size.texts[place] for place in places], limit, count
    )
    shortened = dict(zip(places, texts, strict=True))
    content: list[Json] = []
    for place, block in enumerate(blocks):
        text = shortened.get(place, "")
        if text is not None:
            content.append(_with_text(as_object(block), text) if text else block)
    reduced: dict[str, Json] = {**result, "content": content}
    if "structuredContent" not in result:
        return ReducedResult(reduced, ())
    structured = Reduced(result["structuredContent"], ())
    if size.structured > limit:
        structured = fit_json(structured.value, limit, count)
    reduced["structuredContent"] = structured.value
    return ReducedResult(reduced, structured.cuts)


def text_of(block: Json) -> str:
    """The text of a content block that a model reads; empty for images, audio, links and notes of ours."""
    block = as_object(block)
    if is_note(block):
        return ""
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "resource":
            return str(as_object(block["resource"]).get("text", ""))
        case _:
            return ""


def _with_text(block: Mapping[str, Json], text: str) -> Mapping[str, Json]:
    if block["type"] == "text":
        return {**block, "text": text}
    return {**block, "resource": {**as_object(block["resource"]), "text": text}}


def _structured_text(result: Mapping[str, Json]) -> str:
    structured = result.get("structuredContent", UNSET)
    if structured is UNSET:
        return ""
    return structured if isinstance(structured, str) else _encode(structured).decode("utf-8")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def truncate(texts: Sequence[str], sizes: Sequence[int], limit: int, count: Counter) -> list[str | None]:
    """The texts within `limit` tokens in total; None for one that is left out. `sizes` are their tokens.

    Short texts stay whole; the tokens they leave are shared equally among the longer ones. If there are so many texts that
    a share would hold little more than its note, the texts in the middle are removed and one note takes their place.
    """
    if sum(sizes) <= limit:
        return list(texts)
    fair = _fair_share(sizes, limit)
    if fair < SMALLEST:
        return _drop_middle(texts, sizes, limit)
    return [text if size <= fair else _cut(text, size, fair, count) for text, size in zip(texts, sizes, strict=True)]


def _fair_share(sizes: Sequence[int], limit: int) -> int:
    """The size to which larger texts are cut."""
    left, ordered = limit, sorted(sizes)
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return share
        left -= size
    return limit


def _cut(text: str, size: int, share: int, count: Counter) -> str:
    value = read_container(text)
    if value is not None:
        return fit_json(value, share, count).annotated()
    room = share - _NOTE
    kept = int(len(text) * room / size)
    for _ in range(ATTEMPTS):
        head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
        used = count(head) + count(tail)
        if used <= room:
            break
        # Both ends have more tokens per character than the whole, so take a little less than their share.
        kept = int(kept * room / used * 0.98)
    else:
        head = tail = ""
        used = 0
    note = f"[… {size - used:,} of {size:,} tokens ({len(text) - len(head) - len(tail):,} characters) left out …]"
    return f"{head}\n{note}\n{tail}"


def _drop_middle(texts: Sequence[str], sizes: Sequence[int], limit: int) -> list[str | None]:
    room, first, last = limit - _NOTE, 0, len(texts)
    while first < last:
        # From both ends in turn, while the next one fits.
        index = first if first <= len(texts) - last else last - 1
        if sizes[index] > room:
            break
        room -= sizes[index]
        first, last = (first + 1, last) if index == first else (first, last - 1)
    dropped = sum(sizes[first:last])
    note = f"[… {last - first:,} of {len(texts):,} texts with {dropped:,} of {sum(sizes):,} tokens left out …]"
    return [*texts[:first], note, *[None] * (last - first - 1), *texts[last:]]
