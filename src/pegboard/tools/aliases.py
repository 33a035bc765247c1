"""Alternative tool names for clients that do not accept the original ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

from msgspec import Struct

TAIL = 8


class NameRule(Struct, frozen=True):
    """What an endpoint or a model's provider takes as the name of a tool; a-z and _ are always among the letters."""

    letters: str = "A-Za-z0-9_-"
    longest: int = 64
    first: str = ""
    """The letters a name may begin with, where that differs."""

    def admits(self, name: str) -> bool:
        head = self.first or self.letters
        return re.fullmatch(f"[{head}][{self.letters}]{{0,{self.longest - 1}}}", name) is not None

    def replace_invalid(self, name: str) -> str:
        """The name with every letter replaced that is not taken; its length is left alone."""
        mended = re.sub(f"[^{self.letters}]", "_", name)
        if self.first and not re.match(f"[{self.first}]", mended):
            mended = f"_{mended}"
        return mended


ANY = NameRule(letters="A-Za-z0-9_.-", longest=128)
DOTLESS = NameRule()
GEMINI = NameRule(letters="A-Za-z0-9_.:-", first="A-Za-z_")


class NameMap:
    """Aliases for a set of names, and the way back.

    A name that the rule takes is its own alias. In any other, `_` stands for each letter that is not taken. A tail
    made from the whole name's hash follows only where the name had to be cut, or where two names would otherwise
    share an alias. The order of the names does not matter, and a name's alias changes only when one that would
    share it comes or goes.
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
        # Sorted, so that the aliases are the same in whatever order the names come.
        for name in sorted(mended.keys() - aliases.keys()):
            aliases[name] = _tailed(name, mended[name], rule.longest, taken)
            taken.add(aliases[name])
        self._aliases = {name: aliases[name] for name in wanted}
        self._names = {alias: name for name, alias in self._aliases.items()}

    def alias(self, name: str) -> str:
        """What the other side calls this tool; KeyError for a name that is not of the set."""
        return self._aliases[name]

    def name(self, alias: str) -> str:
        """The tool an alias stands for; an alias we did not give is returned as it is."""
        return self._names.get(alias, alias)

    def changed(self) -> dict[str, str]:
        """The names that go by another, with their aliases."""
        return {name: alias for name, alias in self._aliases.items() if name != alias}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._aliases.items())

    def __len__(self) -> int:
        return len(self._aliases)


def _tailed(name: str, alias: str, longest: int, taken: set[str]) -> str:
    # Small letters alone, which every rule takes.
    digest = "".join(chr(ord("a") + byte % 26) for byte in sha256(name.encode("utf-8")).digest())
    for length in range(TAIL, min(longest, len(digest))):
        tail = f"_{digest[:length]}"
        tailed = alias[: longest - len(tail)] + tail
        if tailed not in taken:
            return tailed
    raise ValueError(f"no alias of {longest} letters is free for {name!r}")
