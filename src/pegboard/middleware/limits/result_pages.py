"""Splits a result into pages that a model reads one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pegboard.call import Json
from pegboard.middleware.limits.json_reduction import read_container
from pegboard.middleware.limits.result_reduction import text_of
from pegboard.protocol.json_values import as_list

# A number keeps its digits as they were written.
_encode = msgspec.json.Encoder(decimal_format="number").encode


def split_pages(result: Mapping[str, Json], size: int) -> tuple[str, list[str]]:
    """The MIME type and the pages of a result, of about `size` characters each.

    A list is split between its items, so that each page is a JSON list. Other JSON is indented and split between lines,
    as text is.
    """
    text = "\n".join(filter(None, map(text_of, as_list(result.get("content")))))
    value = result.get("structuredContent")
    if not isinstance(value, list | dict):
        value = read_container(text) if value is None or not text else None
    if isinstance(value, list):
        return "application/json", list(_group_items(value, size))
    if isinstance(value, dict):
        compact = _encode(value)
        text = msgspec.json.format(compact, indent=1).decode("utf-8")
        # Indentation has tokens, too.
        size = size * len(compact) // len(text)
    return "text/plain", list(_cut_lines(text, size))


def _group_items(items: list[Json], size: int) -> Iterator[str]:
    page: list[str] = []
    used = 0
    for item in items:
        written = _encode(item).decode("utf-8")
        if page and used + len(written) > size:
            yield f"[{','.join(page)}]"
            page, used = [], 0
        page.append(written)
        used += len(written) + 1
    yield f"[{','.join(page)}]"


def _cut_lines(text: str, size: int) -> Iterator[str]:
    begin = 0
    while len(text) - begin > size:
        # At the last line end of the page; a long line is cut where the page ends.
        cut = text.rfind("\n", begin + size // 2, begin + size)
        end = begin + size if cut < 0 else cut + 1
        yield text[begin:end]
        begin = end
    yield text[begin:]
