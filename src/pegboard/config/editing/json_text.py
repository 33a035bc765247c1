"""Changes one value in a JSON text with comments; all other characters stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pegboard.call import Json
from pegboard.config.source_file import KeyPath, ParsedSource, ValueSpan, is_blank, parse_source
from pegboard.errors import SetupError

_SPACES: Final = " \t\r\n\ufeff"
_MAX_WORDS: Final = 6
"""How many items of a list stand on one line."""


def set_in_json(text: str, place: KeyPath, value: Json, file: Path) -> str:
    """The text with this value at a path; objects on the way are created, and changed member by member."""
    if is_blank(text):
        text += "{}" + _line_break(text)
    source = parse_source(text, file)
    depth = len(place)
    while place[:depth] not in source.spans:
        depth -= 1
    old = _find(source.tree, place[:depth])
    if depth < len(place):
        if not isinstance(old, list if isinstance(place[depth], int) else dict):
            line = source.lines.get(place[:depth], 1)
            key = ".".join(map(str, place[:depth])) or "the file"
            raise SetupError(f"{file}:{line}: {key} is not an object, so nothing can be added to it; correct it first")
        for inner in reversed(place[depth + 1 :]):
            value = {str(inner): value}
        return _insert(text, source, place[:depth], [(place[depth], value)])
    if is_same_value(old, value):
        return text
    if isinstance(old, dict) and isinstance(value, dict):
        for key in [key for key in old if key not in value]:
            text = remove_in_json(text, (*place, key), file)
        for key, item in value.items():
            # Each change parses the text again.
            if key not in old or not is_same_value(old[key], item):
                text = set_in_json(text, (*place, key), item, file)
        return text
    span = source.spans[place]
    return text[: span.value] + _JsonWriter(text).write(value, _indent_at(text, span.start)) + text[span.end :]


def add_to_json(text: str, place: KeyPath, members: Mapping[str, Json], file: Path) -> str | None:
    """The text with further members in the object at a path, parsed once; None if there is no such object, or one of them
    is there already."""
    source = parse_source(text, file)
    old = _find(source.tree, place) if place in source.spans else None
    if not isinstance(old, dict) or not old.keys().isdisjoint(members):
        return None
    return _insert(text, source, place, list(members.items()))


def is_same_value(old: Json, new: Json) -> bool:
    """Whether two values are written in the same way: 1 is neither true nor 1.0."""
    return type(old) is type(new) and old == new


def remove_in_json(text: str, place: KeyPath, file: Path) -> str:
    """The text without the member at a path; unchanged if there is none."""
    source = parse_source(text, file)
    if place not in source.spans:
        return text
    span = source.spans[place]
    siblings = _children(source, place[:-1])
    before = siblings[siblings.index(span) - 1] if siblings[0] != span else None
    start, end = span.start, span.end
    if span.comma >= 0:
        if text[end : span.comma].strip(_SPACES):
            # A comment stands between the member and its comma.
            text = text[: span.comma] + text[span.comma + 1 :]
        else:
            end = span.comma + 1
    elif before is not None:
        if not text[before.comma + 1 : start].strip(_SPACES):
            return text[: before.comma] + text[end:]
        # A comment stands between the comma and the member.
        text = text[: before.comma] + text[before.comma + 1 :]
        start, end = start - 1, end - 1
    line = _line_start(text, start)
    rest = re.compile(r"[ \t]*(\r?\n)?").match(text, end)
    if rest is not None:
        if rest[1] and not text[line:start].strip(" \t"):
            start, end = line, rest.end()
        elif not rest[1]:
            end = rest.end()
    return text[:start] + text[end:]


def _insert(text: str, source: ParsedSource, place: KeyPath, members: Sequence[tuple[str | int, Json]]) -> str:
    """Add members or items at the end of the object or list at `place`."""
    holder = source.spans[place]
    close = holder.end - 1
    writer = _JsonWriter(text)
    named = [("" if isinstance(key, int) else f"{_encode(key)}: ", value) for key, value in members]

    def on_lines(indent: str) -> str:
        return ",".join(f"{writer.line_break}{indent}{name}{writer.write(value, indent)}" for name, value in named)

    children = _children(source, place)
    if not children:
        inner = text[holder.value + 1 : close]
        if "\n" not in text.strip(_SPACES) and not inner.strip(_SPACES) and place:
            line = ", ".join(name + writer.write_line(value) for name, value in named)
            return text[: holder.value + 1] + line + text[close:]
        base = _indent_at(text, holder.value)
        comments = inner.rstrip(_SPACES)
        piece = on_lines(base + writer.unit)
        return text[: holder.value + 1] + comments + piece + writer.line_break + base + text[close:]
    last = children[-1]
    after = last.end if last.comma < 0 else last.comma + 1
    at = after + len(text[after:close].rstrip(_SPACES))
    starts_line = not text[_line_start(text, last.start) : last.start].strip(_SPACES)
    if starts_line or "\n" in text[last.end : close]:
        piece = on_lines(_indent_at(text, last.start) + ("" if starts_line else writer.unit))
    else:
        piece = ",".join(f" {name}{writer.write_line(value)}" for name, value in named)
    comma = "," if last.comma < 0 else ""
    more = "" if comma else ","
    return text[: last.end] + comma + text[last.end : at] + piece + more + text[at:]


class _JsonWriter:
    """Writes values in the style of a text: its line breaks and its indentation."""

    def __init__(self, text: str) -> None:
        self.line_break = _line_break(text)
        found = re.search(r"^[ \t]*\{[ \t]*\r?\n([ \t]+)\"", text, re.MULTILINE)
        self.unit = found[1] if found else "  "

    def write(self, value: Json, indent: str) -> str:
        """The value over several lines; the first one is not indented."""
        inner = indent + self.unit
        if isinstance(value, dict) and value:
            items = [f"{inner}{_encode(key)}: {self.write(item, inner)}" for key, item in value.items()]
            return self._lines("{", items, "}", indent)
        if isinstance(value, list) and (len(value) > _MAX_WORDS or any(isinstance(item, dict) for item in value)):
            return self._lines("[", [f"{inner}{self.write(item, inner)}" for item in value], "]", indent)
        return self.write_line(value)

    def write_line(self, value: Json) -> str:
        return _encode(value)

    def _lines(self, opening: str, items: list[str], closing: str, indent: str) -> str:
        return self.line_break.join([opening, f",{self.line_break}".join(items), f"{indent}{closing}"])


def _encode(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Half of a surrogate pair has no encoding.
    return json.dumps(value) if re.search("[\ud800-\udfff]", text) else text


def _children(source: ParsedSource, place: KeyPath) -> list[ValueSpan]:
    found: Any = _find(source.tree, place)
    keys = range(len(found)) if isinstance(found, list) else found
    return sorted(source.spans[(*place, key)] for key in keys)


def _find(tree: Any, place: KeyPath) -> Json:
    for key in place:
        tree = tree[key]
    return tree


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _indent_at(text: str, at: int) -> str:
    start = end = _line_start(text, at)
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return text[start:end]
