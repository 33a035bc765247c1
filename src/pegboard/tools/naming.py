"""Which tool names are valid, default and alternative names, and suggestions for misspelled ones."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice

from msgspec import Struct

from pegboard.errors import DeclarationError
from pegboard.schema.name_similarity import find_near

MAX_NAME_LENGTH = 128
# If there are more names than this, only the first are compared.
SCANNED = 4_000
# The CPU time that suggestions for the names of callers may take at once, and as a share of all time.
SEARCH_SECONDS = 0.2
SEARCH_SHARE = 0.05

_RULE = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_ACRONYM_END = re.compile(r"([A-Z])([A-Z][a-z])")
_CAMEL_CASE = re.compile(r"([a-z0-9])([A-Z])")
_BETWEEN_WORDS = re.compile(r"[\s_.-]+")
_SEPARATORS = str.maketrans("", "", "-_.")

TAIL = 8


def snake_case(name: str) -> str:
    """`AddNumbersTool` → `add_numbers_tool`, `HTTPRequest` → `http_request`; snake_case stays as it is."""
    return "_".join(_split(name)).lower() or name


def humanise(name: str) -> str:
    """`add_numbers` and `AddNumbers` → `Add Numbers`; acronyms keep their capitals."""
    return " ".join(word[:1].upper() + word[1:] for word in _split(name))


def check_name(name: str, where: str) -> None:
    """Reject names that the protocol does not allow for tools: `[A-Za-z0-9_.-]{1,128}`."""
    if _RULE.match(name):
        return
    if not name:
        raise DeclarationError(f"{where}: the tool name is empty; use 1 to {MAX_NAME_LENGTH} of A-Z a-z 0-9 _ . -")
    if name == "<lambda>":
        raise DeclarationError(f'{where}: a lambda has no name; pass one, as in board.tool(f, name="double")')
    if len(name) > MAX_NAME_LENGTH:
        raise DeclarationError(
            f"{where}: tool name {name[:40]!r}… has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
        )
    strange = "".join(sorted({letter for letter in name if not _RULE.match(letter)}))
    mended = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")
    hint = f"; try {mended!r}" if mended else ""
    raise DeclarationError(f"{where}: tool name {name!r} contains {strange!r}; use only A-Z a-z 0-9 _ . -{hint}")


def fold_case(name: str) -> str:
    """The form in which near-duplicates are equal: ignores case, `-`, `_` and `.`."""
    return name.translate(_SEPARATORS).lower()


def suggest(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Similar names: those with similar spelling first, then those where one contains the other."""
    folded = fold_case(name[:MAX_NAME_LENGTH])
    reach = max(1, min(3, len(folded) // 3))
    known = _folded(names)
    ranked = [
        (distance, abs(len(folded) - len(known[other])), place, other)
        for distance, place, other in find_near(folded, known, reach)
    ]
    for place, (other, candidate) in enumerate(known.items()):
        apart = abs(len(folded) - len(candidate))
        if apart > reach and min(len(folded), len(candidate)) >= 3 and (folded in candidate or candidate in folded):
            ranked.append((reach + 1, apart, place, other))
    return [other for *_, other in sorted(ranked)[:most]]


class NameSuggestions:
    """Suggests names to callers within a share of the time: after too many unknown names, an answer suggests none.

    `clock` tells the time, `spent` the CPU time of this thread.
    """

    __slots__ = ("_at", "_clock", "_debt", "_spent")

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._spent = spent
        self._at = clock()
        self._debt = 0.0

    def suggest(self, name: str, names: Iterable[str]) -> list[str]:
        """The names probably meant, up to three."""
        now = self._clock()
        self._debt = max(0.0, self._debt - (now - self._at) * SEARCH_SHARE)
        self._at = now
        if self._debt > SEARCH_SECONDS:
            return []
        began = self._spent()
        found = suggest(name, names)
        self._debt += self._spent() - began
        return found


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def find_misspelt(name: str, names: Iterable[str]) -> str | None:
    """The name that this is probably a typo of: one or two edits away, or the same except for case and separators."""
    folded = fold_case(name[:MAX_NAME_LENGTH])
    near = find_near(folded, _folded(names), 1 if len(folded) < 6 else 2)
    return min(near)[2] if near else None


def _folded(names: Iterable[str]) -> dict[str, str]:
    folded = ((name, fold_case(name[:MAX_NAME_LENGTH])) for name in islice(names, SCANNED))
    return {name: spelt for name, spelt in folded if spelt}


def _split(name: str) -> list[str]:
    spaced = _CAMEL_CASE.sub(r"\1_\2", _ACRONYM_END.sub(r"\1_\2", name))
    return [word for word in _BETWEEN_WORDS.split(spaced) if word]


class NameRule(Struct, frozen=True):
    """The names that an endpoint or a model provider accepts for tools; a-z and _ are always allowed."""

    letters: str = "A-Za-z0-9_-"
    longest: int = 64
    first: str = ""
    """The characters that a name may start with, if these differ."""

    def admits(self, name: str) -> bool:
        head = self.first or self.letters
        return re.fullmatch(f"[{head}][{self.letters}]{{0,{self.longest - 1}}}", name) is not None

    def replace_invalid(self, name: str) -> str:
        """The name with every character replaced that is not allowed; its length stays the same."""
        mended = re.sub(f"[^{self.letters}]", "_", name)
        if self.first and not re.match(f"[{self.first}]", mended):
            mended = f"_{mended}"
        return mended


ANY = NameRule(letters="A-Za-z0-9_.-", longest=128)
DOTLESS = NameRule()
GEMINI = NameRule(letters="A-Za-z0-9_.:-", first="A-Za-z_")


class NameMap:
    """Aliases for a set of names, in both directions.

    An allowed name is its own alias. In other names, `_` replaces each character that is not allowed. A suffix made
    from the hash of the whole name is added only if the name had to be cut, or if two names would share an alias. The
    order of the names does not matter, and an alias changes only when a name that would share it is added or removed.
    """

    __slots__ = ("_aliases", "_names")

    def __init__(self, names: Iterable[str], rule: NameRule = DOTLESS) -> None:
        wanted = list(dict.fromkeys(names))
        mended = {name: name if rule.admits(name) else rule.replace_invalid(name) for name in wanted}
        shared = Counter(mended.values())
        aliases = {
            name: alias
            for name, alias in mended.items()
            if rule.admits(name) or (shared[alias] == 1 and len(alias) <= rule.longest)
        }
        taken = set(aliases.values())
        # Sorted, so that the aliases do not depend on the order of the names.
        for name in sorted(mended.keys() - aliases.keys()):
            aliases[name] = _tailed(name, mended[name], rule.longest, taken)
            taken.add(aliases[name])
        self._aliases = {name: aliases[name] for name in wanted}
        self._names = {alias: name for name, alias in self._aliases.items()}

    def alias(self, name: str) -> str:
        """The alias of this tool; KeyError for a name that is not in the set."""
        return self._aliases[name]

    def name(self, alias: str) -> str:
        """The tool behind an alias; an unknown alias is returned unchanged."""
        return self._names.get(alias, alias)

    def changed(self) -> dict[str, str]:
        """The names that differ from their aliases, with these."""
        return {name: alias for name, alias in self._aliases.items() if name != alias}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._aliases.items())

    def __len__(self) -> int:
        return len(self._aliases)


def _tailed(name: str, alias: str, longest: int, taken: set[str]) -> str:
    # Lower-case letters only, which every rule allows.
    digest = "".join(chr(ord("a") + byte % 26) for byte in sha256(name.encode("utf-8")).digest())
    for length in range(TAIL, min(longest, len(digest))):
        tail = f"_{digest[:length]}"
        tailed = alias[: longest - len(tail)] + tail
        if tailed not in taken:
            return tailed
    raise ValueError(f"no alias of {longest} characters is free for {name!r}")
