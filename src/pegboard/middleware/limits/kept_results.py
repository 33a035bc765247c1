"""Keeps results that were too long to send, for a limited time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import Struct

from pegboard.call import Json
from pegboard.catalog.caching import Caching
from pegboard.middleware.limits.json_reduction import read_container
from pegboard.middleware.limits.result_reduction import text_of
from pegboard.protocol.json_values import as_list

SCHEME = "pegboard://results/"
PAGE = "dev.pegboard/page"


# Splitting a larger result would delay other calls.
_LONG = 256 * 1024


class _KeptResult(Struct, frozen=True):
    data: bytes
    principal: str
    until: float
    page: int


class KeptResults:
    """At most `max_bytes` of results, each for `seconds`; the oldest are dropped first. `clock` is for tests."""

    def __init__(
        self, *, seconds: float = 600.0, max_bytes: int = 32 * 1024 * 1024, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.max_bytes = max_bytes
        self._clock = clock
        self._kept: dict[str, _KeptResult] = {}
        self._bytes = 0

    def keep(self, result: Mapping[str, Json], principal: str = "", page: int = 40_000) -> str | None:
        """Keep a result for its principal alone; returns its id, or None if it is larger than the whole space.

        `page` is the number of characters of its pages.
        """
        data = msgspec.json.encode(result)
        if len(data) > self.max_bytes:
            return None
        now = self._clock()
        self._forget(now, len(data))
        # The id is enough to read the result, so it cannot be guessed.
        name = secrets.token_urlsafe(16)
        self._kept[name] = _KeptResult(data, principal, now + self.seconds, page)
        self._bytes += len(data)
        return name

    def read(self, name: str, principal: str = "") -> Mapping[str, Json] | None:
        """The whole result, if it is still kept and belongs to this principal."""
        kept = self._find(name, principal)
        return None if kept is None else _decode(kept.data)

    async def read_page(self, uri: str, principal: str = "") -> Mapping[str, Json] | None:
        """The result of `resources/read` for the `uri` of a page, or of a whole result without a page number.

        None if it is not kept any more, belongs to another `principal`, or has no such page.
        """
        name, _, number = uri.removeprefix(SCHEME).partition("/")
        kept = self._find(name, principal)
        if kept is None:
            return None
        if not number:
            return _contents({"uri": uri, "mimeType": "application/json", "text": kept.data.decode("utf-8")})
        if len(kept.data) < _LONG:
            mime_type, pages = split_pages(_decode(kept.data), kept.page)
        else:
            mime_type, pages = await asyncio.to_thread(lambda: split_pages(_decode(kept.data), kept.page))
        if not number.isdecimal() or len(number) > 9 or not 1 <= int(number) <= len(pages):
            return None
        page = int(number)
        note = f"Page {page} of {len(pages)}."
        meta: dict[str, Json] = {"page": page, "pages": len(pages)}
        if page < len(pages):
            meta["next"] = f"{SCHEME}{name}/{page + 1}"
            note += f" The next page: {meta['next']}"
        read = _contents(
            {"uri": uri, "mimeType": mime_type, "text": pages[page - 1]},
            {"uri": uri, "mimeType": "text/plain", "text": note},
        )
        return {**read, "_meta": {PAGE: meta}}

    def _find(self, name: str, principal: str) -> _KeptResult | None:
        kept = self._kept.get(name.removeprefix(SCHEME))
        if kept is None or kept.principal != principal or kept.until <= self._clock():
            return None
        return kept

    def _forget(self, now: float, needed: int) -> None:
        # All are kept equally long, so they expire in the order in which they were kept.
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if oldest.until > now and self._bytes + needed <= self.max_bytes:
                return
            del self._kept[name]
            self._bytes -= len(oldest.data)


def _decode(data: bytes) -> Mapping[str, Json]:
    result: Mapping[str, Json] = msgspec.json.decode(data)
    return result


def _contents(*contents: Mapping[str, Json]) -> Mapping[str, Json]:
    # Not to be cached: a result is forgotten after a while.
    return {**Caching().hints(), "contents": list(contents)}


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
