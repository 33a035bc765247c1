"""Reads what servers say of their tools for what should not be there: hidden text, orders to the model, impostors.

A finding is for a person to judge. Nothing is changed or withheld because of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pegboard.call import Json
from pegboard.gateway.names import SEPARATOR, ToolName
from pegboard.gateway.trust.hidden import REASONS, find_hidden, latinise, skeleton, uncover
from pegboard.gateway.trust.phrases import RULES
from pegboard.printable import printable

LONGEST: Final = 20_000
"""The characters of one text that are looked at."""

_DEEPEST: Final = 64
_SHOWN: Final = 120
_SHORT: Final = 256
_HUMP: Final = re.compile(r"([a-z0-9])([A-Z])")
_BLANKS: Final = re.compile(r"\s+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.:/-]{3,256}")
# Where a plain word is meant as the name of a tool.
_CALLED: Final = re.compile(
    r"(?:\b(?:tool|function)s?\s+(?:named\s+|called\s+)?[`'\"]([\w.-]{1,128})[`'\"])"
    r"|(?:[`'\"]([\w.-]{1,128})[`'\"]\s+(?:tool|function)\b)|\b([\w.-]{1,128})\(\)"
)
# Pictures are data, and no model reads them.
_UNREAD: Final = frozenset({"icons"})

SHADOWING: Final = {
    "look-alike-name": "its name can be taken for that of another server's tool",
    "names-another": "it speaks of another server's tool",
}


class Finding(Struct, frozen=True):
    """What was found: by which rule, where in the definition, the words, and why they matter."""

    rule: str
    where: str
    shown: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason} ({self.rule}): {self.shown}"


def scan_definition(definition: Mapping[str, Json]) -> list[Finding]:
    """Hidden characters and orders in any text of a definition: names, descriptions, schemas, keys and defaults."""
    found: dict[tuple[str, str], Finding] = {}
    for where, text, is_name in _texts(definition, "", 0):
        for finding in scan_text(text, where, is_name=is_name):
            found.setdefault((finding.rule, finding.where), finding)
    return list(found.values())


def scan_text(text: str, where: str, *, is_name: bool = False) -> Iterator[Finding]:
    """The findings in one text; the words of a name are told apart by `_`, `-` and capitals."""
    judged = _judge_again(text, is_name) if len(text) <= _SHORT else _judge(text, is_name)
    for rule, shown, reason in judged:
        yield Finding(rule, where, shown, reason)


def _judge(text: str, is_name: bool) -> tuple[tuple[str, str, str], ...]:
    found = []
    if len(text) > LONGEST:
        found.append(("too-long", f"{len(text)} characters", REASONS["too-long"]))
        text = text[:LONGEST]
    found += [(hidden.rule, _clip(hidden.shown), REASONS[hidden.rule]) for hidden in find_hidden(text)]
    read = uncover(text)
    if is_name:
        read = re.sub(r"[_.-]+", " ", _HUMP.sub(r"\1 \2", read))
    read = _BLANKS.sub(" ", read).lower()
    latin = latinise(read)
    for rule in RULES:
        match = rule.pattern.search(read) or (latin != read and rule.pattern.search(latin))
        if match:
            found.append((rule.id, _clip(match[0].strip()), rule.reason))
    return tuple(found)


# Most texts of a schema are the same few keys, types and words.
_judge_again = lru_cache(maxsize=4096)(_judge)


def find_shadows(tools: Mapping[ToolName, Mapping[str, Json]]) -> dict[ToolName, list[Finding]]:
    """Tools whose name or words concern another server's; what a server says of its own is its business.

    The same server in two toolboxes is not another one: a name that a server has itself is its own.
    """
    owners: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    looks: defaultdict[str, list[ToolName]] = defaultdict(list)
    for name in tools:
        owners[name.tool].add((name.toolbox, name.server))
        looks[skeleton(name.tool)].append(name)
    found: defaultdict[ToolName, list[Finding]] = defaultdict(list)
    for alike in looks.values():
        for name in alike:
            twin = next((other for other in alike if _impostor(name, other)), None)
            if twin is not None:
                shown = f"{printable(name.tool)} and {printable(twin.tool)} of {twin.toolbox}/{twin.server}"
                found[name].append(Finding("look-alike-name", "name", _clip(shown), SHADOWING["look-alike-name"]))
    for name, definition in tools.items():
        named = next(_named_others(name, definition, owners), None)
        if named is not None:
            found[name].append(named)
    return dict(found)


def _impostor(name: ToolName, other: ToolName) -> bool:
    return name.tool != other.tool and (name.toolbox, name.server) != (other.toolbox, other.server)


def _named_others(
    name: ToolName, definition: Mapping[str, Json], owners: Mapping[str, set[tuple[str, str]]]
) -> Iterator[Finding]:
    own = (name.toolbox, name.server)
    for where, text, is_name in _texts(definition, "", 0):
        if is_name:
            continue
        for word in _mentions(latinise(uncover(text[:LONGEST]))):
            parts = word.split(SEPARATOR, 2)
            tool = parts[2] if len(parts) == 3 else word
            others = owners.get(tool, set())
            if others and own not in others:
                toolbox, server = min(others)
                shown = f"{tool} of {toolbox}/{server}"
                yield Finding("names-another", where, _clip(shown), SHADOWING["names-another"])


def _mentions(text: str) -> Iterator[str]:
    """What in a text can be meant as the name of a tool: words that no prose has, and words said to be one."""
    for token in _TOKEN.findall(text):
        word = token.strip(".:/-")
        if re.search(r"\w[_.-]\w|[a-z][A-Z]", word):
            yield word
    for found in _CALLED.finditer(text):
        yield next(filter(None, found.groups()))


def _texts(value: Json, where: str, depth: int) -> Iterator[tuple[str, str, bool]]:
    """Every text in a definition with the way to it, and whether it is a name: a key, or what a tool is called."""
    if isinstance(value, str):
        yield where, value, where == "name"
    elif depth < _DEEPEST:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if depth == 0 and key in _UNREAD:
                    continue
                inner = f"{where}.{printable(key)}" if where else printable(key)
                yield inner, key, True
                yield from _texts(item, inner, depth + 1)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _texts(item, f"{where}[{index}]", depth + 1)


def _clip(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
