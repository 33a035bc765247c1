"""Parses a configuration file and keeps the line of each key.

JSON may have comments and trailing commas, as in the files of editors. A key that occurs twice in one object is
recorded with both lines: using the last one, as JSON parsers do, would silently lose a server.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn, TypeAlias

from pegboard.call import Json
from pegboard.errors import SetupError
from pegboard.tools.naming import suggest

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path to a value: keys and positions."""

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 64

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_TABLE: Final = re.compile(r"^[ \t]*+\[([^\[\]\n]++)\]", re.MULTILINE)
_DECODER: Final = JSONDecoder()
_LONG_KEY: Final = re.compile(
    rf"""(?<![\w.-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH},{MAX_DEPTH}}}"""
)
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")


class DuplicateKey(NamedTuple):
    """A key that occurs twice in one object."""

    place: KeyPath
    first: int
    second: int


class ValueSpan(NamedTuple):
    """Where a member or an item is in a JSON text: its start, its value, its end, and the comma after it, or -1."""

    start: int
    value: int
    end: int
    comma: int


class ParsedSource(NamedTuple):
    """The values of a file, their lines, and in JSON their spans."""

    tree: Json
    lines: dict[KeyPath, int]
    twice: list[DuplicateKey]
    spans: Mapping[KeyPath, ValueSpan] = MappingProxyType({})


class Encoding(NamedTuple):
    """The encoding of a file: its byte order mark, if it has one, and the codec of what follows."""

    mark: bytes = b""
    codec: str = "utf-8"


_MARKED: Final = (
    Encoding(codecs.BOM_UTF8, "utf-8"),
    Encoding(codecs.BOM_UTF16_LE, "utf-16-le"),
    Encoding(codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_source(path: Path) -> ParsedSource:
    """The values of a JSON or TOML file."""
    return parse_source(decode_source(read_bytes(path), path)[0], path)


def read_bytes(path: Path) -> bytes:
    """The bytes of a configuration file; SetupError says why it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        files = [file.name for ending in ("*.json", "*.toml") for file in sorted(path.parent.glob(ending))]
        near = suggest(path.name, files, 1)
        hint = f", did you mean {path.with_name(near[0])}?" if near else ""
        raise SetupError(f"File not found: {path}{hint}") from None
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise SetupError(f"{path} is larger than {MAX_BYTES} bytes, the limit for a configuration")
    return data


def decode_source(data: bytes, path: Path) -> tuple[str, Encoding]:
    """The text of a file and its encoding: UTF-8, or UTF-16 with a byte order mark."""
    encoding = next((marked for marked in _MARKED if data.startswith(marked.mark)), Encoding())
    try:
        return data[len(encoding.mark) :].decode(encoding.codec), encoding
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SetupError(f"{path}:{line}: not UTF-8; save it in that encoding") from None


def parse_source(text: str, path: Path) -> ParsedSource:
    """The values of a text in the format of a file: TOML by its name, else JSON."""
    return _read_toml(text, path) if path.suffix.lower() == ".toml" else _JsonReader(text, path).read()


def is_blank(text: str) -> bool:
    """Whether a JSON text has no value, only spaces and comments."""
    return _SPACE.fullmatch(text) is not None


def _read_toml(text: str, path: Path) -> ParsedSource:
    if (long := _LONG_KEY.search(text)) is not None:
        # The time that tomllib takes grows with the square of the number of parts.
        line = text.count("\n", 0, long.start()) + 1
        raise SetupError(f"{path}:{line}: Invalid TOML in config file: a key has more than {MAX_DEPTH} parts")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path}: Invalid TOML in config file: {error}{_first_of_two(text, str(error))}") from None
    except RecursionError:
        raise SetupError(f"{path}: Invalid TOML in config file: it is nested too deep") from None
    except ValueError:
        # The limit of Python on the digits of a number.
        raise SetupError(f"{path}: Invalid TOML in config file: a number has too many digits") from None
    _check_depth(tree, path)
    lines: dict[KeyPath, int] = {}
    for line, name in _tables(text):
        lines.setdefault(tuple(part.strip().strip("\"'") for part in name.split(".")), line)
    return ParsedSource(tree, lines, [])


def _check_depth(tree: Json, path: Path) -> None:
    """Reject what other functions could not walk through, as in JSON."""
    level: list[Json] = [tree]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder if isinstance(holder, list) else ())
        ]
        if not level:
            return
    raise SetupError(f"{path}: Invalid TOML in config file: it is nested too deep")


def _tables(text: str) -> Iterator[tuple[int, str]]:
    """The lines on which tables start, and their names."""
    line, counted = 1, 0
    for found in _TABLE.finditer(text):
        line += text.count("\n", counted, found.start(1))
        counted = found.start(1)
        yield line, found[1]


def _first_of_two(text: str, problem: str) -> str:
    """The first line of a table that occurs twice."""
    at = _AT_LINE.search(problem)
    if at is None:
        return ""
    tables = [(line, name.strip()) for line, name in _tables(text)]
    named = dict(tables).get(int(at[1]))
    first = next((line for line, name in tables if name == named), None)
    return f"; [{named}] is already on line {first}" if first is not None and first != int(at[1]) else ""


class _JsonReader:
    """One pass over the text."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path
        self._lines: dict[KeyPath, int] = {}
        self._twice: list[DuplicateKey] = []
        self._spans: dict[KeyPath, ValueSpan] = {}
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def read(self) -> ParsedSource:
        at = self._skip(0)
        if at == len(self._text):
            self._fail(at, "the file is empty")
        tree, end = self._value(at, ())
        self._spans[()] = ValueSpan(at, at, end, -1)
        at = self._skip(end)
        if at < len(self._text):
            self._fail(at, "unexpected text after the end of the configuration")
        return ParsedSource(tree, self._lines, self._twice, self._spans)

    def _value(self, at: int, place: KeyPath) -> tuple[Json, int]:
        if len(place) > MAX_DEPTH:
            self._fail(at, "it is nested too deep")
        match self._text[at : at + 1]:
            case "{":
                return self._object(at + 1, place)
            case "[":
                return self._list(at + 1, place)
            case '"':
                return self._string(at)
            case "":
                self._fail(at, "the file ends where a value is expected")
        for word, value in _WORDS.items():
            if self._text.startswith(word, at):
                return value, at + len(word)
        number = _NUMBER.match(self._text, at)
        if number is None or len(number[0]) > 400:
            self._fail(at, f"expected a value, got {self._text[at]!r}")
        return (float(number[0]) if number[1] or number[2] else int(number[0])), number.end()

    def _object(self, at: int, place: KeyPath) -> tuple[dict[str, Json], int]:
        values: dict[str, Json] = {}
        at = self._skip(at)
        while self._text[at : at + 1] != "}":
            if self._text[at : at + 1] != '"':
                self._fail(at, f"expected a key in double quotes or '}}', got {self._shown(at)}")
            start, line = at, self._line(at)
            key, at = self._string(at)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                self._fail(at, f"expected ':' after the key {key!r}, got {self._shown(at)}")
            here = (*place, key)
            if key in values:
                self._twice.append(DuplicateKey(here, self._lines[here], line))
            else:
                self._lines[here] = line
            value = self._skip(at + 1)
            values[key], end = self._value(value, here)
            at, comma = self._after(end, "}")
            self._spans[here] = ValueSpan(start, value, end, comma)
        return values, at + 1

    def _list(self, at: int, place: KeyPath) -> tuple[list[Json], int]:
        values: list[Json] = []
        at = self._skip(at)
        while self._text[at : at + 1] != "]":
            here = (*place, len(values))
            self._lines[here] = self._line(at)
            value, end = self._value(at, here)
            values.append(value)
            after, comma = self._after(end, "]")
            self._spans[here] = ValueSpan(at, at, end, comma)
            at = after
        return values, at + 1

    def _after(self, at: int, closing: str) -> tuple[int, int]:
        """The position of what follows an item, the next one or the closing bracket, and of the comma between, or -1."""
        at = self._skip(at)
        if self._text[at : at + 1] == ",":
            return self._skip(at + 1), at
        if self._text[at : at + 1] != closing:
            self._fail(at, f"expected ',' or '{closing}', got {self._shown(at)}")
        return at, -1

    def _string(self, at: int) -> tuple[str, int]:
        try:
            text, end = _DECODER.raw_decode(self._text, at)
        except JSONDecodeError as error:
            self._fail(error.pos, error.msg[:1].lower() + error.msg[1:])
        return str(text), end

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def _shown(self, at: int) -> str:
        return repr(self._text[at]) if at < len(self._text) else "the end of the file"

    def _line(self, at: int) -> int:
        return bisect_left(self._breaks, at) + 1

    def _fail(self, at: int, problem: str) -> NoReturn:
        line = self._line(at)
        column = at - (self._breaks[line - 2] if line > 1 else -1)
        raise SetupError(f"{self._path}:{line}: Invalid JSON in config file: {problem} (line {line}, column {column})")
