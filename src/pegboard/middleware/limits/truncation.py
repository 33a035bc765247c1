"""Truncates text to a number of tokens; text that is a JSON list or object stays JSON.

Short texts stay whole; the tokens they leave are shared equally among the longer ones. If there are so many texts that
a share would hold little more than its note, the texts in the middle are removed and one note takes their place.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.middleware.limits.json_reduction import ATTEMPTS, fit_json, read_container
from pegboard.middleware.observability.token_count import Counter

SMALLEST = 64
"""The smallest budget to cut to; the note alone takes about 25 tokens."""
_NOTE = 32


def truncate(texts: Sequence[str], sizes: Sequence[int], limit: int, count: Counter) -> list[str | None]:
    """The texts within `limit` tokens in total; None for one that is left out. `sizes` are their tokens."""
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
