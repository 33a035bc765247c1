"""Changes one value in a TOML text; all other characters stay as they are.

A new table is written at the end of the file, a new key at the end of its table. What is inside an inline table is
changed by writing that inline table again.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from pegboard.call import Json
from pegboard.config.editing.json_text import is_same_value
from pegboard.errors import SetupError

Keys: TypeAlias = tuple[str, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY: Final = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*"|'[^'\n]*'))[ \t]*""")
# The strings, comments, brackets and other parts of a value.
_PART: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]|[^\[\]{}"\'#\n]+|\n',
    re.DOTALL,
)


class _Statement(NamedTuple):
    """A header, whose `key` is empty, or a key with its value: `table` is the header that it stands under."""

    table: Keys
    key: Keys
    start: int
    value: int
    end: int

    @property
    def path(self) -> Keys:
        return (*self.table, *self.key)


def set_in_toml(text: str, place: Keys, value: Json) -> str:
    """The text with this value at a path; tables are changed key by key."""
    tree = tomllib.loads(text)
    old = _find(tree, place)
    if old is not None and is_same_value(old, value):
        return text
    statements = list(_statements(text))
    inline = next((one for one in statements if one.key and one.path == place[: len(one.path)]), None)
    if inline is not None:
        whole = _with(_find(tree, inline.path), place[len(inline.path) :], value)
        return text[: inline.value] + _write(whole) + text[inline.end :]
    if isinstance(value, dict):
        if not isinstance(old, dict):
            return _append_table(text, place, value)
        for key in [key for key in old if key not in value]:
            text = remove_in_toml(text, (*place, key))
        for key, item in value.items():
            # Each change parses the text again.
            if key not in old or not is_same_value(old[key], item):
                text = set_in_toml(text, (*place, key), item)
        return text if value or _find(tomllib.loads(text), place) is not None else _append_table(text, place, {})
    if isinstance(old, dict):
        return set_in_toml(remove_in_toml(text, place), place, value)
    return _add_key(text, statements, place, value)


def add_to_toml(text: str, place: Keys, members: Mapping[str, Json]) -> str | None:
    """The text with further tables in the table at a path, parsed once; None if there is no such table, one of them is there
    already, or it is written within one value."""
    old = _find(tomllib.loads(text), place)
    is_inline = any(one.key and one.path == place[: len(one.path)] for one in _statements(text))
    if not isinstance(old, dict) or is_inline or not old.keys().isdisjoint(members):
        return None
    for key, value in members.items():
        if not isinstance(value, dict):
            return None
        text = _append_table(text, (*place, key), value)
    return text


def remove_in_toml(text: str, place: Keys) -> str:
    """The text without the value at a path; unchanged if there is none."""
    tree = tomllib.loads(text)
    if _find(tree, place) is None:
        return text
    statements = list(_statements(text))
    for one in statements:
        if one.key and len(one.path) < len(place) and one.path == place[: len(one.path)]:
            whole = _with(_find(tree, one.path), place[len(one.path) :], None)
            return text[: one.value] + _write(whole) + text[one.end :]
    for one in reversed(statements):
        if one.path[: len(place)] == place:
            start, end = _line_start(text, one.start), _line_end(text, one.end)
            if not one.key and text[:start].endswith(("\n\n", "\n\r\n")):
                start = text.rindex("\n", 0, start - 1) + 1
            text = text[:start] + text[end:]
    return text


def _append_table(text: str, place: Keys, value: dict[str, Json]) -> str:
    line_break = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(map(_write_key, place))}]"]
    lines += [f"{_write_key(key)} = {_write(item)}" for key, item in value.items()]
    gap = "" if not text else line_break if text.endswith("\n") else line_break * 2
    return text + gap + line_break.join(lines) + line_break


def _add_key(text: str, statements: list[_Statement], place: Keys, value: Json) -> str:
    """Add a key at the end of its table; a table without a header gets one."""
    table = place[:-1]
    inside = [one for one in statements if one.table == table]
    if not inside and table:
        return _append_table(text, table, {place[-1]: value})
    line_break = "\r\n" if "\r\n" in text else "\n"
    line = f"{_write_key(place[-1])} = {_write(value)}"
    if not inside:
        return f"{line}{line_break}{text}"
    at = _line_end(text, inside[-1].end)
    line_start = _line_start(text, inside[-1].start)
    indent = text[line_start : _skip_spaces(text, line_start)]
    gap = "" if text[:at].endswith("\n") else line_break
    return f"{text[:at]}{gap}{indent}{line}{line_break}{text[at:]}"


def _statements(text: str) -> Iterator[_Statement]:
    """The statements of a text that tomllib has read."""
    table: Keys = ()
    at = _skip(text, 0)
    while at < len(text):
        start = at
        if text[at] == "[":
            brackets = 2 if text.startswith("[[", at) else 1
            table, at = _keys(text, at + brackets)
            at += brackets
            yield _Statement(table, (), start, at, at)
        else:
            key, at = _keys(text, at)
            value = _skip_spaces(text, at + 1)
            at = _value_end(text, value)
            yield _Statement(table, key, start, value, at)
        at = _skip(text, at)


def _keys(text: str, at: int) -> tuple[Keys, int]:
    keys: list[str] = []
    while (found := _KEY.match(text, at)) is not None:
        keys.append(found[1] or str(tomllib.loads(f"key = {found[2]}")["key"]))
        at = found.end()
        if text[at : at + 1] != ".":
            return tuple(keys), at
        at += 1
    raise SetupError("this TOML has a key that cannot be edited")


def _value_end(text: str, at: int) -> int:
    depth, end = 0, at
    for part in _PART.finditer(text, at):
        word = part[0]
        if depth == 0 and (word == "\n" or word.startswith("#")):
            break
        depth += (word in ("[", "{")) - (word in ("]", "}"))
        end = part.end() if word.strip() == word else part.start() + len(word.rstrip(" \t\r"))
    return end


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _skip_spaces(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _write(value: Json) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case list():
            return f"[{', '.join(map(_write, value))}]"
        case dict():
            members = ", ".join(f"{_write_key(key)} = {_write(item)}" for key, item in value.items())
            return f"{{ {members} }}" if members else "{}"
        case int() | float():
            return repr(value)
    raise SetupError(f"TOML has no value for {value!r}")


def _write_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _write(key)


def _with(tree: Any, place: Keys, value: Json) -> Any:
    """The tree with a value at a path; None removes it."""
    if not place:
        return value
    inside = tree if isinstance(tree, dict) else {}
    key, *rest = place
    if value is None and not rest:
        return {name: item for name, item in inside.items() if name != key}
    return {**inside, key: _with(inside.get(key), tuple(rest), value)}


def _find(tree: Any, place: Keys) -> Any:
    for key in place:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1
