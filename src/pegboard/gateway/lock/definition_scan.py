"""Scans definitions for hidden text, instructions to the model and look-alike names.

Findings are for a person to review. Nothing is changed or withheld because of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.lock.hidden_characters import REASONS, find_hidden, latinise, remove_hidden, skeleton
from pegboard.gateway.lock.injection_rules import RULES
from pegboard.logs.printable import printable
from pegboard.tools.qualified_names import SEPARATOR, ToolName

MAX_TEXT_LENGTH: Final = 20_000
"""The number of characters of one text that are scanned."""

_SHOWN: Final = 120
_PATH: Final = 200
_SHORT: Final = 256
_CAMEL_CASE: Final = re.compile(r"([a-z0-9])([A-Z])")
_BLANKS: Final = re.compile(r"\s+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.:/-]{3,256}")
# Contexts in which a plain word means the name of a tool.
_CALLED: Final = re.compile(
    r"(?:\b(?:tool|function)s?\s++(?:named\s++|called\s++)?[`'\"]([\w.-]{1,128}+)[`'\"])"
    r"|(?:[`'\"]([\w.-]{1,128}+)[`'\"]\s++(?:tool|function)\b)|(?<![\w.-])([\w.-]{1,128}+)\(\)"
)
# Images are data that models do not read.
_UNREAD: Final = frozenset({"icons"})

SHADOWING: Final = {
    "look-alike-name": "its name looks like that of another server's tool",
    "names-another": "it refers to another server's tool",
}


class Finding(Struct, frozen=True):
    """A finding: the rule, the location in the definition, the words, and the reason."""

    rule: str
    where: str
    shown: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason} ({self.rule}): {self.shown}"


def scan_definition(definition: Mapping[str, Json]) -> list[Finding]:
    """Hidden characters and instructions in any text of a definition: names, descriptions, schemas, keys, defaults."""
    found: dict[tuple[str, str], Finding] = {}
    for where, text, is_name in _texts(definition):
        for finding in scan_text(text, where, is_name=is_name):
            found.setdefault((finding.rule, finding.where), finding)
    return list(found.values())


def scan_text(text: str, where: str, *, is_name: bool = False) -> Iterator[Finding]:
    """The findings in one text; the words of a name are separated by `_`, `-` and capitals."""
    judged = _judge_cached(text, is_name) if len(text) <= _SHORT else _judge(text, is_name)
    for rule, shown, reason in judged:
        yield Finding(rule, where, shown, reason)


def _judge(text: str, is_name: bool) -> tuple[tuple[str, str, str], ...]:
    found = []
    seen = text[:MAX_TEXT_LENGTH]
    read = remove_hidden(seen)
    # Normalization can turn one character into eighteen.
    if len(text) > MAX_TEXT_LENGTH or len(read) > MAX_TEXT_LENGTH:
        found.append(("too-long", f"{max(len(text), len(read))} characters", REASONS["too-long"]))
        read = read[:MAX_TEXT_LENGTH]
    found += [(hidden.rule, _clip(hidden.shown), REASONS[hidden.rule]) for hidden in find_hidden(seen)]
    if is_name:
        read = re.sub(r"[_.-]+", " ", _CAMEL_CASE.sub(r"\1 \2", read))
    read = _BLANKS.sub(" ", read).lower()
    latin = latinise(read)
    for rule in RULES:
        words = rule.search(read) or (rule.search(latin) if latin != read else None)
        if words:
            found.append((rule.id, _clip(words.strip()), rule.reason))
    return tuple(found)


# Most texts of a schema are the same few keys, types and words.
_judge_cached = lru_cache(maxsize=4096)(_judge)


def find_shadows(tools: Mapping[ToolName, Mapping[str, Json]]) -> dict[ToolName, list[Finding]]:
    """Tools whose name or description concerns another server's tools.

    The same server in two toolboxes is not another one: a server may use any name that it has itself.
    """
    owners: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    looks: defaultdict[str, list[ToolName]] = defaultdict(list)
    for name in tools:
        owners[name.tool].add((name.toolbox, name.server))
        looks[skeleton(name.tool)].append(name)
    found: defaultdict[ToolName, list[Finding]] = defaultdict(list)
    for alike in looks.values():
        for name, twin in _twins(alike):
            shown = f"{printable(name.tool)} and {printable(twin.tool)} of {twin.toolbox}/{twin.server}"
            found[name].append(Finding("look-alike-name", "name", _clip(shown), SHADOWING["look-alike-name"]))
    for name, definition in tools.items():
        named = next(_named_others(name, definition, owners), None)
        if named is not None:
            found[name].append(named)
    return dict(found)


def _twins(alike: list[ToolName]) -> Iterator[tuple[ToolName, ToolName]]:
    """Each name that another server has in another spelling, with one of these."""
    # Of two spellings at a server, at least one differs from any name: no more have to be compared.
    spellings: defaultdict[tuple[str, str], dict[str, ToolName]] = defaultdict(dict)
    for name in alike:
        own = spellings[name.toolbox, name.server]
        if len(own) < 2:
            own[name.tool] = name
    for name in alike:
        for owner, own in spellings.items():
            twin = next((other for tool, other in own.items() if tool != name.tool), None)
            if twin is not None and owner != (name.toolbox, name.server):
                yield name, twin
                break


def _named_others(
    name: ToolName, definition: Mapping[str, Json], owners: Mapping[str, set[tuple[str, str]]]
) -> Iterator[Finding]:
    own = (name.toolbox, name.server)
    for where, text, is_name in _texts(definition):
        if is_name:
            continue
        for word in _mentions(latinise(remove_hidden(text[:MAX_TEXT_LENGTH]))):
            parts = word.split(SEPARATOR, 2)
            tool = parts[2] if len(parts) == 3 else word
            others = owners.get(tool, set())
            if others and own not in others:
                toolbox, server = min(others)
                shown = f"{tool} of {toolbox}/{server}"
                yield Finding("names-another", where, _clip(shown), SHADOWING["names-another"])


def _mentions(text: str) -> Iterator[str]:
    """The words of a text that can be names of tools: identifiers, and words called a tool."""
    for token in _TOKEN.findall(text):
        word = token.strip(".:/-")
        if re.search(r"\w[_.-]\w|[a-z][A-Z]", word):
            yield word
    for found in _CALLED.finditer(text):
        yield next(filter(None, found.groups()))


def _texts(definition: Mapping[str, Json]) -> Iterator[tuple[str, str, bool]]:
    """Every text in a definition with its path, and whether it is a name: a key, or the name of a tool."""
    left: list[tuple[str, Json, bool]] = [("", definition, False)]
    while left:
        where, value, is_key = left.pop()
        if isinstance(value, str):
            yield where, value, is_key or where == "name"
        elif isinstance(value, Mapping):
            inner: list[tuple[str, Json, bool]] = []
            for key, item in value.items():
                if where or key not in _UNREAD:
                    path = _extend(where, f".{printable(key[:_PATH])}" if where else printable(key[:_PATH]))
                    inner += [(path, key, True), (path, item, False)]
            left += reversed(inner)
        elif isinstance(value, list | tuple):
            left += [(_extend(where, f"[{index}]"), item, False) for index, item in enumerate(value)][::-1]


def _extend(path: str, step: str) -> str:
    """The path to a part of a definition; a long path is not extended."""
    return path if len(path) > _PATH else path + step


def _clip(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
