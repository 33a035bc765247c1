"""What a tool may be called, what it is called when nobody says or there are many, and which name was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pegboard.errors import DeclarationError

MAX_NAME_LENGTH = 128

_RULE = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_ACRONYM_END = re.compile(r"([A-Z])([A-Z][a-z])")
_CAMEL_CASE = re.compile(r"([a-z0-9])([A-Z])")
_BETWEEN_WORDS = re.compile(r"[\s_.-]+")
_SEPARATORS = str.maketrans("", "", "-_.")


def snake_case(name: str) -> str:
    """`AddNumbersTool` → `add_numbers_tool`, `HTTPRequest` → `http_request`; snake_case stays as it is."""
    return "_".join(_split(name)).lower() or name


def humanise(name: str) -> str:
    """`add_numbers` and `AddNumbers` → `Add Numbers`; acronyms keep their capitals."""
    return " ".join(word[:1].upper() + word[1:] for word in _split(name))


def check_name(name: str, where: str) -> None:
    """Refuse what the protocol does not take as a tool name: `[A-Za-z0-9_.-]{1,128}`."""
    if _RULE.match(name):
        return
    if not name:
        raise DeclarationError(f"{where}: the tool name is empty; give it 1 to {MAX_NAME_LENGTH} of A-Z a-z 0-9 _ . -")
    if name == "<lambda>":
        raise DeclarationError(
            f'{where}: a lambda has no name of its own; pass one, as in board.tool(f, name="double")'
        )
    if len(name) > MAX_NAME_LENGTH:
        raise DeclarationError(
            f"{where}: tool name {name[:40]!r}… has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
        )
    strange = "".join(sorted({letter for letter in name if not _RULE.match(letter)}))
    mended = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")
    hint = f"; {mended!r} would do" if mended else ""
    raise DeclarationError(f"{where}: tool name {name!r} has {strange!r} in it; use only A-Z a-z 0-9 _ . -{hint}")


def fold_case(name: str) -> str:
    """The form in which near-duplicates are equal: case, `-`, `_` and `.` do not count."""
    return name.translate(_SEPARATORS).lower()


def suggest(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names probably meant: those spelt nearly alike first, then those that contain the other."""
    folded = fold_case(name[:MAX_NAME_LENGTH])
    reach = max(1, min(3, len(folded) // 3))
    ranked = []
    for place, other in enumerate(names):
        candidate = fold_case(other)
        if not folded or not candidate:
            continue
        distance = _distance(folded, candidate, reach)
        contained = min(len(folded), len(candidate)) >= 3 and (folded in candidate or candidate in folded)
        if distance <= reach or contained:
            ranked.append((distance, abs(len(folded) - len(candidate)), place, other))
    return [other for *_, other in sorted(ranked)[:most]]


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def find_misspelt(name: str, names: Iterable[str]) -> str | None:
    """The name that another is a slip of: one or two letters away, or the same but for case and separators."""
    folded = fold_case(name[:MAX_NAME_LENGTH])
    reach = 1 if len(folded) < 6 else 2
    ranked = [(_distance(folded, fold_case(other), reach), place, other) for place, other in enumerate(names)]
    near = [each for each in ranked if folded and each[0] <= reach]
    return min(near)[2] if near else None


def _split(name: str) -> list[str]:
    spaced = _CAMEL_CASE.sub(r"\1_\2", _ACRONYM_END.sub(r"\1_\2", name))
    return [word for word in _BETWEEN_WORDS.split(spaced) if word]


def _distance(one: str, other: str, reach: int) -> int:
    """Edits (swapped neighbours count once) between two words, or more than `reach` when there are more."""
    beyond = reach + 1
    if one == other:
        return 0
    if abs(len(one) - len(other)) > reach:
        return beyond
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != opposite))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == opposite:
                cost = min(cost, before_last[column - 2] + 1)
            current.append(cost)
        if min(current) > reach:
            return beyond
        before_last, last = last, current
    return min(last[-1], beyond)
